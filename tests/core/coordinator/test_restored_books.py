"""What a round that goes on from a checkpoint takes for new."""

from __future__ import annotations

from dataclasses import replace

from lakeward.coordinator.books import RoundBooks
from lakeward.coordinator.contents import Contents
from lakeward.machines.splits import CutAsked
from lakeward.model.checkpoints import Origin, RoundSnapshot
from lakeward.testing.checkpoint_values import reference, round_snapshot, subtask_snapshot


def coordinators_part() -> RoundSnapshot:
    return replace(round_snapshot(reference()), finished=())


def restored_books(attempt: int) -> tuple[RoundBooks, Origin]:
    part = subtask_snapshot(subtask=1, attempt=attempt)
    contents = Contents.of(coordinators_part(), [part])
    return RoundBooks(contents.enumeration(), contents), part.blocked[0].origin


def test_a_finish_of_the_new_round_never_has_the_origin_of_a_restored_one() -> None:
    books, restored = restored_books(attempt=7)
    assert books.first(restored)
    own = Origin(restored.job_attempt, restored.subtask, books.first_attempt, restored.sequence)
    assert books.first(own)
    assert not books.first(restored)


def test_attempts_of_a_fresh_round_count_from_1() -> None:
    books, _ = restored_books(attempt=7)
    fresh = RoundBooks(Contents.of(coordinators_part(), []).enumeration())
    assert books.first_attempt == 8
    assert fresh.first_attempt == 1


def test_what_had_been_done_of_a_split_that_a_cut_leaves_out_is_committed() -> None:
    contents = Contents.of(coordinators_part(), [])
    books = RoundBooks(contents.enumeration(), contents)
    (half,) = coordinators_part().progress
    assert half.split.bucket.bucket == 0
    books.splits.step(CutAsked(now=1.0))
    assert books.splits.done
    assert books.offsets()[half.split.bucket] == half.position
    assert {file.path for file in half.files} <= {file.path for file in books.committable()}
