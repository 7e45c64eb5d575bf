"""The batches that a subtask has received and not yet written, and the alignment of their channels."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, assert_never

from lakeward.machines.driver import MachineDriver
from lakeward.machines.exchange import BarrierAlignment
from lakeward.machines.exchange.messages import (
    BarrierAborted,
    BarrierReceived,
    BatchConsumed,
    BatchReceived,
    BlockChannel,
    CheckpointTriggered,
    EndReceived,
    OvertakenReceived,
    PersistBatches,
    TimeoutChecked,
    UnblockChannel,
)
from lakeward.model.exchange import Barrier, BarrierCancelled, EndOfChannel, Overtaken

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from lakeward.machines.driver import Step
    from lakeward.machines.exchange.messages import AlignmentCommand, AlignmentEvent
    from lakeward.model.exchange import ChannelMark
    from lakeward.ports import Clock


class Inputs:
    """All channels of one consumer. Called by the mailbox thread alone.

    What the machine commands is done before the next batch is taken.
    """

    def __init__(
        self,
        producers: int,
        clock: Clock,
        execute: Callable[[AlignmentCommand, AlignmentEvent], None],
        *,
        aligned_timeout_s: float,
        unaligned: bool,
    ) -> None:
        """Start with nothing received. Arguments as of `BarrierAlignment`; `execute` does what the machine commands."""
        self._machine = BarrierAlignment(producers, aligned_timeout_s=aligned_timeout_s, unaligned=unaligned)
        self._driver = MachineDriver(self._machine, execute, on_step=self._count_blocked)
        self._clock = clock
        self._waiting: list[deque[pa.RecordBatch]] = [deque() for _ in range(producers)]
        self._next_channel = 0
        self._blocked_since: dict[int, float] = {}
        self.blocked_s = 0.0
        """Seconds for which channels were blocked since this was last set to 0."""
        self.received_bytes = 0

    @property
    def deadline(self) -> float | None:
        """When `check_time` is due, None while nothing depends on the time."""
        return self._machine.deadline

    @property
    def ended(self) -> bool:
        """Whether every channel has ended, and all of it was consumed."""
        return self._machine.ended

    def receive(self, producer: int, sequence: int, records: pa.RecordBatch) -> None:
        """Take a batch that has come."""
        self._waiting[producer].append(records)
        self.received_bytes += records.nbytes
        self._driver.post(BatchReceived(channel=producer, sequence=sequence))

    def mark(self, producer: int, mark: ChannelMark) -> None:
        """Take a mark that has come."""
        now = self._clock.now()
        match mark:
            case Barrier(checkpoint, first_after, age_s):
                event: AlignmentEvent = BarrierReceived(
                    now=now, channel=producer, checkpoint=checkpoint, first_after=first_after, age_s=age_s
                )
            case Overtaken(checkpoint, first):
                event = OvertakenReceived(now=now, channel=producer, checkpoint=checkpoint, first=first)
            case EndOfChannel(first_after):
                event = EndReceived(channel=producer, first_after=first_after)
            case BarrierCancelled(checkpoint):
                event = BarrierAborted(checkpoint)
            case _:
                assert_never(mark)
        self._driver.post(event)

    def trigger(self, checkpoint: int, *, close_files: bool, age_s: float = 0.0, at_once: bool = False) -> None:
        """Start a checkpoint here. Arguments as of `CheckpointTriggered`."""
        now = self._clock.now()
        event = CheckpointTriggered(
            now=now, checkpoint=checkpoint, age_s=age_s, close_files=close_files, at_once=at_once
        )
        self._driver.post(event)

    def abort(self, checkpoint: int) -> None:
        """End a checkpoint that will not be."""
        self._driver.post(BarrierAborted(checkpoint))

    def check_time(self) -> None:
        """Look whether a checkpoint has waited long enough."""
        self._driver.post(TimeoutChecked(now=self._clock.now()))

    def may_start(self, checkpoint: int) -> bool:
        """Return whether a trigger of this checkpoint counts."""
        return self._machine.may_start(checkpoint)

    @property
    def can_take(self) -> bool:
        """Whether a batch can be written now."""
        return any(self._machine.may_consume(channel) for channel in range(len(self._waiting)))

    def take(self) -> tuple[int, int, pa.RecordBatch] | None:
        """Take the next batch, channel after channel in turn; None where none can be written.

        Returned are its producer, the sequence of the one after it, and the rows. `consumed` is to be called once they
        are written.
        """
        count = len(self._waiting)
        for step in range(count):
            channel = (self._next_channel + step) % count
            if self._machine.may_consume(channel):
                self._next_channel = channel + 1
                return channel, self._machine.consumed(channel) + 1, self._waiting[channel][0]
        return None

    def consumed(self, producer: int) -> None:
        """Note that the oldest batch of a channel is written."""
        self._waiting[producer].popleft()
        self._driver.post(BatchConsumed(channel=producer, sequence=self._machine.consumed(producer)))

    def kept(self, command: PersistBatches) -> list[pa.RecordBatch]:
        """Return the batches that a command names."""
        waiting = self._waiting[command.channel]
        oldest = self._machine.received(command.channel) - len(waiting)
        return [waiting[sequence - oldest] for sequence in range(command.first, command.end)]

    def _count_blocked(self, step: Step[AlignmentEvent, AlignmentCommand]) -> None:
        """Count it before the commands: a snapshot that ends it says how long it took."""
        for command in step.commands:
            if isinstance(command, BlockChannel):
                self._blocked_since[command.channel] = self._clock.now()
            elif isinstance(command, UnblockChannel):
                since = self._blocked_since.pop(command.channel, self._clock.now())
                self.blocked_s += self._clock.now() - since
