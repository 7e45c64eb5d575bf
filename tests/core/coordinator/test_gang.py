"""A round whose subtasks exchange rows: they start together, are lost together and are restored together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest
from msgspec import structs

from lakeward.coordinator.checkpoints.contents import CheckpointContents
from lakeward.errors import CorruptFileError
from lakeward.model.checkpoints import BlockedEvent, Origin, SplitProgress, SubtaskSnapshot
from lakeward.model.events import (
    AckClose,
    AssignSplits,
    CheckpointAborted,
    Close,
    Connected,
    DeclineCheckpoint,
    Deploy,
    DeployRecovery,
    Failed,
    Heartbeat,
    NoMoreSplits,
    Open,
    Progress,
    Register,
    RequestSplit,
    SubtaskDone,
    TriggerCheckpoint,
    WriterFinished,
)
from lakeward.model.exchange import ExchangeFigures, ExchangeState, OpenRows, Segment
from lakeward.model.results import LakeFile, WriteResult
from lakeward.model.settings import CheckpointSettings
from lakeward.model.splits import SnapshotSplit
from lakeward.model.status import ExchangeReport
from lakeward_service_kit.checkpoint_values import reference, round_snapshot
from lakeward_service_kit.gang_world import BUCKETS, INTERVAL_S, SPLITS, GangWorld, Member, gang_world
from lakeward_service_kit.rounds import RecordingConnection

if TYPE_CHECKING:
    from pathlib import Path

A, B = LakeFile("w/a.parquet", "data", 60, 10), LakeFile("w/b.parquet", "data", 140, 10)
FENCE_S = 16.0
OPEN = OpenRows(b"day", (Segment("segments/1-0-1-0.arrow", 40, 400, 7),))


@pytest.fixture
def world(tmp_path: Path) -> GangWorld:
    """A gang of two that was launched; two splits of 100 rows."""
    return gang_world(tmp_path)


def runs(world: GangWorld) -> bool:
    """Return whether the job has to be cancelled when its round ends."""
    return world.job.running


def store_checkpoint(world: GangWorld, members: list[Member]) -> tuple[ExchangeState, ...]:
    """Complete a checkpoint in which 60 rows of the first split are in a closed file, and 40 in an open one."""
    world.start_checkpoint(members)
    states = (members[0].state(100, (A,), open_rows=(OPEN,)), members[1].state(0))
    progress = SplitProgress(SPLITS[0], 100, (), 100, 5, empty_offsets=0)
    members[0].take_part(states[0], (progress,))
    members[1].take_part(states[1], (SplitProgress(SPLITS[1], 0, (), 0, -1, empty_offsets=0),))
    return states


# --- gathering --------------------------------------------------------------------------------------------------------


def test_nobody_is_deployed_before_all_are_there_and_each_is_told_where_all_are(world: GangWorld) -> None:
    second = Member(world, 1)
    assert [one.event for one in second.connection.sent] == [Heartbeat(acked=0)]
    assert (world.job.subtasks.there, world.job.subtasks.slots.asked) == (1, 2)
    world.round.tick()
    assert world.job.waits_for == "waiting for Spark: 1 of 2 slots"
    first = Member(world, 0)
    assert world.job.waits_for == ""
    for member in (first, second):
        exchange = member.deployed.exchange
        assert exchange is not None
        assert exchange.addresses == ["node-0:1", "node-1:1"]
        assert exchange.restore == []
        assert (exchange.open_files, exchange.open_rows_bytes) == (8, 100)


def test_a_task_that_registers_again_before_the_deployment_takes_its_place(world: GangWorld) -> None:
    replaced, again, other = Member(world, 0), Member(world, 0), Member(world, 1)
    assert replaced.cancelled
    assert replaced.connection.closed
    assert again.deployed.attempt != other.deployed.attempt
    assert world.jobs.cancelled == []


def test_a_task_that_disconnects_before_the_deployment_is_awaited(world: GangWorld) -> None:
    gone = Member(world, 0)
    assert gone.key is not None
    world.round.on_disconnect(gone.key, gone.connection)
    other = Member(world, 1)
    assert other.told(Deploy) == []
    back = Member(world, 0)
    assert back.deployed.attempt != other.deployed.attempt


def test_a_task_that_waits_for_others_is_told_each_tenth_of_its_fence_time(world: GangWorld) -> None:
    """Else it gives up, and a launch that gathers for longer than that never begins."""
    waits = Member(world, 0)
    assert waits.told(Heartbeat) == [Heartbeat(acked=0)]
    for _ in range(16):
        world.pass_time(FENCE_S / 8)
    world.pass_time(FENCE_S / 16)
    assert waits.told(Heartbeat) == [Heartbeat(acked=0)] * (1 + 16)
    Member(world, 1)
    before = len(waits.connection.sent)
    assert waits.deployed.exchange is not None
    world.pass_time(FENCE_S)
    assert len(waits.connection.sent) == before


def test_a_registration_after_the_deployment_is_refused_and_ends_the_launch(world: GangWorld) -> None:
    members = world.connect()
    assert Member(world, 0).key is None
    assert all(member.cancelled for member in members)
    assert world.jobs.cancelled == world.jobs.launched


def test_a_launch_has_as_many_subtasks_as_slots_are_free_however_few_splits_there_are(tmp_path: Path) -> None:
    world = gang_world(tmp_path, splits=SPLITS[:1])
    assert world.size == 2


# --- the round's end --------------------------------------------------------------------------------------------------


def test_a_round_is_drained_when_every_split_is_finished_and_every_writer_too(world: GangWorld) -> None:
    first, second = world.connect()
    first.finish(SPLITS[0])
    second.finish(SPLITS[1], rows=90)
    for member in (first, second):
        member.say(RequestSplit())
        assert member.told(NoMoreSplits)
    assert world.job.splits.done
    first.end(60, (A,))
    assert world.round.events == []
    second.end(130, (B,))
    assert world.round.events == ["drained, finished early False"]
    assert world.job.progress.committable() == [A, B]
    assert world.job.progress.offsets() == dict.fromkeys(BUCKETS, 100)
    world.jobs.end(None)
    assert world.round.events[-1] == "over"


def test_a_writer_that_finishes_before_everything_is_read_ends_the_launch(world: GangWorld) -> None:
    members = world.connect()
    members[0].end(0)
    assert world.jobs.cancelled == world.jobs.launched
    assert "drained, finished early False" not in world.round.events


def test_a_round_that_finishes_early_is_drained_when_its_writers_have_finished(world: GangWorld) -> None:
    first, second = world.connect()
    world.round.finish_early()
    first.finish(SPLITS[0], rows=30, end=30)
    second.finish(SPLITS[1], rows=0, end=0)
    first.end(30, (structs.replace(A, rows=30),))
    second.end(0)
    assert world.round.events == ["drained, finished early True"]
    assert world.job.progress.offsets()[BUCKETS[0]] == 30


# --- checkpoints ------------------------------------------------------------------------------------------------------


def test_no_checkpoint_starts_before_all_are_connected_nor_after_everything_is_read(world: GangWorld) -> None:
    first, second = world.gather()
    first.say(Connected())
    world.pass_time(60.0, [first, second])
    assert world.job.checkpoints.running is None
    second.say(Connected())
    for member in (first, second):
        member.say(RequestSplit())
    first.finish(SPLITS[0])
    second.finish(SPLITS[1])
    world.pass_time(60.0, [first, second])
    assert world.job.checkpoints.running is None


@pytest.mark.parametrize("during", [False, True], ids=["off", "on"])
def test_a_recovery_whose_splits_are_all_done_is_checkpointed_until_a_writer_has_finished(
    tmp_path: Path, *, during: bool
) -> None:
    """What channels and open files held may take long to be written, though nothing is left to be read."""
    done = {one.split_id: WriteResult(one.split_id, one.bucket, 100, 5, 100, (), empty_offsets=0) for one in SPLITS}
    states = tuple(ExchangeState(subtask=number, subtasks=2, rows=100, open_rows=(OPEN,)) for number in (0, 1))
    restored = CheckpointContents(round_snapshot(reference()), done, {}, {}, states)
    settings = CheckpointSettings(interval_s=INTERVAL_S, during_recovery=during, spill_dirs=("/spill",))
    world = gang_world(tmp_path, restored=restored, settings=settings)
    first, second = world.connect()
    assert world.job.splits.done
    world.pass_time(INTERVAL_S + 1.0, [first, second])
    assert (world.job.checkpoints.running is not None) is during
    if during:
        first.say(DeclineCheckpoint(checkpoint=world.job.checkpoints.latest, reason="not ready"))
        assert world.job.checkpoints.running is None
    first.say(WriterFinished(state=first.state(100)))
    world.pass_time(INTERVAL_S + 1.0, [first, second])
    assert world.job.checkpoints.running is None


def test_a_subtask_that_is_not_ready_costs_a_checkpoint_and_counts_as_no_failure(world: GangWorld) -> None:
    members = world.connect()
    for _ in range(20):  # five in a row may fail
        world.start_checkpoint(members)
        number = world.job.checkpoints.running
        assert number is not None
        members[0].say(DeclineCheckpoint(checkpoint=number, reason="not ready"))
        assert world.job.checkpoints.running is None
    assert not [event for event in world.round.events if event.startswith("failed")]


@pytest.mark.parametrize("due", [False, True])
def test_files_are_closed_at_the_cut_that_a_step_is_made_of_and_at_no_other(world: GangWorld, due: bool) -> None:
    world.round.make_step_due(due=due)
    members = world.connect()
    world.start_checkpoint(members)
    triggers = [one for member in members for one in member.told(TriggerCheckpoint)]
    assert [one.close_files for one in triggers] == [due, due]


def test_after_a_cut_for_a_step_that_came_to_nothing_a_checkpoint_leaves_files_open_until_one_completes(
    world: GangWorld,
) -> None:
    """That it is aligned may take too long again and again: then the round would never get further."""
    world.round.make_step_due(due=True)
    members = world.connect()
    closed = []
    for complete in (False, True, True):
        world.start_checkpoint(members)
        number = world.job.checkpoints.running
        assert number is not None
        closed.append(members[0].told(TriggerCheckpoint)[-1].close_files)
        if complete:
            members[0].take_part(members[0].state(100, (A,)))
            members[1].take_part(members[1].state(0))
        else:
            members[0].say(DeclineCheckpoint(checkpoint=number, reason="it took too long"))
        assert world.job.checkpoints.running is None
    assert closed == [True, False, True]


def test_a_checkpoint_holds_the_states_of_all_writers(world: GangWorld) -> None:
    states = store_checkpoint(world, world.connect())
    assert world.newest.exchange == states
    assert world.newest.paths() == {A.path}
    assert not world.newest.committable
    loaded = world.store.load(replace(world.ref, number=1))
    assert CheckpointContents.of(loaded.coordinator, loaded.subtasks).exchange == states


def test_a_checkpoint_without_the_state_of_a_writer_is_none(world: GangWorld) -> None:
    """A subtask that ends in the midst of one leaves its rows in no part."""
    first, second = world.connect()
    world.start_checkpoint([first, second])
    first.take_part(first.state(100, (A,), open_rows=(OPEN,)))
    second.say(SubtaskDone())
    assert world.job.checkpoints.newest is None
    assert [event for event in world.round.events if event.startswith("checkpoint 1 aborted: expected the states")]


def test_a_checkpoint_that_runs_at_the_end_of_a_round_is_left_out_silently(world: GangWorld) -> None:
    first, second = world.connect()
    world.start_checkpoint([first, second])
    for member in (first, second):
        number = world.job.checkpoints.running
        assert number is not None
        member.take_part(member.state()) if member is first else None
    first.finish(SPLITS[0])
    second.finish(SPLITS[1])
    first.say(WriterFinished(state=first.state(100)))
    second.say(WriterFinished(state=second.state(100)))
    assert world.round.events == ["drained, finished early False"]


def test_a_checkpoint_that_a_finished_subtask_aborts_once_all_is_read_is_left_out_silently(world: GangWorld) -> None:
    first, second = world.connect()
    world.start_checkpoint([first, second])
    first.finish(SPLITS[0])
    second.finish(SPLITS[1])
    number = world.job.checkpoints.running
    assert number is not None
    first.say(Open(checkpoint=number), WriterFinished(state=first.state(100)), SubtaskDone())
    assert world.job.checkpoints.running is None
    assert world.round.events == []


def test_a_subtask_that_reconnects_is_told_again_how_the_newest_checkpoint_has_ended(world: GangWorld) -> None:
    """Else its channels would stay blocked: the message that ended it was lost with the connection."""
    first, second = world.connect()
    world.start_checkpoint([first, second])
    assert first.key is not None
    world.round.on_disconnect(first.key, first.connection)
    second.say(DeclineCheckpoint(checkpoint=1, reason="no space left"))
    assert CheckpointAborted(checkpoint=1) not in [one.event for one in first.connection.sent]
    back = RecordingConnection()
    register = Register(subtask=0, host="node-0", pid=1, data_address="node-0:1", attempt=first.key.task_attempt)
    assert world.round.on_connect(register, back) == first.key
    assert CheckpointAborted(checkpoint=1) in [one.event for one in back.sent]


# --- losses -----------------------------------------------------------------------------------------------------------


def test_a_lost_subtask_ends_the_launch_and_all_goes_back_to_the_newest_checkpoint(world: GangWorld) -> None:
    members = world.connect()
    states = store_checkpoint(world, members)
    members[1].finish(SPLITS[1])  # after the checkpoint: its rows may be in no file
    assert SPLITS[1].split_id in world.job.progress.results
    members[0].say(Failed(code="LW-000", message="the channel to 1 is gone"))
    assert all(member.cancelled for member in members)
    world.slots[0] = 3
    world.jobs.end()
    assert world.size == 3
    assert world.job.progress.results == {}
    assert world.job.may_have_orphans
    again = world.connect()
    assigned = [split for one in again for event in one.told(AssignSplits) for split in event.splits]
    assert [split.position for split in assigned] == [100, 0]
    for member in again:
        assert member.deployed.exchange is not None
        assert tuple(member.deployed.exchange.restore) == states
    assert "2 splits back from attempt 1 (job)" in world.round.events


def test_a_launch_without_a_checkpoint_is_launched_again_from_the_beginning(world: GangWorld) -> None:
    members = world.connect()
    members[0].finish(SPLITS[0])
    members[1].say(Failed(code="LW-000", message="out of memory"))
    world.jobs.end()
    again = world.connect()
    assert sorted(split for member in again for split in member.splits()) == [split.split_id for split in SPLITS]
    assert again[0].deployed.exchange is not None
    assert again[0].deployed.exchange.restore == []


def test_a_lost_connection_ends_the_launch_after_the_time_to_reconnect(world: GangWorld) -> None:
    first, second = world.connect()
    assert first.key is not None
    world.round.on_disconnect(first.key, first.connection)
    world.pass_time(4.0)
    assert world.jobs.cancelled == []
    world.pass_time(4.0)
    assert world.jobs.cancelled == world.jobs.launched
    assert second.cancelled


def test_a_silent_subtask_ends_the_launch(world: GangWorld) -> None:
    _, second = world.connect()
    world.pass_time(400.0)
    second.say(Heartbeat(acked=0))
    world.pass_time(400.0)
    assert world.jobs.cancelled == world.jobs.launched
    assert second.cancelled


def test_a_subtask_that_is_lost_while_others_still_write_takes_the_round_back(world: GangWorld) -> None:
    first, second = world.connect()
    first.finish(SPLITS[0])
    second.finish(SPLITS[1])
    first.end(100, (A,))
    second.say(Failed(code="LW-000", message="disk full"))
    world.jobs.end()
    again = world.connect()
    assert sorted(split for member in again for split in member.splits()) == [split.split_id for split in SPLITS]
    assert world.job.progress.committable() == []
    members = again
    world.start_checkpoint(members)
    assert world.job.checkpoints.running is not None, "the next launch takes checkpoints again"


def test_what_a_subtask_of_the_launch_before_still_sends_counts_for_nothing(world: GangWorld) -> None:
    first, second = world.connect()
    second.say(Failed(code="LW-000", message="gone"))
    first.finish(SPLITS[0])
    assert world.job.progress.results == {}
    world.jobs.end()
    first.say(WriterFinished(state=first.state(100, (A,))))
    assert world.job.progress.writers is not None
    assert world.job.progress.writers.finished == {}
    assert "1 files rejected" not in world.round.events


def test_the_next_launch_waits_for_the_stores_answer_and_goes_on_from_that_checkpoint(world: GangWorld) -> None:
    """Else a step might be committed of a checkpoint that the running launch knows nothing of."""
    world.round.hold_answers = True
    members = world.connect()
    states = store_checkpoint(world, members)
    assert world.job.checkpoints.newest is None
    members[0].say(Failed(code="LW-000", message="gone"))
    world.jobs.end()
    world.pass_time(1.0)
    assert len(world.jobs.launched) == 1
    world.round.pending.pop()()
    world.pass_time(1.0)
    assert len(world.jobs.launched) == 2
    (restore,) = {tuple(one.deployed.exchange.restore) for one in world.gather() if one.deployed.exchange}
    assert restore == states


def test_a_round_fails_after_as_many_launches_as_are_allowed_and_says_why(tmp_path: Path) -> None:
    world = gang_world(tmp_path, limit=2)
    for _ in range(2):
        world.connect()[0].say(Failed(code="LW-000", message="the channel to 1 is gone"))
        world.jobs.end()
    assert len(world.jobs.launched) == 2
    assert world.round.events[-2] == (
        "failed, permanent False: job launched 2 times, the last time: subtask 0 failed: the channel to 1 is gone"
    )


def test_a_round_that_ends_between_two_launches_is_launched_no_more(world: GangWorld) -> None:
    world.round.hold_answers = True
    members = world.connect()
    store_checkpoint(world, members)
    members[0].say(Failed(code="LW-000", message="gone"))
    world.jobs.end()
    assert runs(world), "it is not left to itself"
    world.round.cancel()
    assert not runs(world)
    world.round.pending.pop()()
    world.pass_time(1.0)
    assert len(world.jobs.launched) == 1


def test_a_round_that_ends_while_slots_are_counted_for_the_next_launch_is_launched_no_more(world: GangWorld) -> None:
    members = world.connect()
    world.round.hold_slots = True
    members[0].say(Failed(code="LW-000", message="gone"))
    world.jobs.end()
    assert runs(world), "whoever ends the round, or all rounds, cancels what runs"
    world.round.cancel()
    assert not runs(world)
    assert world.round.events[-1] == "over"
    world.round.pending.pop()()
    assert len(world.jobs.launched) == 1


def test_a_connection_that_has_closed_is_missed_no_more_once_the_launch_was_ended(world: GangWorld) -> None:
    members = world.connect()
    for member in members:
        assert member.key is not None
        world.round.on_disconnect(member.key, member.connection)
    assert Member(world, 0).key is None
    assert world.jobs.cancelled == world.jobs.launched
    world.pass_time(60.0)
    world.jobs.end()
    assert len(world.jobs.launched) == 2


def test_a_writer_that_finishes_after_spark_has_ended_its_launch_drains_nothing(world: GangWorld) -> None:
    first, second = world.connect()
    first.finish(SPLITS[0])
    second.finish(SPLITS[1], rows=90)
    first.end(60, (A,))
    world.round.hold_slots = True
    world.jobs.end("its stage failed")
    second.end(130, (B,))
    assert world.round.events == ["2 splits back from attempt 1 (job)"]
    world.round.pending.pop()()
    assert len(world.jobs.launched) == 2


# --- finishing early after a loss -------------------------------------------------------------------------------------


def test_a_round_that_finishes_early_and_loses_all_it_read_has_nothing_to_commit(world: GangWorld) -> None:
    members = world.connect()
    world.round.finish_early()
    members[0].say(Failed(code="LW-000", message="gone"))
    world.jobs.end()
    assert len(world.jobs.launched) == 1
    assert world.round.events[-2:] == ["drained, finished early True, left out: subtask 0 failed: gone", "over"]
    assert world.job.progress.committable() == []
    assert world.job.progress.shares() == ()


def test_a_round_that_finishes_early_is_launched_again_to_write_what_its_checkpoint_holds(world: GangWorld) -> None:
    members = world.connect()
    states = store_checkpoint(world, members)
    world.round.finish_early()
    members[0].say(Failed(code="LW-000", message="gone"))
    world.jobs.end()
    assert len(world.jobs.launched) == 2
    first, second = world.gather()
    assert first.deployed.exchange is not None
    assert tuple(first.deployed.exchange.restore) == states
    for member in (first, second):
        member.say(Connected(), RequestSplit())
        assert member.told(NoMoreSplits)
    first.end(100, (A, structs.replace(B, rows=40)))
    second.end(0)
    assert world.round.events[-1] == "drained, finished early True, left out: subtask 0 failed: gone"
    assert world.job.progress.offsets()[BUCKETS[0]] == 100
    assert [share.rows for share in world.job.progress.shares()] == [100]


def test_a_snapshot_whose_rows_are_with_the_writers_is_read_to_its_end_though_the_round_finishes_early(
    tmp_path: Path,
) -> None:
    snapshot = SnapshotSplit("b0-s3", BUCKETS[0], (), 3, 50)
    world = gang_world(tmp_path, splits=(snapshot, SPLITS[1]))
    members = world.connect()
    world.start_checkpoint(members)
    members[0].take_part(members[0].state(20, open_rows=(OPEN,)), (SplitProgress(snapshot, 20, (), 20, -1),))
    members[1].take_part(members[1].state(0), (SplitProgress(SPLITS[1], 0, (), 0, -1, empty_offsets=0),))
    assert not world.newest.committable
    world.round.finish_early()
    members[0].say(Failed(code="LW-000", message="gone"))
    world.jobs.end()
    assert [member.splits() for member in world.connect()] == [["b0-s3"], []]


# --- a restart of the service -----------------------------------------------------------------------------------------


def test_a_round_of_a_new_start_hands_the_states_of_the_checkpoint_to_all(tmp_path: Path) -> None:
    earlier = gang_world(tmp_path)
    states = store_checkpoint(earlier, earlier.connect())
    world = gang_world(tmp_path / "new", restored=earlier.newest)
    for member in world.gather():
        assert isinstance(member.deployed, Deploy)
        assert member.deployed.exchange is not None
        assert tuple(member.deployed.exchange.restore) == states
    assert world.job.may_have_orphans


def test_a_finish_that_a_closed_gateway_held_counts_as_received_after_a_restore(tmp_path: Path) -> None:
    """It names no file; its rows are in the states of the same checkpoint."""
    earlier = gang_world(tmp_path)
    states = store_checkpoint(earlier, earlier.connect())
    result = WriteResult(SPLITS[1].split_id, SPLITS[1].bucket, 100, 5, 100, (), empty_offsets=0)
    blocked = BlockedEvent(Origin(1, 1, 2, 3), result)
    parts = [SubtaskSnapshot(0, 1, (), (), states[0]), SubtaskSnapshot(1, 2, (), (blocked,), states[1])]
    contents = CheckpointContents.of(earlier.newest.round, parts)
    world = gang_world(tmp_path / "new", restored=contents)
    assert world.job.progress.results == {SPLITS[1].split_id: result}
    assert all(member.deployed.restored == [] for member in world.gather())


def test_a_checkpoint_whose_rows_cannot_be_read_back_is_given_up(tmp_path: Path) -> None:
    """Else each launch, and each round after it, would fail in the same way."""
    earlier = gang_world(tmp_path)
    store_checkpoint(earlier, earlier.connect())
    world = gang_world(tmp_path / "new", restored=earlier.newest)
    members = world.gather()
    members[0].say(Failed(code=CorruptFileError.code, message="segments/1-0-1-0.arrow: expected 400 bytes, found 3"))
    assert world.round.events == ["lost its checkpoint: segments/1-0-1-0.arrow: expected 400 bytes, found 3"]


@pytest.mark.parametrize("connected", [1, 2])
def test_a_file_that_cannot_be_read_by_one_that_has_read_all_back_is_no_fault_of_the_checkpoint(
    tmp_path: Path, connected: int
) -> None:
    """Not while others still read back either: it reads its splits already."""
    earlier = gang_world(tmp_path)
    store_checkpoint(earlier, earlier.connect())
    world = gang_world(tmp_path / "new", restored=earlier.newest)
    members = world.gather()
    for member in members[:connected]:
        member.say(Connected(), RequestSplit())
    members[0].say(Failed(code=CorruptFileError.code, message="a log segment"))
    assert world.jobs.cancelled == world.jobs.launched
    assert not [event for event in world.round.events if event.startswith("lost its checkpoint")]


@pytest.mark.parametrize(("during_recovery", "unaligned"), [(True, True), (True, False), (False, True)])
def test_checkpoints_are_taken_during_a_recovery_only_where_that_and_unaligned_ones_are_on(
    tmp_path: Path, *, during_recovery: bool, unaligned: bool
) -> None:
    """One that has to be aligned would wait until everything is recovered, and time out meanwhile."""
    settings = CheckpointSettings(
        during_recovery=during_recovery, unaligned=unaligned, spill_dirs=("/spill",), spill_quota=20, memory=10
    )
    world = gang_world(tmp_path, settings=settings)
    found = world.gather()[0].deployed.exchange
    assert found is not None
    expected = DeployRecovery(spill_dirs=["/spill"], spill_quota_bytes=20, memory_bytes=10)
    assert found.recovery == (expected if during_recovery and unaligned else None)


@pytest.mark.parametrize("recovers", [True, False])
def test_a_launch_that_recovers_takes_its_first_checkpoint_at_once_and_tells_how_long_that_took(
    tmp_path: Path, *, recovers: bool
) -> None:
    earlier = gang_world(tmp_path)
    store_checkpoint(earlier, earlier.connect())
    settings = CheckpointSettings(interval_s=30.0, open_rows=100, during_recovery=recovers, spill_dirs=("/spill",))
    world = gang_world(tmp_path / "new", restored=earlier.newest, settings=settings)
    members = world.gather()
    world.round.tick()
    assert world.job.checkpoints.running is None, "not before all are connected"
    for member in members:
        member.say(Connected(), RequestSplit())
    world.round.tick()
    assert [len(member.told(Close)) for member in members] == [int(recovers)] * 2
    if recovers:
        number = members[0].told(Close)[0].checkpoint
        world.round.tick()
        for member in members:
            assert len(member.told(Close)) == 1
            member.say(AckClose(checkpoint=number, sent=member._up.sent if member._up else 0))
        world.pass_time(1.5, members)
        members[0].take_part(members[0].state(100, (A,), open_rows=(OPEN,)))
        members[1].take_part(members[1].state(0))
        world.round.tick()
        exchange = world.job.exchange()
        assert exchange is not None
        assert exchange.first_checkpoint_s == pytest.approx(1.5)
        world.pass_time(5.0, members)
        assert world.job.checkpoints.running is None, "the next one is due after the interval"


# --- figures ----------------------------------------------------------------------------------------------------------


def test_what_the_subtasks_report_of_the_exchange_is_summed_and_says_how_uneven_it_is(world: GangWorld) -> None:
    first, second = world.connect()
    spills = ExchangeReport(spill_places=("Spark's local directories",), spill_quota_bytes=16 << 30)
    assert world.job.exchange() == spills
    for member, received in ((first, 300), (second, 100)):
        moved = ExchangeFigures(
            sent_bytes=200, received_bytes=received, credit_wait_s=0.25, queued_bytes=7, markers_missing=1
        )
        figures = msgspec.structs.replace(moved, timings_s={"partition": 0.5, "encode": 2.0})
        member.say(Progress(split_id="", rows=0, size_bytes=0, offset=0, exchange=figures))
    spent = {"partition": 1.0, "encode": 4.0}
    summed = structs.replace(spills, sent_bytes=400, received_bytes=400, queued_bytes=14, credit_wait_s=0.5, skew=1.5)
    assert world.job.exchange() == structs.replace(summed, markers_missing=2, timings_s=spent)
    assert world.job.counts() == (0, 0, 0)
