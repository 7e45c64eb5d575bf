"""What is known of the channels of an exchange: by their consumer, and by the producer of one."""

from __future__ import annotations

from typing import NamedTuple

from lakeward.machines.exchange.messages import AlignmentCommand, AlignmentEvent, OutputCommand, OutputEvent
from lakeward.machines.machine import Machine, MachineState, UndoDict
from lakeward.model.exchange import Barrier

# --- of a consumer --------------------------------------------------------------------------------------------------


class AlignmentPhase(MachineState):
    """Where a consumer stands with its channels' barriers."""

    IDLE = "idle"
    """No checkpoint runs here."""
    ALIGNING = "aligning"
    """A barrier, or the trigger, has come; the writer's snapshot is not taken. A channel stops at its barrier."""
    COLLECTING = "collecting"
    """The snapshot is taken, before all barriers: batches before a barrier are kept as they arrive."""
    ENDED = "ended"
    """Every channel has ended and all of it was consumed; a checkpoint has nothing to wait for but its trigger."""


class InputChannel(NamedTuple):
    """What is known of one channel; all numbers are sequences of batches."""

    received: int = 0
    """The next that arrives."""
    consumed: int = 0
    """The next that the writer takes."""
    end: int | None = None
    """The first after its last batch, once it has ended."""
    barrier: int | None = None
    """The first after the running checkpoint's barrier."""
    overtaken: int | None = None
    """The first that its producer keeps for the running checkpoint."""
    kept: int = 0
    """While collecting: the first that is not kept, nor consumed before the snapshot."""
    blocked: bool = False

    @property
    def border(self) -> int | None:
        """The first batch after the running checkpoint, None while it is not known."""
        return self.end if self.barrier is None else self.barrier

    @property
    def share(self) -> int | None:
        """The first batch that is not the consumer's to keep, None while it is not known."""
        return self.border if self.overtaken is None else self.overtaken

    @property
    def aligned(self) -> bool:
        """Whether it is consumed up to its barrier."""
        return self.border is not None and self.consumed >= self.border

    @property
    def collected(self) -> bool:
        """Whether all that lies before its barrier has arrived, or its producer keeps it."""
        return self.share is not None and self.received >= self.share

    @property
    def drained(self) -> bool:
        """Whether it has ended and all of it was consumed."""
        return self.end is not None and self.consumed == self.end


class RunningCheckpoint(NamedTuple):
    """The running checkpoint."""

    number: int
    since: float | None = None
    """When it was triggered, on the subtask's own clock."""
    triggered: bool = False
    close_files: bool = False
    at_once: bool = False
    """No channel goes on before restored rows are written."""
    overtaken: bool = False
    """A peer does not align it."""
    trouble: str = ""
    """Why no right cut can be made of it."""


class InputChannels(Machine[AlignmentEvent, AlignmentCommand]):
    """All channels of one consumer, and the checkpoint that runs here."""

    def __init__(self, channels: int, *, aligned_timeout_s: float, unaligned: bool) -> None:
        """Start with nothing received from `channels` producers, 1 or more.

        `aligned_timeout_s`: seconds since the trigger after which a checkpoint is no longer aligned; 0: at once.
        `unaligned`: whether a checkpoint may be unaligned at all.
        """
        super().__init__()
        self.timeout_s = aligned_timeout_s
        self.unaligned = unaligned
        self.phase: AlignmentPhase = AlignmentPhase.IDLE
        self.channels = UndoDict[int, InputChannel](self.undo, dict.fromkeys(range(channels), InputChannel()))
        self.running: RunningCheckpoint | None = None
        self.latest = 0
        """The newest checkpoint that ended here, in any way."""
        self.ended = False
        """`ChannelsEnded` was returned."""

    @property
    def detail(self) -> str:
        """Which checkpoint runs, for errors."""
        return f", checkpoint {self.checkpoint}, newest that ended {self.latest}"

    @property
    def checkpoint(self) -> int | None:
        """The running checkpoint, None for none."""
        return None if self.running is None else self.running.number

    @property
    def deadline(self) -> float | None:
        """When `TimeoutChecked` is due, in seconds on the subtask's clock; None while nothing depends on the time."""
        if self.running is None or self.running.since is None or self.phase is not AlignmentPhase.ALIGNING:
            return None
        return self.running.since + self.timeout_s if self.may_switch else None

    @property
    def may_switch(self) -> bool:
        """Whether the running checkpoint may be unaligned."""
        return self.unaligned and self.running is not None and not self.running.close_files

    def may_consume(self, channel: int) -> bool:
        """Return whether the writer may take the next batch of a channel: one is there, and no barrier is before it."""
        found = self.channels[channel]
        return found.consumed < found.received and not found.blocked

    def may_start(self, checkpoint: int) -> bool:
        """Return whether a trigger of this checkpoint counts: neither it nor a newer one ended, and none newer runs."""
        return checkpoint > self.latest and (self.running is None or checkpoint >= self.running.number)

    def received(self, channel: int) -> int:
        """Return the sequence of the batch of a channel that arrives next."""
        return self.channels[channel].received

    def consumed(self, channel: int) -> int:
        """Return the sequence of the batch of a channel that the writer takes next."""
        return self.channels[channel].consumed


# --- of a producer --------------------------------------------------------------------------------------------------


class OutputPhase(MachineState):
    """The state of a channel's producer."""

    OPEN = "open"
    """Batches are put in."""
    ENDING = "ending"
    """The end was sent; batches wait, or are not written yet."""
    WRITTEN = "written"
    """The consumer has written everything."""


class OutputChannel(Machine[OutputEvent, OutputCommand]):
    """The producer's end of one channel."""

    def __init__(self, *, window_bytes: int, granted: bool = True) -> None:
        """Start empty.

        `window_bytes`: most bytes that are sent and not yet written by the consumer, > 0. `granted`: batches may be
        sent before the consumer's first `BatchesWritten`.
        """
        super().__init__()
        self.window_bytes = window_bytes
        self.granted = granted
        self.phase: OutputPhase = OutputPhase.OPEN
        self.sizes = UndoDict[int, int](self.undo)
        """By sequence: of each batch that is not written."""
        self.queued = 0
        """The sequence of the next batch that is put in."""
        self.sent = 0
        """The sequence of the next batch that is sent; those from here up to `queued` wait."""
        self.written = 0
        """The first batch that the consumer has not written: none before it is needed here."""
        self.waiting_bytes = 0
        """Bytes that wait here, for the limits of a channel and of a subtask."""
        self.under_way_bytes = 0
        """Bytes that are sent and not yet written."""
        self.barrier: Barrier | None = None
        """The newest, unless it has ended or overtaken."""
        self.latest = 0
        """The newest checkpoint that was seen."""

    @property
    def detail(self) -> str:
        """How far it is, for errors."""
        return f", {self.written} written, {self.sent} sent, {self.queued} queued, newest {self.latest}"

    def has_credit(self, size_bytes: int) -> bool:
        """Return whether a batch may be sent: it fits into the window, or is larger and nothing is under way."""
        fits = not self.under_way_bytes or self.under_way_bytes + size_bytes <= self.window_bytes
        return self.granted and fits
