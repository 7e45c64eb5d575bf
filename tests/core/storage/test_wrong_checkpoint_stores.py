"""The suite for checkpoint stores says what is wrong with a store that breaks one promise of `CheckpointStore`."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.storage.small_files import SmallFiles
from lakeward_service_kit.checkpoint_conformance import CheckpointStoreConformance
from lakeward_service_kit.suites import failures, plain_part
from lakeward_testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from lakeward.model.checkpoints import (
        Checkpoint,
        CheckpointInfo,
        CheckpointRef,
        LeaseCopy,
        PartFile,
        RoundSnapshot,
    )
    from lakeward.model.exchange import Segment
    from lakeward.model.identity import Incarnation


class ForgetsTheLease(CheckpointFiles):
    """A checkpoint without the lease that its snapshots are protected by."""

    def complete(
        self, ref: CheckpointRef, coordinator: RoundSnapshot, parts: Sequence[PartFile], lease: LeaseCopy | None
    ) -> int:
        return super().complete(ref, coordinator, parts, None)


class ForgetsAPart(CheckpointFiles):
    """A restored round would lack what one subtask had."""

    def load(self, ref: CheckpointRef) -> Checkpoint:
        found = super().load(ref)
        return replace(found, subtasks=found.subtasks[:-1])


class TakesTheOldest(CheckpointFiles):
    """A round would go back further than it has to."""

    def newest(self, service: str, table_id: int) -> CheckpointInfo | None:
        found = [info for info in self.list(service) if info.ref.table_id == table_id]
        return found[0] if found else None


class CompletesWhatWasAbandoned(CheckpointFiles):
    """A write whose caller has given up counts after all."""

    def abandon(self, ref: CheckpointRef) -> None:
        return


class SweepsWhatIsUnderWay(CheckpointFiles):
    """It deletes what it was told to spare."""

    def sweep(self, incarnation: Incarnation, keep: Collection[CheckpointRef]) -> tuple[CheckpointRef, ...]:
        return super().sweep(incarnation, ())


class RetainsOneLess(CheckpointFiles):
    """It keeps fewer checkpoints than it was asked for."""

    def retain(self, incarnation: Incarnation, table_id: int, count: int) -> tuple[CheckpointRef, ...]:
        return super().retain(incarnation, table_id, max(1, count - 1))


class DeletesNothing(CheckpointFiles):
    """Deleted checkpoints stay."""

    def delete(self, ref: CheckpointRef, *, keep_segments: bool = False) -> None:
        return


class LosesABatch(CheckpointFiles):
    """Rows of an open file are not all read back."""

    def read_segment(self, segment: Segment) -> Iterator[pa.RecordBatch]:
        yield from list(super().read_segment(segment))[1:]


class LooksAtNoRows(CheckpointFiles):
    """A checkpoint counts though its rows are gone."""

    def check_segments(self, checkpoint: Checkpoint) -> None:
        return


class LeavesRowsBehind(CheckpointFiles):
    """Rows of a round that is over are never deleted."""

    def delete_rows(self, ref: CheckpointRef) -> None:
        return


WRONG: list[tuple[type[CheckpointFiles], str, str]] = [
    (
        ForgetsTheLease,
        "test_a_checkpoint_is_read_back_as_it_was_written",
        r"load, elsewhere, of a completed checkpoint: the lease: expected LeaseCopy\(.*\), found None$",
    ),
    (
        ForgetsAPart,
        "test_a_part_of_a_lost_attempt_does_not_count",
        r"load, after two attempts of a subtask wrote: parts: expected \(SubtaskSnapshot\(.*, found \(\)$",
    ),
    (
        TakesTheOldest,
        "test_a_later_start_is_newer_whatever_the_clock_says",
        r"newest, where the clock went back between starts: expected CheckpointRef\(.*svc-2.*, found .*\(.*svc-1",
    ),
    (
        CompletesWhatWasAbandoned,
        "test_one_that_was_abandoned_cannot_complete",
        r"complete of a checkpoint that was abandoned: expected StorageError, found no error",
    ),
    (
        SweepsWhatIsUnderWay,
        "test_a_sweep_spares_what_is_under_way",
        r"sweep, told of one that is under way: what it deleted: expected \(.*\), found \(CheckpointRef",
    ),
    (
        RetainsOneLess,
        "test_retaining_keeps_an_earlier_starts_until_there_are_enough",
        r"retain 2, one of them of an earlier start: what it deleted: expected \(\), found \(CheckpointRef",
    ),
    (
        DeletesNothing,
        "test_deleting_leaves_nothing_and_may_be_repeated",
        r"list, after a delete: checkpoints: expected \[CheckpointRef\(.*\)\], found \[.*, CheckpointRef",
    ),
    (
        LosesABatch,
        "test_rows_are_read_back_as_they_were_written",
        r"read_segment, elsewhere: batches: expected \[pyarrow.RecordBatch",
    ),
    (
        LooksAtNoRows,
        "test_a_checkpoint_whose_rows_are_gone_or_cut_off",
        r"check_segments, where rows are cut off: expected CorruptFileError, found no error",
    ),
    (
        LeavesRowsBehind,
        "test_rows_of_a_round_without_a_whole_checkpoint_go_with_it",
        r"delete_rows of a round without .*: files with rows that are left: expected \[\], found \['svc/.*arrow'\]$",
    ),
]


def verdicts(wrong: type[CheckpointFiles], wanted: str, place: Path) -> dict[str, str]:
    """Run tests of the suite on a store; each case in a folder of its own."""
    made = count()

    def fixtures() -> dict[str, Any]:
        root, clock = str(place / str(next(made))), FakeClock()
        stores = {name: wrong(SmallFiles(root), clock) for name in ("store", "elsewhere")}
        return {**stores, "files": SmallFiles(root), "clock": clock}

    return failures(CheckpointStoreConformance, fixtures, wanted)


@pytest.mark.parametrize("test", sorted({test for _, test, _ in WRONG}))
def test_the_suite_finds_nothing_wrong_with_a_right_store(test: str, tmp_path: Path) -> None:
    assert verdicts(CheckpointFiles, test, tmp_path) == {}


@pytest.mark.parametrize(("wrong", "test", "message"), WRONG, ids=lambda value: getattr(value, "__name__", ""))
def test_the_suite_says_what_is_wrong_with_a_store_that(
    wrong: type[CheckpointFiles], test: str, message: str, tmp_path: Path
) -> None:
    (said,) = verdicts(wrong, test, tmp_path).values()
    assert re.search(message, plain_part(said)), said
