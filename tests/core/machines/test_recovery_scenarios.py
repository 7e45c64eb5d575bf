"""Cases of recoveries, told by name; numbers are those of the catalogue of cases."""

from __future__ import annotations

import pytest

from lakeward.errors import IllegalEventError
from lakeward.machines.recovery import (
    AcceptCheckpoints,
    CheckpointRequested,
    ContentRequested,
    DeliverPiece,
    DropSnapshot,
    FailMarkerMissing,
    FinishRecovery,
    KeepPieces,
    PieceRead,
    PieceRequested,
    ProducersConnected,
    ReadPiece,
    Recovery,
    RecoveryCommand,
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


def draining(channels: int = 2, memory_bytes: int = 10) -> Recovery:
    machine = Recovery(channels, memory_bytes=memory_bytes)
    machine.step(RowsSpilled())
    assert machine.step(ProducersConnected()) == (AcceptCheckpoints(), ReadPiece())
    return machine


def cut(machine: Recovery, checkpoint: int) -> tuple[RecoveryCommand, ...]:
    return (*machine.step(SnapshotStarted(checkpoint)), *machine.step(ContentRequested(checkpoint)))


def test_31_channels_without_rows_have_a_sentinel_and_the_writer_is_woken_for_it() -> None:
    machine = draining(channels=3)
    assert not machine.can_take
    assert machine.step(SpillEnded()) == (WakeWriter(),)
    assert [machine.in_recovery(channel) for channel in range(3)] == [True] * 3
    assert machine.step(PieceRequested()) == (FinishRecovery(),)
    assert machine.phase is RecoveryPhase.NONE
    assert not machine.in_recovery(0)


def test_31_without_any_channel_the_recovery_ends_as_well() -> None:
    machine = draining(channels=0)
    assert not machine.can_take
    assert machine.step(SpillEnded()) == (WakeWriter(),)
    assert machine.step(PieceRequested()) == (FinishRecovery(),)


@pytest.mark.parametrize("before", [(), (RowsSpilled(),), (ProducersConnected(),)])
def test_32_a_checkpoint_before_it_is_ready_is_refused_and_a_later_one_is_not(before: tuple[RowsSpilled, ...]) -> None:
    machine = Recovery(1, memory_bytes=1)
    for event in before:
        machine.step(event)
    assert machine.step(CheckpointRequested(1)) == (RefuseCheckpoint(1),)
    machine = draining()
    assert machine.step(CheckpointRequested(2)) == ()
    assert cut(machine, 2) == (SnapshotSpill(2),)


def test_35_nothing_is_drained_before_all_producers_are_connected() -> None:
    machine = Recovery(1, memory_bytes=10)
    assert machine.step(RowsSpilled()) == ()
    with pytest.raises(IllegalEventError):
        machine.step(PieceRead(0, 1))
    assert machine.step(ProducersConnected()) == (AcceptCheckpoints(), ReadPiece())


def test_62_no_piece_is_read_while_memory_is_full_and_the_next_once_the_writer_took_one() -> None:
    machine = draining(channels=1, memory_bytes=3)
    assert machine.step(PieceRead(0, 2)) == (DeliverPiece(0), WakeWriter(), ReadPiece())
    assert machine.step(PieceRead(0, 2)) == (DeliverPiece(0), WakeWriter())
    assert machine.held_bytes == 4
    assert machine.step(PieceRequested()) == (WritePiece(0), ReadPiece())


def test_64_a_row_that_the_writer_took_before_the_cut_is_in_no_part_and_one_in_memory_is_in_one() -> None:
    machine = draining(channels=1)
    for _ in range(3):
        machine.step(PieceRead(0, 1))
    machine.step(PieceRequested())
    assert cut(machine, 1) == (SnapshotSpill(1), KeepPieces(1, 0, 2))


def test_65_a_channel_that_is_delivered_and_not_written_has_its_marker() -> None:
    machine = draining()
    machine.step(PieceRead(0, 1))
    machine.step(PieceRead(1, 1))
    assert cut(machine, 1) == (SnapshotSpill(1), KeepPieces(1, 0, 1), KeepPieces(1, 1, 1))
    machine.step(PieceRequested())
    machine.step(PieceRequested())
    assert not machine.in_recovery(0)
    assert machine.in_recovery(1), "its sentinel is not put in"
    assert cut(machine, 2) == (SnapshotSpill(2),)


def test_69_between_the_end_of_the_drain_and_the_last_row_a_checkpoint_holds_what_memory_holds() -> None:
    machine = draining(channels=1)
    machine.step(PieceRead(0, 1))
    machine.step(PieceRead(0, 1))
    machine.step(SpillEnded())
    machine.step(PieceRequested())
    assert machine.phase is RecoveryPhase.DRAINING
    assert cut(machine, 1) == (SnapshotSpill(1), KeepPieces(1, 0, 1))
    machine.step(PieceRequested())
    assert machine.step(PieceRequested()) == (FinishRecovery(),)
    assert cut(machine, 2) == ()


def test_71_with_room_for_one_piece_everything_is_drained_whatever_checkpoints_come_between() -> None:
    machine = draining(channels=1, memory_bytes=1)
    for number in range(1, 6):
        assert machine.step(PieceRead(0, 1)) == (DeliverPiece(0), WakeWriter())
        assert cut(machine, number) == (SnapshotSpill(number), KeepPieces(number, 0, 1))
        assert machine.step(PieceRequested()) == (WritePiece(0), ReadPiece())
    machine.step(SpillEnded())
    assert machine.step(PieceRequested()) == (FinishRecovery(),)


def test_a_piece_that_is_delivered_behind_the_marker_is_the_spills() -> None:
    machine = draining(channels=1)
    machine.step(PieceRead(0, 1))
    assert machine.step(SnapshotStarted(1)) == (SnapshotSpill(1),)
    machine.step(PieceRead(0, 1))
    assert machine.step(ContentRequested(1)) == (KeepPieces(1, 0, 1),)


def test_73_after_an_abort_the_next_checkpoint_holds_everything() -> None:
    machine = draining(channels=1)
    machine.step(PieceRead(0, 1))
    machine.step(SnapshotStarted(1))
    assert machine.step(SnapshotAborted(1)) == (DropSnapshot(1),)
    assert machine.step(SnapshotAborted(1)) == ()
    machine.step(PieceRead(0, 1))
    assert cut(machine, 2) == (SnapshotSpill(2), KeepPieces(2, 0, 2))


def test_74_a_newer_checkpoint_supersedes_an_older_one() -> None:
    machine = draining(channels=1)
    machine.step(PieceRead(0, 1))
    machine.step(SnapshotStarted(1))
    assert machine.step(SnapshotStarted(2)) == (DropSnapshot(1), SnapshotSpill(2))
    assert machine.step(ContentRequested(1)) == ()
    assert machine.step(ContentRequested(2)) == (KeepPieces(2, 0, 1),)
    assert machine.step(SnapshotStarted(2)) == ()
    assert machine.step(SnapshotStarted(1)) == ()


def test_75_a_marker_that_nobody_asked_about_goes_unseen() -> None:
    machine = draining(channels=1)
    machine.step(SnapshotStarted(1))
    machine.step(SnapshotAborted(1))
    machine.step(PieceRead(0, 1))
    machine.step(SpillEnded())
    assert machine.step(PieceRequested()) == (WritePiece(0),)
    assert machine.step(PieceRequested()) == (FinishRecovery(),)


def test_76_a_drain_that_fails_ends_everything_and_gives_the_spill_back() -> None:
    machine = draining(channels=1)
    machine.step(PieceRead(0, 1))
    machine.step(SnapshotStarted(1))
    assert machine.step(RecoveryStopped()) == (DropSnapshot(1),)
    assert not machine.can_take
    assert machine.step(PieceRead(0, 1)) == (), "what was under way comes late"
    assert machine.step(CheckpointRequested(2)) == (RefuseCheckpoint(2),)
    assert machine.step(RecoveryStopped()) == ()


def test_79_a_marker_that_is_missing_fails_the_checkpoint_by_name() -> None:
    """It cannot be missing by any order of events, so the test takes it away."""
    machine = draining()
    machine.step(SnapshotStarted(1))
    machine.queues[1] = ()
    assert machine.step(ContentRequested(1)) == (FailMarkerMissing(1, 1), DropSnapshot(1))


def test_pieces_are_delivered_in_the_order_of_their_channels() -> None:
    machine = draining()
    machine.step(PieceRead(1, 1))
    with pytest.raises(IllegalEventError):
        machine.step(PieceRead(0, 1))
