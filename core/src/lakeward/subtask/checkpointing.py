"""A subtask's side of the checkpoint protocol: its gateway, and its part of each checkpoint.

The receiving thread handles checkpoint messages immediately: it closes and opens the gateway while the mailbox thread
may be in the middle of a batch, so the coordinator does not wait for that batch. Events that the gateway holds back at
the trigger belong to the checkpoint; they are recorded at the trigger. The progress of the splits may be recorded
later, because a position and its files agree at any time: when the mailbox thread takes `MakePart`, it closes files,
records the progress and has the part stored. A split that ends between the trigger and `MakePart` is in the part as
finished.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Protocol

from lakeward.errors import LakewardError, in_words
from lakeward.machines.checkpoints.gateway import (
    AbortFor,
    CloseFor,
    Gateway,
    GatewayClosed,
    MessageReceived,
    OpenFor,
    Pass,
    Started,
)
from lakeward.machines.driver import MachineDriver
from lakeward.model.checkpoints import Origin, SplitProgress, SubtaskSnapshot
from lakeward.model.events import (
    AckCheckpoint,
    AckClose,
    AnyEvent,
    CheckpointAborted,
    CheckpointComplete,
    Close,
    DeclineCheckpoint,
    Deploy,
    Open,
    SplitFinished,
    SubtaskDone,
    TriggerCheckpoint,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from lakeward.machines.checkpoints.gateway import GatewayCommand, GatewayEvent, GatewayPhase
    from lakeward.model.checkpoints import BlockedEvent, CheckpointRef
    from lakeward.model.exchange import Segment
    from lakeward.model.jobs import SubtaskPlace
    from lakeward.ports import CheckpointStore, Running
    from lakeward.subtask.mailbox import Mailbox
    from lakeward.subtask.parts import SubtaskParts


CheckpointMessage = Close | TriggerCheckpoint | CheckpointComplete | CheckpointAborted
"""The coordinator's messages about a checkpoint."""


@dataclass(frozen=True, slots=True)
class PartWritten:
    """Posted to the mailbox: a part was stored, or could not be; `answer` is the message to the coordinator."""

    checkpoint: int
    answer: AckCheckpoint | DeclineCheckpoint


class Uplink(Protocol):
    """Sends events to the coordinator."""

    @property
    def sent(self) -> int:
        """Number of the last data event that was sent."""
        ...

    def send(self, event: AnyEvent) -> None:
        """Send an event."""
        ...


class PartWithRows(Protocol):
    """A part that has rows to be stored beside it."""

    @property
    def checkpoint(self) -> int:
        """The checkpoint's number."""
        ...

    @property
    def ended(self) -> bool:
        """Whether the checkpoint has ended meanwhile."""
        ...

    def store(
        self, subtask: int, task_attempt: int, write: Callable[[Iterator[pa.RecordBatch]], Segment]
    ) -> SubtaskSnapshot:
        """Store the rows by `write`, and return what the part holds."""
        ...


_CLOSE_S = 5.0
"""Seconds that the end of a task waits for the store; the next start deletes what is written later."""


@dataclass(frozen=True, slots=True)
class MakePart:
    """Posted to the mailbox in the order of the triggers: a checkpoint was triggered, and its part must be made."""

    checkpoint: int
    blocked: tuple[BlockedEvent, ...]


@dataclass(frozen=True, slots=True)
class MakeExchangePart:
    """Posted to the mailbox of a subtask with an exchange: a checkpoint was triggered; the gateway is still closed.

    `since` is when the trigger came, on the subtask's clock: the mailbox may be busy for a while.
    """

    checkpoint: int
    close_files: bool
    since: float


@dataclass(frozen=True, slots=True)
class CheckpointEnded:
    """Posted to the mailbox of a subtask with an exchange: a checkpoint is complete, or was aborted."""

    checkpoint: int


