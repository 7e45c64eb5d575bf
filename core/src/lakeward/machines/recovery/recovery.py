"""Decides in which order restored rows are written, and what of them belongs to a checkpoint meanwhile. Pure.

Rules
* Nothing is drained before all rows are spilled and all producers are connected; until then checkpoints are refused.
* The worker reads one piece at a time from disk, beside the mailbox thread. A piece counts as delivered with its own
  step alone: `DeliverPiece` puts it into memory and commits it. So at any moment a row is in memory or in the spill's
  rest, never in both, never in neither.
* No piece is read ahead while memory holds `memory_bytes` or more; one piece may go beyond.
* A channel ends with its sentinel, once: behind its last piece, also where it had none. It is in recovery until the
  sentinel is consumed. Live rows wait for the sentinels of all channels, as splits are given out anew: live rows of a
  key may come through any channel.
* A checkpoint's snapshot puts a marker into each channel that is in recovery, and into no other. Its content are the
  pieces before the marker, then the rest of the spill. The marker goes with the content. Markers of older checkpoints,
  whose content nobody wanted, are dropped there, or by the writer that comes to them.
* A marker that is missing where it has to be fails the checkpoint, loudly.
* `TRANSITIONS` gives the next state; every state is looked up there.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import assert_never

from lakeward.machines.machine_state import next_state
from lakeward.machines.recovery.commands import (
    AcceptCheckpoints,
    DeliverPiece,
    DropSnapshot,
    FailMarkerMissing,
    FinishRecovery,
    KeepPieces,
    ReadPiece,
    RecoveryCommand,
    RefuseCheckpoint,
    SnapshotSpill,
    WakeWriter,
    WritePiece,
)
from lakeward.machines.recovery.events import (
    CheckpointRequested,
    ContentRequested,
    PieceRead,
    PieceRequested,
    ProducersConnected,
    RecoveryEvent,
    RecoveryStopped,
    RowsSpilled,
    SnapshotAborted,
    SnapshotStarted,
    SpillEnded,
)
from lakeward.machines.recovery.transitions import TRANSITIONS, RecoveryGuard, RecoveryPhase

_G = RecoveryGuard
_NOT_READY, _DRAINING = RecoveryPhase.NOT_READY, RecoveryPhase.DRAINING
_NONE, _STOPPED = RecoveryPhase.NONE, RecoveryPhase.STOPPED
_DrainEvent = RowsSpilled | ProducersConnected | PieceRead | SpillEnded | PieceRequested | RecoveryStopped


@dataclass(frozen=True, slots=True)
class _Piece:
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _Marker:
    checkpoint: int


@dataclass(frozen=True, slots=True)
class _Sentinel:
    """Nothing more comes in the channel."""


@dataclass(slots=True)
class _Channel:
    queue: deque[_Piece | _Marker | _Sentinel] = field(default_factory=deque)
    ended: bool = False
    """Its sentinel was put in."""
    recovered: bool = False
    """Its sentinel was consumed."""


class Recovery:
    """The recovery of one subtask."""

    def __init__(self, channels: int, *, memory_bytes: int) -> None:
        """Start with nothing read back.

        Args:
            channels: how many the restored checkpoint has, 0 or more; those without a row for us too.
            memory_bytes: of pieces in memory, from which on nothing is read ahead; > 0.
        """
        self._channels = [_Channel() for _ in range(channels)]
        self._memory_bytes = memory_bytes
        self._phase = _NOT_READY
        self._spilled = self._connected = False
        self._reading = self._spill_ended = False
        self._draining = 0
        """The first channel whose sentinel is not put in."""
        self._taking = 0
        """The first channel whose sentinel is not consumed."""
        self._held = self._held_bytes = 0
        """Pieces in memory, and their bytes."""
        self._snapshot: int | None = None
        """The checkpoint whose snapshot has started, and whose content nobody has asked for."""
        self._latest = 0
        """The newest checkpoint whose snapshot started, or that was aborted."""

    @property
    def phase(self) -> RecoveryPhase:
        """The machine's state."""
        return self._phase

    @property
    def can_take(self) -> bool:
        """Whether the writer has something to take: a piece, or what stands before the end."""
        if self._phase is not _DRAINING:
            return False
        return bool(self._channels[self._taking].queue) if self._channels else self._spill_ended

    @property
    def held_bytes(self) -> int:
        """Bytes of all pieces in memory."""
        return self._held_bytes

    def in_recovery(self, channel: int) -> bool:
        """Return whether a channel's rows are not all written.

        Args:
            channel: its number.
        """
        return self._phase is _DRAINING and not self._channels[channel].recovered

    def step(self, event: RecoveryEvent) -> tuple[RecoveryCommand, ...]:
        """Take one event.

        Args:
            event: what happened.

        Returns:
            What is to be done, in this order.

        Raises:
            IllegalEventError: no row for this event; nothing was changed.
        """
        guard = self._guard(event)
        detail = f", {self._taking} of {len(self._channels)} channels recovered, newest {self._latest}"
        before = self._phase
        self._phase = next_state("recovery", TRANSITIONS, before, event, guard, detail=detail)
        if isinstance(event, CheckpointRequested):
            return (RefuseCheckpoint(event.checkpoint),) if before in {_NOT_READY, _STOPPED} else ()
        if before is _STOPPED:
            return ()
        if isinstance(event, SnapshotStarted | ContentRequested | SnapshotAborted):
            return self._checkpoint(event)
        return self._drain(event, guard)

    def _drain(self, event: _DrainEvent, guard: RecoveryGuard) -> tuple[RecoveryCommand, ...]:
        match event:
            case RowsSpilled():
                self._spilled = True
                commands = self._begin(guard)
            case ProducersConnected():
                self._connected = True
                commands = self._begin(guard)
            case PieceRead():
                commands = self._deliver(event)
            case SpillEnded():
                commands = self._end()
            case PieceRequested():
                commands = self._take(guard)
            case RecoveryStopped():
                commands = self._forget()
            case _:
                assert_never(event)
        return commands

    def _checkpoint(self, event: SnapshotStarted | ContentRequested | SnapshotAborted) -> tuple[RecoveryCommand, ...]:
        match event:
            case SnapshotStarted():
                return self._start(event.checkpoint)
            case ContentRequested():
                return self._content(event.checkpoint)
            case SnapshotAborted():
                return self._abort(event.checkpoint)
            case _:
                assert_never(event)

    def _guard(self, event: RecoveryEvent) -> RecoveryGuard:
        allowed, guard = True, _G.UNCHANGED
        match event:
            case _ if self._phase is _STOPPED:
                pass
            case RowsSpilled():
                allowed = not self._spilled
                guard = _G.READY if self._connected else guard
            case ProducersConnected():
                allowed = not self._connected
                guard = _G.READY if self._spilled else guard
            case PieceRead():
                allowed = self._reading and self._draining <= event.channel < len(self._channels)
            case SpillEnded():
                allowed = self._reading
            case PieceRequested():
                allowed = self.can_take
                guard = _G.DRAINED if allowed and self._is_last() else guard
            case _:
                pass
        return guard if allowed else _G.NOT_ALLOWED

    # --- the drain ------------------------------------------------------------------------------------------

    def _begin(self, guard: RecoveryGuard) -> tuple[RecoveryCommand, ...]:
        return (AcceptCheckpoints(), *self._read_on()) if guard is _G.READY else ()

    def _read_on(self) -> tuple[RecoveryCommand, ...]:
        if self._reading or self._spill_ended or self._held_bytes >= self._memory_bytes:
            return ()
        self._reading = True
        return (ReadPiece(),)

    def _deliver(self, event: PieceRead) -> tuple[RecoveryCommand, ...]:
        self._reading = False
        self._end_channels(event.channel)
        self._channels[event.channel].queue.append(_Piece(event.size_bytes))
        self._held_bytes += event.size_bytes
        self._held += 1
        return (DeliverPiece(event.channel), WakeWriter(), *self._read_on())

    def _end(self) -> tuple[RecoveryCommand, ...]:
        self._reading, self._spill_ended = False, True
        self._end_channels(len(self._channels))
        return (WakeWriter(),)

    def _end_channels(self, before: int) -> None:
        """Put the sentinel into each channel up to one."""
        for channel in self._channels[self._draining : before]:
            channel.queue.append(_Sentinel())
            channel.ended = True
        self._draining = max(self._draining, before)

    def _take(self, guard: RecoveryGuard) -> tuple[RecoveryCommand, ...]:
        """Take what is next, up to one piece. Markers that nobody asked about go without a trace."""
        while self._taking < len(self._channels) and (queue := self._channels[self._taking].queue):
            match queue.popleft():
                case _Piece(size_bytes):
                    self._held_bytes -= size_bytes
                    self._held -= 1
                    return (WritePiece(self._taking), *self._read_on())
                case _Sentinel():
                    self._channels[self._taking].recovered = True
                    self._taking += 1
                case _Marker():
                    pass
        return (*self._forget(), FinishRecovery()) if guard is _G.DRAINED else ()

    def _is_last(self) -> bool:
        """Return whether nothing but sentinels and old markers is left."""
        return self._spill_ended and self._held == 0

    # --- checkpoints ----------------------------------------------------------------------------------------

    def _start(self, checkpoint: int) -> tuple[RecoveryCommand, ...]:
        if self._phase is not _DRAINING or checkpoint <= self._latest:
            return ()
        dropped = self._forget()
        self._latest = self._snapshot = checkpoint
        for channel in self._channels:
            if not channel.recovered:
                self._mark(channel, checkpoint)
        return (*dropped, SnapshotSpill(checkpoint))

    def _mark(self, channel: _Channel, checkpoint: int) -> None:
        """Put the marker behind the last piece; the sentinel stays the last."""
        channel.queue.insert(len(channel.queue) - channel.ended, _Marker(checkpoint))

    def _content(self, checkpoint: int) -> tuple[RecoveryCommand, ...]:
        if self._snapshot != checkpoint:
            return ()
        self._snapshot = None
        kept: list[RecoveryCommand] = []
        missing: list[RecoveryCommand] = []
        for number, channel in enumerate(self._channels):
            if channel.recovered:
                continue
            count = self._collect(channel, checkpoint)
            if count is None:
                missing.append(FailMarkerMissing(checkpoint, number))
            elif count:
                kept.append(KeepPieces(checkpoint, number, count))
        return (missing[0], DropSnapshot(checkpoint)) if missing else tuple(kept)

    def _collect(self, channel: _Channel, checkpoint: int) -> int | None:
        """Count the pieces before a checkpoint's marker, and remove it and older ones; None where it is missing."""
        count = 0
        found: int | None = None
        left: deque[_Piece | _Marker | _Sentinel] = deque()
        for one in channel.queue:
            if isinstance(one, _Marker):
                found = count if one.checkpoint == checkpoint else found
                continue
            count += isinstance(one, _Piece)
            left.append(one)
        channel.queue = left
        return found

    def _abort(self, checkpoint: int) -> tuple[RecoveryCommand, ...]:
        self._latest = max(self._latest, checkpoint)
        return self._forget() if self._snapshot is not None and self._snapshot <= checkpoint else ()

    def _forget(self) -> tuple[RecoveryCommand, ...]:
        checkpoint, self._snapshot = self._snapshot, None
        return () if checkpoint is None else (DropSnapshot(checkpoint),)
