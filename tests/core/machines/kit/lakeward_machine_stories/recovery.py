"""Stories of a recovery of two channels, of which memory takes four bytes."""

from __future__ import annotations

from lakeward.machines.recovery import (
    CheckpointRequested,
    ContentRequested,
    PieceRead,
    PieceRequested,
    ProducersConnected,
    Recovery,
    RecoveryEvent,
    RecoveryPhase,
    RecoveryStopped,
    RowsSpilled,
    SnapshotAborted,
    SnapshotStarted,
    SpillEnded,
)

NOT_READY, DRAINING = RecoveryPhase.NOT_READY, RecoveryPhase.DRAINING
NONE, STOPPED = RecoveryPhase.NONE, RecoveryPhase.STOPPED
READY = (RowsSpilled(), ProducersConnected())
DRAINED = (*READY, SpillEnded(), PieceRequested())
STORIES: tuple[tuple[RecoveryEvent, ...], ...] = (
    (),
    (RowsSpilled(),),
    (ProducersConnected(),),
    READY,
    (*READY, PieceRead(0, 1)),
    (*READY, PieceRead(0, 9)),
    (*READY, PieceRead(1, 9)),
    (*READY, PieceRead(1, 1), PieceRequested()),
    (*READY, PieceRead(0, 1), SpillEnded()),
    (*READY, PieceRead(0, 1), SpillEnded(), SnapshotStarted(1)),
    (*READY, SnapshotStarted(1)),
    (*READY, SnapshotStarted(1), SnapshotAborted(1)),
    (*READY, SpillEnded()),
    DRAINED,
    (*DRAINED, SnapshotStarted(1)),
    (*DRAINED, RecoveryStopped()),
    (RecoveryStopped(),),
    (*READY, SnapshotStarted(1), RecoveryStopped()),
)
TRIED: tuple[RecoveryEvent, ...] = (
    RowsSpilled(),
    ProducersConnected(),
    *(PieceRead(channel, 1) for channel in (0, 1, 2)),
    SpillEnded(),
    PieceRequested(),
    *(kind(number) for kind in (CheckpointRequested, SnapshotStarted, ContentRequested, SnapshotAborted)
      for number in (1, 2)),
    RecoveryStopped(),
)  # fmt: skip
ILLEGAL = {
    *((NOT_READY, event) for event in (PieceRead, SpillEnded, PieceRequested, SnapshotStarted, ContentRequested)),
    *((DRAINING, event) for event in (RowsSpilled, ProducersConnected)),
    *((NONE, event) for event in (RowsSpilled, ProducersConnected, PieceRead, SpillEnded, PieceRequested)),
    *((STOPPED, event) for event in (PieceRequested, SnapshotStarted, ContentRequested)),
}


def new() -> Recovery:
    """Nothing is read back."""
    return Recovery(2, memory_bytes=4)