class Checkpointing:
    """One attempt's gateway and parts. The receiving thread calls `on_message`, the mailbox thread everything else."""

    def __init__(
        self, place: SubtaskPlace, deploy: Deploy, link: Uplink, parts: SubtaskParts, mailbox: Mailbox
    ) -> None:
        """Start with the gateway open or closed, as the coordinator's `Deploy` says.

        `MakePart` and `PartWritten` are posted in the mailbox.
        """
        self._origin = Origin(place.job.job_attempt, place.subtask, deploy.attempt, 0)
        self._ref = deploy.checkpoint_ref
        self._root = deploy.checkpoint_root
        self._link = link
        self._parts = parts
        self._mailbox = mailbox
        self._exchange = deploy.exchange is not None
        """With an exchange the gateway opens after the subtask's own snapshot, which the mailbox thread takes."""
        self._gateway = Gateway(closed_for=deploy.gateway_closed, restored=deploy.restored)
        self._driver = MachineDriver(self._gateway, self._execute)
        self._store: CheckpointStore | None = None
        self._lock = threading.RLock()
        """Held while an event passes the gateway and gets its number on the link."""
        self._done = False
        self._taken = 0
        self._answer: PartWritten | None = None
        self._writing: list[Running] = []
        self._ended: dict[int, list[SplitProgress]] = {}
        """By checkpoint whose part is still to be made: the splits that ended after its trigger."""

    @property
    def gateway(self) -> GatewayPhase:
        """The state of the gateway."""
        return self._gateway.phase

    @property
    def holds_events(self) -> bool:
        """Whether the gateway holds events back."""
        with self._lock:
            return bool(self._gateway.held)

    def start(self) -> None:
        """Send restored events again, before anything new."""
        self._step(Started())

    def send(self, event: AnyEvent) -> None:
        """Send an event; a data event waits while the gateway is closed."""
        self._step(MessageReceived(event))

    def finish(self, event: SplitFinished, progress: SplitProgress | None) -> None:
        """Send that a split is finished; `progress` is the result, None if the split cannot be resumed from it."""
        with self._lock:
            if progress is not None:
                for ended in self._ended.values():
                    ended.append(progress)
            self.send(event)

    def send_done(self) -> None:
        """Send `SubtaskDone`: all files are closed; later checkpoint messages are ignored."""
        with self._lock:
            self._done = True
            self._link.send(SubtaskDone())

    def on_message(self, message: CheckpointMessage) -> None:
        """Handle a checkpoint message immediately; answer a repeated message again.

        Raises:
            IllegalEventError: the message is illegal after the ones before it.
        """
        with self._lock:
            if self._done:
                return
            match message:
                case Close():
                    self._step(CloseFor(message.checkpoint))
                case TriggerCheckpoint():
                    self._trigger(message)
                case CheckpointComplete() | CheckpointAborted():
                    self._step(AbortFor(message.checkpoint))
                    if self._exchange:
                        self._mailbox.put_message(CheckpointEnded(message.checkpoint))

    def part_written(self, written: PartWritten) -> None:
        """Send whether a part was stored."""
        with self._lock:
            self._answer = written
        self.send(written.answer)

    def blocked(self) -> tuple[BlockedEvent, ...]:
        """Return the events that the gateway holds back: they belong to the checkpoint that it is closed for."""
        with self._lock:
            return self._gateway.held_as(replace(self._origin, sequence=self._link.sent))

    def open(self, checkpoint: int) -> None:
        """Open the gateway: the state that belongs to the checkpoint is recorded."""
        with self._lock:
            self._step(OpenFor(checkpoint))
            self.send(Open(checkpoint=checkpoint))

    def decline(self, checkpoint: int, reason: str) -> None:
        """Say that there is no part of a checkpoint here."""
        self.part_written(PartWritten(checkpoint, DeclineCheckpoint(checkpoint=checkpoint, reason=reason)))

    def make_part(self, order: MakePart, roll: Callable[[], tuple[SplitProgress, ...]]) -> None:
        """Store this subtask's part of a checkpoint.

        `order` has the checkpoint, and the events that the gateway held back. `roll` closes files that are large
        enough, and returns the progress of all splits of this subtask.
        """
        with self._lock:
            ended = self._ended.pop(order.checkpoint, [])
        if self._ref is None or not self._root:
            self.send(DeclineCheckpoint(checkpoint=order.checkpoint, reason="no place for checkpoints was named"))
            return
        progress = (*ended, *roll())
        snapshot = SubtaskSnapshot(self._origin.subtask, self._origin.task_attempt, progress, order.blocked)
        ref = replace(self._ref, number=order.checkpoint)
        work, name = partial(self._write, ref, snapshot), f"part-{order.checkpoint}"
        self._writing = [one for one in self._writing if not one.join(0.0)]
        self._writing.append(self._parts.executor.start(work, name=name))

    def close(self) -> None:
        """Wait for parts that are being written; those that take too long are deleted once no subtask runs."""
        deadline = self._parts.clock.now() + _CLOSE_S
        for one in self._writing:
            one.join(max(0.0, deadline - self._parts.clock.now()))

    def _trigger(self, message: TriggerCheckpoint) -> None:
        checkpoint = message.checkpoint
        if checkpoint <= self._taken:
            if self._answer is not None and self._answer.checkpoint == checkpoint:
                self.send(self._answer.answer)
            return
        self._taken = checkpoint
        if self._exchange:
            self._mailbox.put_message(MakeExchangePart(checkpoint, message.close_files, self._parts.clock.now()))
            return
        blocked = self.blocked()
        self._ended[checkpoint] = []
        self.open(checkpoint)
        self._mailbox.put_message(MakePart(checkpoint, blocked))

    def store_part(self, part: PartWithRows) -> None:
        """Store a part with its rows, and post whether it is stored. Blocking; called on a worker."""
        if part.ended:
            return
        if self._ref is None or not self._root:
            reason = "no place for checkpoints was named"
            answer = DeclineCheckpoint(checkpoint=part.checkpoint, reason=reason)
            self._mailbox.put(PartWritten(part.checkpoint, answer))
            return
        ref = replace(self._ref, number=part.checkpoint)
        numbers = count()

        def write(records: Iterator[pa.RecordBatch]) -> Segment:
            name = f"{part.checkpoint}-{self._origin.subtask}-{self._origin.task_attempt}-{next(numbers)}.arrow"
            return self._open_store().write_segment(ref, name, records)

        self._answer_with(ref, lambda: part.store(self._origin.subtask, self._origin.task_attempt, write))

    def _open_store(self) -> CheckpointStore:
        if self._store is None:
            self._store = self._parts.checkpoints(self._root)
        return self._store

    def _write(self, ref: CheckpointRef, snapshot: SubtaskSnapshot) -> None:
        self._answer_with(ref, lambda: snapshot)

    def _answer_with(self, ref: CheckpointRef, make: Callable[[], SubtaskSnapshot]) -> None:
        """Store what a part holds, and post whether it is stored."""
        try:
            snapshot = make()
            part = self._open_store().write_part(ref, snapshot)
            answer: AckCheckpoint | DeclineCheckpoint = AckCheckpoint(
                checkpoint=ref.number, part=part, snapshot=snapshot
            )
        except LakewardError as error:
            answer = DeclineCheckpoint(checkpoint=ref.number, reason=str(error))
        except Exception as error:  # noqa: BLE001 - a store that breaks costs this checkpoint and nothing else
            answer = DeclineCheckpoint(checkpoint=ref.number, reason=in_words(error))
        self._mailbox.put(PartWritten(ref.number, answer))

    def _step(self, event: GatewayEvent) -> None:
        with self._lock:
            self._driver.post(event)

    def _execute(self, command: GatewayCommand, _: GatewayEvent) -> None:
        match command:
            case Pass():
                self._link.send(command.event)
            case GatewayClosed():
                self._link.send(AckClose(checkpoint=command.checkpoint, sent=self._link.sent))
