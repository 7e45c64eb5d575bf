"""The rules of a subtask's recovery, written out by hand: what it does next, and what it must not do.

Nothing here is taken from the machine's own table, so a wrong row of that table is a failure here.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from lakeward.errors import IllegalEventError
from lakeward.machines.recovery import (
    AcceptCheckpoints,
    CheckpointRequested,
    ContentRequested,
    DeliverPiece,
    DropSnapshot,
    FinishRecovery,
    KeepPieces,
    PieceRead,
    PieceRequested,
    ProducersConnected,
    ReadPiece,
    Recovery,
    RecoveryCommand,
    RecoveryEvent,
    RecoveryPhase,
    RecoveryStopped,
    RefuseCheckpoint,
    RowsSpilled,
    SnapshotAborted,
    SnapshotSpill,
    SnapshotStarted,
    SpillEnded,
    WakeWriter,
    WritePiece,
)

ILLEGAL = None
NOT_READY, DRAINING = RecoveryPhase.NOT_READY, RecoveryPhase.DRAINING
NONE, STOPPED = RecoveryPhase.NONE, RecoveryPhase.STOPPED
MEMORY_BYTES = 4
SPILLED, CONNECTED, STOP = RowsSpilled(), ProducersConnected(), RecoveryStopped()
TAKE, END = PieceRequested(), SpillEnded()
READY = (SPILLED, CONNECTED)
PIECE = (*READY, PieceRead(0, 1))
"""A piece of channel 0 is in memory, and the next one is being read."""
FULL = (*READY, PieceRead(0, 4))
ENDED = (*PIECE, END)
"""The spill has ended; one piece is in memory."""
DRAINED = (*ENDED, TAKE, TAKE)
DELIVERED = (DeliverPiece(0), WakeWriter())


class Row(NamedTuple):
    """A rule of a recovery of two channels: after a story, an event leads to a phase and to commands.

    Without commands it is illegal.
    """

    rule: str
    story: tuple[RecoveryEvent, ...]
    event: RecoveryEvent
    phase: RecoveryPhase
    commands: tuple[RecoveryCommand, ...] | None


ROWS = (
    # --- before it is ready -----------------------------------------------------------------------------------------
    Row("nothing is drained before the producers are connected", (), SPILLED, NOT_READY, ()),
    Row("nothing is drained before all rows are spilled", (), CONNECTED, NOT_READY, ()),
    Row(
        "connected and spilled, it accepts checkpoints and reads the first piece",
        (SPILLED,),
        CONNECTED,
        DRAINING,
        (AcceptCheckpoints(), ReadPiece()),
    ),
    Row(
        "spilled and connected, it accepts checkpoints and reads the first piece",
        (CONNECTED,),
        SPILLED,
        DRAINING,
        (AcceptCheckpoints(), ReadPiece()),
    ),
    Row("rows that are spilled twice do not stand for connected producers", (SPILLED,), SPILLED, NOT_READY, ILLEGAL),
    Row("producers that connect twice do not stand for spilled rows", (CONNECTED,), CONNECTED, NOT_READY, ILLEGAL),
    Row("a checkpoint before it is ready is refused", (SPILLED,), CheckpointRequested(1), NOT_READY,
        (RefuseCheckpoint(1),)),
    Row("no snapshot is taken before it is ready", (SPILLED,), SnapshotStarted(1), NOT_READY, ILLEGAL),
    Row("no piece is delivered before it is ready", (SPILLED,), PieceRead(0, 1), NOT_READY, ILLEGAL),
    Row("the writer takes nothing before it is ready", (SPILLED,), TAKE, NOT_READY, ILLEGAL),
    Row("an abort before it is ready changes nothing", (SPILLED,), SnapshotAborted(1), NOT_READY, ()),
    Row(
        "a checkpoint that was aborted before it is ready holds nothing later",
        (SnapshotAborted(1), *READY),
        SnapshotStarted(1),
        DRAINING,
        (),
    ),
    # --- the drain --------------------------------------------------------------------------------------------------
    Row("a piece is delivered in one step, and the next one is read", READY, PieceRead(0, 1), DRAINING,
        (*DELIVERED, ReadPiece())),
    Row("no piece is read ahead while memory is full", READY, PieceRead(0, 4), DRAINING, DELIVERED),
    Row("the next piece is read once the writer has taken one", FULL, TAKE, DRAINING, (WritePiece(0), ReadPiece())),
    Row("only one piece is read at a time", PIECE, TAKE, DRAINING, (WritePiece(0),)),
    Row("a piece that nobody asked for is illegal", FULL, PieceRead(0, 1), DRAINING, ILLEGAL),
    Row("a spill ends only where a piece was asked for", FULL, END, DRAINING, ILLEGAL),
    Row("a piece of a channel that has ended is illegal", (*READY, PieceRead(1, 1)), PieceRead(0, 1), DRAINING,
        ILLEGAL),
    Row("a piece of a channel that there is not is illegal", READY, PieceRead(2, 1), DRAINING, ILLEGAL),
    Row("nothing is read after the spill has ended", (*READY, END), PieceRead(1, 1), DRAINING, ILLEGAL),
    Row("the writer takes nothing that is not there", READY, TAKE, DRAINING, ILLEGAL),
    Row("rows are spilled once", READY, SPILLED, DRAINING, ILLEGAL),
    Row("producers connect once", READY, CONNECTED, DRAINING, ILLEGAL),
    Row("the end of the spill wakes the writer, also without a piece", READY, END, DRAINING, (WakeWriter(),)),
    Row("the end of the spill does not finish what memory holds", PIECE, END, DRAINING, (WakeWriter(),)),
    Row("the last piece does not finish before it is written", ENDED, TAKE, DRAINING, (WritePiece(0),)),
    Row("all sentinels taken, the recovery is finished", (*ENDED, TAKE), TAKE, NONE, (FinishRecovery(),)),
    Row("channels without a row finish as well", (*READY, END), TAKE, NONE, (FinishRecovery(),)),
    Row(
        "the sentinels of some channels finish nothing",
        (*READY, PieceRead(0, 1), PieceRead(1, 1), TAKE),
        TAKE,
        DRAINING,
        (WritePiece(1),),
    ),
    Row("pieces are written channel by channel", (*READY, PieceRead(0, 1), PieceRead(1, 1)), TAKE, DRAINING,
        (WritePiece(0),)),
    # --- checkpoints meanwhile --------------------------------------------------------------------------------------
    Row("a checkpoint during the drain is not refused", PIECE, CheckpointRequested(1), DRAINING, ()),
    Row("a snapshot keeps the rest of the spill", PIECE, SnapshotStarted(1), DRAINING, (SnapshotSpill(1),)),
    Row(
        "its content are the pieces in memory before its marker",
        (*PIECE, SnapshotStarted(1), PieceRead(0, 1)),
        ContentRequested(1),
        DRAINING,
        (KeepPieces(1, 0, 1),),
    ),
    Row(
        "a piece that the writer has taken is in no checkpoint",
        (*PIECE, TAKE, SnapshotStarted(1)),
        ContentRequested(1),
        DRAINING,
        (),
    ),
    Row(
        "what memory holds after the spill has ended is in a checkpoint",
        (*ENDED, SnapshotStarted(1)),
        ContentRequested(1),
        DRAINING,
        (KeepPieces(1, 0, 1),),
    ),
    Row("the content is given once", (*PIECE, SnapshotStarted(1), ContentRequested(1)), ContentRequested(1), DRAINING,
        ()),
    Row("the content of another checkpoint is not given", (*PIECE, SnapshotStarted(2)), ContentRequested(1), DRAINING,
        ()),
    Row(
        "an older content that is asked for takes nothing from the newer checkpoint",
        (*PIECE, SnapshotStarted(2), ContentRequested(1)),
        ContentRequested(2),
        DRAINING,
        (KeepPieces(2, 0, 1),),
    ),
    Row(
        "a newer snapshot drops the older one",
        (*PIECE, SnapshotStarted(1)),
        SnapshotStarted(2),
        DRAINING,
        (DropSnapshot(1), SnapshotSpill(2)),
    ),
    Row(
        "a newer checkpoint holds what is before its own marker, and not only what is before an older one",
        (*PIECE, SnapshotStarted(1), PieceRead(0, 1), SnapshotStarted(2)),
        ContentRequested(2),
        DRAINING,
        (KeepPieces(2, 0, 2),),
    ),
    Row("an older snapshot does not start after a newer one", (*PIECE, SnapshotStarted(2)), SnapshotStarted(1),
        DRAINING, ()),
    Row("a snapshot does not start twice", (*PIECE, SnapshotStarted(1)), SnapshotStarted(1), DRAINING, ()),
    Row("an abort drops its snapshot", (*PIECE, SnapshotStarted(1)), SnapshotAborted(1), DRAINING, (DropSnapshot(1),)),
    Row("an abort of a newer checkpoint drops the older snapshot", (*PIECE, SnapshotStarted(1)), SnapshotAborted(2),
        DRAINING, (DropSnapshot(1),)),
    Row("an older checkpoint's abort drops nothing", (*PIECE, SnapshotStarted(2)), SnapshotAborted(1), DRAINING, ()),
    Row(
        "a snapshot whose content was given is not dropped by an abort",
        (*PIECE, SnapshotStarted(1), ContentRequested(1)),
        SnapshotAborted(1),
        DRAINING,
        (),
    ),
    Row(
        "the content of an aborted checkpoint is not given",
        (*PIECE, SnapshotStarted(1), SnapshotAborted(1)),
        ContentRequested(1),
        DRAINING,
        (),
    ),
    Row("a checkpoint that was aborted does not start again", (*PIECE, SnapshotAborted(1)), SnapshotStarted(1),
        DRAINING, ()),
    Row(
        "an older checkpoint's late abort does not let a newer one start again",
        (*PIECE, SnapshotAborted(2), SnapshotAborted(1)),
        SnapshotStarted(2),
        DRAINING,
        (),
    ),
    Row(
        "a checkpoint after one that was aborted holds everything",
        (*PIECE, SnapshotStarted(1), SnapshotAborted(1), SnapshotStarted(2)),
        ContentRequested(2),
        DRAINING,
        (KeepPieces(2, 0, 1),),
    ),
    Row(
        "a marker that nobody asked about does not stop the writer",
        (*READY, PieceRead(0, 1), END, SnapshotStarted(1), TAKE),
        TAKE,
        NONE,
        (DropSnapshot(1), FinishRecovery()),
    ),
    # --- afterwards -------------------------------------------------------------------------------------------------
    Row("a checkpoint after the recovery is not refused", DRAINED, CheckpointRequested(1), NONE, ()),
    Row("a checkpoint after the recovery keeps no spill", DRAINED, SnapshotStarted(1), NONE, ()),
    Row("a checkpoint after the recovery keeps no piece", (*DRAINED, SnapshotStarted(1)), ContentRequested(1), NONE,
        ()),
    Row("an abort after the recovery drops nothing", (*DRAINED, SnapshotStarted(1)), SnapshotAborted(1), NONE, ()),
    Row("nothing is delivered after the recovery", DRAINED, PieceRead(1, 1), NONE, ILLEGAL),
    Row("the recovery is finished once", DRAINED, TAKE, NONE, ILLEGAL),
    Row("the spill ends once", DRAINED, END, NONE, ILLEGAL),
    Row("a stop after the recovery gives nothing back", DRAINED, STOP, STOPPED, ()),
    # --- stopped ----------------------------------------------------------------------------------------------------
    Row("a stop before it is ready drains nothing", (SPILLED,), STOP, STOPPED, ()),
    Row("a stop gives back the spill that was kept", (*PIECE, SnapshotStarted(1)), STOP, STOPPED, (DropSnapshot(1),)),
    Row("a stop gives the spill back once", (*PIECE, SnapshotStarted(1), STOP), STOP, STOPPED, ()),
    Row("an abort after the stop gives nothing back again", (*PIECE, SnapshotStarted(1), STOP), SnapshotAborted(1),
        STOPPED, ()),
    Row("a piece that was under way at the stop is not delivered", (*READY, STOP), PieceRead(0, 1), STOPPED, ()),
    Row("an end that was under way at the stop wakes nobody", (*READY, STOP), END, STOPPED, ()),
    Row("the writer takes nothing after the stop", (*PIECE, STOP), TAKE, STOPPED, ILLEGAL),
    Row("no snapshot is taken after the stop", (*PIECE, STOP), SnapshotStarted(1), STOPPED, ILLEGAL),
    Row("a checkpoint after the stop is refused", (*PIECE, STOP), CheckpointRequested(1), STOPPED,
        (RefuseCheckpoint(1),)),
    Row("what is spilled after the stop is not drained", (CONNECTED, STOP), SPILLED, STOPPED, ()),
    Row("producers that connect after the stop are not drained", (SPILLED, STOP), CONNECTED, STOPPED, ()),
)  # fmt: skip


def observed(machine: Recovery) -> tuple[object, ...]:
    """All that a recovery shows."""
    channels = [machine.in_recovery(channel) for channel in (0, 1)]
    return (machine.phase, machine.can_take, machine.held_bytes, channels)


@pytest.mark.parametrize("row", ROWS, ids=[row.rule for row in ROWS])
def test_a_recovery_keeps_this_rule(row: Row) -> None:
    machine = Recovery(2, memory_bytes=MEMORY_BYTES)
    for event in row.story:
        machine.step(event)
    if row.commands is ILLEGAL:
        before = observed(machine)
        with pytest.raises(IllegalEventError):
            machine.step(row.event)
        assert observed(machine) == before
    else:
        assert machine.step(row.event) == row.commands
    assert machine.phase is row.phase
