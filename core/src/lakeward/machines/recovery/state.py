"""What is known of the restored rows of one subtask: where each channel is, and what memory holds."""

from __future__ import annotations

from msgspec import Struct

from lakeward.machines.machine import Machine, MachineState, UndoDict
from lakeward.machines.recovery.messages import RecoveryCommand, RecoveryEvent


class RecoveryPhase(MachineState):
    """How far a subtask is with what was restored."""

    NOT_READY = "not_ready"
    """Rows are read back, or channels are opened: no checkpoint can be taken."""
    DRAINING = "draining"
    """Restored rows are written, ahead of all live ones; a checkpoint holds what is not written yet."""
    NONE = "none"
    """Everything restored is written: there is nothing to add to a checkpoint."""
    STOPPED = "stopped"
    """It failed, or the subtask ends."""


class HeldPiece(Struct, frozen=True):
    """A batch of restored rows in memory."""

    size_bytes: int


class Marker(Struct, frozen=True):
    """The cut of a checkpoint."""

    checkpoint: int


class Sentinel(Struct, frozen=True):
    """Nothing more comes in the channel."""


Item = HeldPiece | Marker | Sentinel


class RestoredRows(Machine[RecoveryEvent, RecoveryCommand]):
    """The channels of one restored checkpoint."""

    def __init__(self, channels: int, *, memory_bytes: int) -> None:
        """Start with nothing read back.

        `channels`: how many the restored checkpoint has, 0 or more; those without a row for us too. `memory_bytes`: of
        pieces in memory, from which on nothing is read ahead; > 0.
        """
        super().__init__()
        self.channels = channels
        self.memory_bytes = memory_bytes
        self.phase: RecoveryPhase = RecoveryPhase.NOT_READY
        self.spilled = self.connected = False
        self.reading = self.spill_ended = False
        self.queues = UndoDict[int, tuple[Item, ...]](self.undo, dict.fromkeys(range(channels), ()))
        """By channel: what is in memory."""
        self.draining = 0
        """The first channel whose sentinel is not put in."""
        self.taking = 0
        """The first channel whose sentinel is not consumed: it and those after it are in recovery."""
        self.held = self.held_bytes = 0
        """Pieces in memory, and their bytes."""
        self.snapshot: int | None = None
        """The checkpoint whose snapshot has started, and whose content nobody has asked for."""
        self.latest = 0
        """The newest checkpoint whose snapshot started, or that was aborted."""

    @property
    def detail(self) -> str:
        """How far it is, for errors."""
        return f", {self.taking} of {self.channels} channels recovered, newest {self.latest}"

    @property
    def can_take(self) -> bool:
        """Whether the writer has something to take: a piece, or what stands before the end."""
        if self.phase is not RecoveryPhase.DRAINING:
            return False
        return bool(self.queues[self.taking]) if self.channels else self.spill_ended

    def in_recovery(self, channel: int) -> bool:
        """Return whether a channel's rows are not all written."""
        return self.phase is RecoveryPhase.DRAINING and channel >= self.taking

    def put(self, channel: int, piece: HeldPiece) -> None:
        """Put a piece into memory; the channels before it end."""
        self.end_channels(channel)
        self.queues[channel] += (piece,)
        self.held += 1
        self.held_bytes += piece.size_bytes

    def end_channels(self, before: int) -> None:
        """Put the sentinel into each channel up to one."""
        for channel in range(self.draining, before):
            self.queues[channel] += (Sentinel(),)
        self.draining = max(self.draining, before)

    def take_piece(self) -> HeldPiece | None:
        """Take what is next, up to one piece. Markers that nobody asked about go without a trace."""
        while self.taking < self.channels and self.queues[self.taking]:
            found, *rest = self.queues[self.taking]
            self.queues[self.taking] = tuple(rest)
            if isinstance(found, HeldPiece):
                self.held -= 1
                self.held_bytes -= found.size_bytes
                return found
            self.taking += isinstance(found, Sentinel)
        return None

    def mark(self, channel: int, checkpoint: int) -> None:
        """Put the marker behind the last piece; the sentinel stays the last."""
        queue = self.queues[channel]
        place = len(queue) - (channel < self.draining)
        self.queues[channel] = (*queue[:place], Marker(checkpoint), *queue[place:])

    def collect(self, channel: int, checkpoint: int) -> int | None:
        """Count the pieces before a checkpoint's marker, and remove it and older ones; None where it is missing."""
        count = 0
        found: int | None = None
        for one in self.queues[channel]:
            if isinstance(one, Marker):
                found = count if one.checkpoint == checkpoint else found
            count += isinstance(one, HeldPiece)
        self.queues[channel] = tuple(one for one in self.queues[channel] if not isinstance(one, Marker))
        return found
