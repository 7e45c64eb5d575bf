"""What a round that goes on from a checkpoint takes for new."""

from __future__ import annotations

from msgspec import structs

from lakeward.coordinator.checkpoints.contents import CheckpointContents
from lakeward.coordinator.rounds.progress import RoundProgress
from lakeward.machines.splits import AcceptRestored, AttemptLost, AttemptRegistered, FinishEarlyRequested
from lakeward.model.checkpoints import Origin, RoundSnapshot
from lakeward.model.exchange import Segment
from lakeward.model.splits import SnapshotSplit
from lakeward.model.tables import TableBucket
from lakeward_service_kit.checkpoint_values import exchange_snapshot, reference, round_snapshot, subtask_snapshot


def coordinators_part() -> RoundSnapshot:
    return structs.replace(round_snapshot(reference()), finished=())


def restored_progress(attempt: int) -> tuple[RoundProgress, Origin]:
    part = subtask_snapshot(subtask=1, attempt=attempt)
    state = CheckpointContents.of(coordinators_part(), [part])
    return RoundProgress(state.enumeration(), state), part.blocked[0].origin


def test_a_finish_of_the_new_round_never_has_the_origin_of_a_restored_one() -> None:
    progress, restored = restored_progress(attempt=7)
    assert progress.first(restored)
    own = Origin(restored.job_attempt, restored.subtask, progress.first_attempt, restored.sequence)
    assert progress.first(own)
    assert not progress.first(restored)


def test_attempts_of_a_fresh_round_count_from_1() -> None:
    progress, _ = restored_progress(attempt=7)
    fresh = RoundProgress(CheckpointContents.of(coordinators_part(), []).enumeration())
    assert progress.first_attempt == 8
    assert fresh.first_attempt == 1


def test_what_had_been_done_of_a_split_that_a_cut_leaves_out_is_committed() -> None:
    state = CheckpointContents.of(coordinators_part(), [])
    progress = RoundProgress(state.enumeration(), state)
    (half,) = coordinators_part().progress
    assert half.split.bucket.bucket == 0
    progress.splits.step(FinishEarlyRequested(now=1.0))
    assert progress.splits.done
    assert progress.offsets()[half.split.bucket] == half.position
    assert {file.path for file in half.files} <= {file.path for file in progress.committable()}


def test_files_that_a_split_half_done_or_a_word_to_be_sent_again_names_are_not_deleted_for_a_late_finish() -> None:
    part = subtask_snapshot(subtask=1, attempt=7)
    result = part.blocked[0].result
    own = structs.replace(result.files[0], path="of-the-word.parquet")
    word = structs.replace(part.blocked[0], result=structs.replace(result, files=(own,)))
    state = CheckpointContents.of(coordinators_part(), [structs.replace(part, blocked=(word,))])
    progress = RoundProgress(state.enumeration(), state)
    named = [file for one in progress.half_done() for file in one.files]
    stranger = structs.replace(own, path="of-nobody.parquet")
    assert progress.blocked() == [word]
    assert named
    assert progress.not_ours([*named, own, stranger]) == [stranger]


def test_a_word_to_be_sent_again_counts_with_its_files_once_the_attempt_that_had_it_is_gone() -> None:
    word = subtask_snapshot(subtask=1, attempt=7).blocked[0]
    progress, _ = restored_progress(attempt=7)
    name = word.result.split_id
    progress.splits.step(AttemptRegistered(now=1.0, subtask=0, attempt=8, restored=frozenset({name})))
    assert progress.results == {}
    assert AcceptRestored(name) in progress.splits.step(AttemptLost(now=2.0, subtask=0, attempt=8))
    progress.accept_restored(name)
    assert progress.finished() == (word.result,)
    assert progress.blocked() == []
    assert name not in {one.split.split_id for one in progress.half_done()}


def test_a_step_leaves_a_live_snapshot_out_whose_finish_the_coordinator_has_not_received() -> None:
    """Should its subtask be lost, the snapshot is read anew: `RoundProgress.take_over` keeps nothing of it."""
    live = SnapshotSplit("b9-s-1", TableBucket(7, None, 9), (), -1, 40, live=True)
    own = coordinators_part()
    part = subtask_snapshot(subtask=1, attempt=7)
    said = part.blocked[0].result
    files = (structs.replace(said.files[0], path="live.parquet"),)
    result = structs.replace(said, split_id=live.split_id, bucket=live.bucket, end_offset=44, files=files)
    word = structs.replace(part.blocked[0], result=result)
    started = structs.replace(own, splits=(*own.splits, live))
    unsure = CheckpointContents.of(started, [structs.replace(part, blocked=(word,))])
    assert live.bucket not in unsure.offsets()
    assert not {*files} & {*unsure.files()}
    assert live.split_id in unsure.results()  # a round that goes on from it has the finish sent again
    sure = CheckpointContents.of(structs.replace(started, finished=(result,)), [structs.replace(part, blocked=())])
    assert sure.offsets()[live.bucket] == 44
    assert {*files} <= {*sure.files()}


def test_a_cut_with_rows_in_channels_alone_is_not_committed() -> None:
    """No file has them; that no file is open says nothing of them."""
    ref = reference()
    segment = Segment(f"{ref}/1-0-1-1.arrow", 3, 100, 0)
    part = exchange_snapshot(segment, segment)
    assert part.exchange is not None
    closed = structs.replace(part, exchange=structs.replace(part.exchange, open_rows=()))
    whole = structs.replace(part, exchange=structs.replace(part.exchange, open_rows=(), channels=()))
    committable = [CheckpointContents.of(round_snapshot(ref), [one]).committable for one in (part, closed, whole)]
    assert committable == [False, False, True]
