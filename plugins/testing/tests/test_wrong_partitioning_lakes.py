"""The suite for partitions says what is wrong with a lake that breaks one promise of `PartitioningLakePlugin`."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakeward.model.results import CommitOutcome
from lakeward.model.tables import BUCKET_COLUMN, CHANGE_COLUMN, Change
from lakeward.ports import PartitionedRows
from lakeward_service_kit.folder_tables import read_each_snapshot, read_partitioned
from lakeward_service_kit.suites import failures, plain_part
from lakeward_service_kit.wrong_writers import BoastfulWriter, ForgetfulWriter
from lakeward_testing.clock import FakeClock
from lakeward_testing.folder_lake import FolderLake, FolderLakePlugin, FolderOptions, FolderPartitioner, FolderWriter
from lakeward_testing.lake_partitions import LakePartitionConformance

if TYPE_CHECKING:
    from lakeward.model.results import CommitRequest, LakeFile
    from lakeward.model.tables import TableSpec
    from lakeward.ports import Clock, SourceBatch


class _Places(FolderLakePlugin):
    """A right lake with a partitioner that is wrong."""

    wrong: type[FolderPartitioner] = FolderPartitioner

    def partitioner(self, task: bytes, table: TableSpec) -> FolderPartitioner:
        return self.wrong(table.lake_partition)


class _Changed(FolderPartitioner):
    """A right partitioner that sees other rows than it is given."""

    def partition(self, records: pa.RecordBatch) -> PartitionedRows:
        return super().partition(self.changed(records))

    def changed(self, records: pa.RecordBatch) -> pa.RecordBatch:
        raise NotImplementedError


def _with(records: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    return records.set_column(records.schema.get_field_index(name), name, column)


class _EverythingInOne(FolderPartitioner):
    def partition(self, records: pa.RecordBatch) -> PartitionedRows:
        return PartitionedRows(np.zeros(records.num_rows, dtype=np.int32), (b"[]",))


class IgnoresTheLayout(_Places):
    """All rows are in one partition."""

    wrong = _EverythingInOne


class _NullAsEmpty(_Changed):
    def changed(self, records: pa.RecordBatch) -> pa.RecordBatch:
        return _with(records, "region", pc.fill_null(records.column("region"), ""))


class PutsNullWithTheEmptyText(_Places):
    """Rows without a value are not told from those with an empty one."""

    wrong = _NullAsEmpty


class _NullNowhere(FolderPartitioner):
    def partition(self, records: pa.RecordBatch) -> PartitionedRows:
        codes, partitions = super().partition(records)
        lost = [number for number, partition in enumerate(partitions) if None in json.loads(partition)]
        return PartitionedRows(np.where(np.isin(codes, lost), np.int32(-1), codes), partitions)


class LosesNull(_Places):
    """Rows without a value are in no partition."""

    wrong = _NullNowhere


class _TowardsZero(_Changed):
    def changed(self, records: pa.RecordBatch) -> pa.RecordBatch:
        width = next((field.argument or 1 for field in self._fields if field.column == "id"), 1)
        ids = [int(number / width) * width for number in records.column("id").to_pylist()]
        return _with(records, "id", pa.array(ids, pa.int64()))


class TruncatesTowardsZero(_Places):
    """Numbers below zero are cut off in the other direction."""

    wrong = _TowardsZero


class _OneLetter(_Changed):
    def changed(self, records: pa.RecordBatch) -> pa.RecordBatch:
        if not any(field.transform == "truncate" for field in self._fields):
            return records
        return _with(records, "region", pc.utf8_slice_codeunits(records.column("region"), 0, 1))


class TruncatesToOneLetter(_Places):
    """Texts are cut off earlier than the layout says."""

    wrong = _OneLetter


class _OneBucket(_Changed):
    def changed(self, records: pa.RecordBatch) -> pa.RecordBatch:
        return _with(records, "id", pa.array([1] * records.num_rows, pa.int64()))


class HasOneBucket(_Places):
    """All ids are in the same bucket."""

    wrong = _OneBucket


class _BucketOfEachId(FolderPartitioner):
    def partition(self, records: pa.RecordBatch) -> PartitionedRows:
        return FolderPartitioner(tuple(replace(field, argument=1 << 30) for field in self._fields)).partition(records)


class HasMoreBuckets(_Places):
    """The number of buckets is not that of the layout."""

    wrong = _BucketOfEachId


class _BucketsInTurn(FolderPartitioner):
    def partition(self, records: pa.RecordBatch) -> PartitionedRows:
        codes = np.arange(records.num_rows, dtype=np.int32) % 4
        return PartitionedRows(codes, tuple(json.dumps([number]).encode() for number in range(4)))


class BucketsInTurn(_Places):
    """A row's bucket depends on the rows before it."""

    wrong = _BucketsInTurn


class _WideCodes(FolderPartitioner):
    def partition(self, records: pa.RecordBatch) -> PartitionedRows:
        codes, partitions = super().partition(records)
        return PartitionedRows(codes.astype(np.int64), partitions)


class HasWideCodes(_Places):
    """The core divides rows with codes of 32 bits."""

    wrong = _WideCodes


class _AnyLayout(FolderPartitioner):
    def partition_of(self, file: LakeFile) -> bytes:
        _, values = json.loads(file.detail)
        return json.dumps(values).encode()


class TakesFilesOfAnyLayout(_Places):
    """A file of a checkpoint before the layout was changed would be committed as one of the new layout."""

    wrong = _AnyLayout


class _Writes(FolderLakePlugin):
    """A right lake with a writer of partitions that is wrong."""

    wrong: type[FolderWriter] = FolderWriter

    def partition_writer(self, *arguments: Any) -> FolderWriter:  # noqa: ANN401 - as the right one's
        writer = super().partition_writer(*arguments)
        writer.__class__ = self.wrong
        return writer


class WritesIntoAnotherPartition(FolderLakePlugin):
    """Every file says that it is of one and the same partition."""

    def partition_writer(  # noqa: PLR0917 - as the right one
        self,
        task: bytes,
        table: TableSpec,
        partition: bytes,
        name: str,
        attempt: int,
        before: tuple[LakeFile, ...],
        memory_bytes: int,
    ) -> FolderWriter:
        other = json.dumps(["elsewhere"] * len(json.loads(partition))).encode()
        return super().partition_writer(task, table, other, name, attempt, before, memory_bytes)


class _IgnoresDeletes(FolderWriter):
    def write(self, batch: SourceBatch) -> None:
        kept = pc.not_equal(batch.records.column(CHANGE_COLUMN), pa.scalar(Change.DELETE, pa.uint8()))
        super().write(replace(batch, records=batch.records.filter(kept)))


class LeavesTheOldRow(_Writes):
    """A key that moves stays in its old partition, too."""

    wrong = _IgnoresDeletes


class _NumbersBucketsAnew(FolderWriter):
    def write(self, batch: SourceBatch) -> None:
        zeros = pa.array([0] * batch.records.num_rows, pa.int32())
        super().write(replace(batch, records=_with(batch.records, BUCKET_COLUMN, zeros)))


class NumbersBucketsAnew(_Writes):
    """The source's bucket of a row is lost."""

    wrong = _NumbersBucketsAnew


class ForgetsTheFilesBefore(_Writes):
    """A writer that goes on from a checkpoint returns its own files alone."""

    wrong = ForgetfulWriter


class SaysThatAllIsFlushed(_Writes):
    """A checkpoint would then name rows that are in no file."""

    wrong = BoastfulWriter


class CommitsEachPartition(FolderLake):
    """A commit a partition: between two of them a key that moved is nowhere."""

    def commit(self, request: CommitRequest) -> CommitOutcome:
        outcome = CommitOutcome.LANDED
        for file in request.files:
            outcome = super().commit(replace(request, files=(file,), ids=self.new_ids(request.path)))
            head = self.head(request.path)
            assert head is not None
            assert head.commit is not None
            request = replace(request, base_commit=head.commit.snapshot_id)
        return outcome


class _Commits(FolderLakePlugin):
    def __init__(self, lake: type[FolderLake]) -> None:
        self._lake = lake

    def open(self, options: FolderOptions, clock: Clock) -> FolderLake:
        return self._lake(Path(options.path), target_bytes=options.target_bytes)


SHARED = "test_rows_share_a_partition_where_the_layout_says_so"
SAME = "test_a_partition_is_the_same_in_every_process"
MOVES = "test_a_key_that_moves_leaves_its_old_partition"
COME_BACK = "test_rows_of_every_partition_come_back"
ONCE = "test_no_snapshot_has_a_key_that_moves_in_two_partitions"
RESUMES = "test_another_writer_goes_on"
FLUSHED = "test_all_rows_count_as_flushed"
REFUSED = "test_a_file_of_another_layout"
WRONG: list[tuple[type, str, str]] = [
    (
        IgnoresTheLayout,
        SHARED,
        r"partition by region: expected rows {.*'north'.*} and {.*'south'.*} in two partitions, found both in b'\[\]'$",
    ),
    (
        PutsNullWithTheEmptyText,
        SHARED,
        r"partition by region: expected rows {.*'region': None.*} and {.*'region': ''.*} in two partitions, found both",
    ),
    (
        LosesNull,
        SHARED,
        r"partition by region: expected a partition of row {'id': 2, 'region': None, .*}, found none$",
    ),
    (
        LosesNull,
        COME_BACK,
        r"commit of a table that is partitioned by region: .*id.*: expected \[0, 1, 2, .*found \[0, 1, 3,",
    ),
    (
        TruncatesTowardsZero,
        SHARED,
        r"hour\(at\), truncate\(10, id\): expected rows {'id': -2, .*} and {'id': -10, .*} in one partition, found b'",
    ),
    (
        TruncatesToOneLetter,
        SHARED,
        r"truncate\(3, region\), .*: expected rows {.*'north'.*} and {.*'nörd'.*} in two partitions, found both in",
    ),
    (
        HasOneBucket,
        SHARED,
        r"bucket\(4, id\): expected rows of several buckets, found one bucket for all of 52 ids$",
    ),
    (
        HasMoreBuckets,
        SHARED,
        r"bucket\(4, id\): expected at most 4 buckets of rows that differ in nothing else, found \d+$",
    ),
    (
        BucketsInTurn,
        SAME,
        r"partition by region, of the same rows by another partitioner: .*: expected \[b'\[0\]', .*, found \[b'",
    ),
    (HasWideCodes, SAME, r"partition by region: type of the codes: expected dtype\('int32'\), found dtype\('int64'\)$"),
    (
        TakesFilesOfAnyLayout,
        REFUSED,
        r"partition_of a file of another partitioning: expected LakeError, found no error",
    ),
    (
        WritesIntoAnotherPartition,
        SAME,
        r"partition_of the files of one partition: expected {b'\[\"north\"\]'}, found {b'\[\"elsewhere\"\]'}$",
    ),
    (
        LeavesTheOldRow,
        MOVES,
        r"commit of a key that moves .*: id and region .*: expected .*, found \[\(1, 'north'\), \(1, 'south'\), \(2,",
    ),
    (NumbersBucketsAnew, COME_BACK, r"partitioned by region: .*__bucket.*: expected \[0, 1, .*, found \[0, 0, "),
    (
        ForgetsTheFilesBefore,
        RESUMES,
        r"close of a partition's writer that goes on from a checkpoint: first files: expected \(LakeFile.*, found \(",
    ),
    (
        SaysThatAllIsFlushed,
        FLUSHED,
        r"roll, where all_rows_flushed is True: rows of the closed data files .*: expected 100, found 0$",
    ),
    (
        CommitsEachPartition,
        ONCE,
        r"commit of a key that moves .*: id and region of the rows, by snapshot: .*found .*\], \[\(2, 'north'\)\], \[",
    ),
]


def verdicts(wrong: type, wanted: str, place: Path) -> dict[str, str]:
    """Run tests of the suite on a lake, or on a plugin; each case in a folder of its own."""
    made = count()

    def fixtures() -> dict[str, Any]:
        folder = place / str(next(made))
        folder.mkdir()
        plugin: Any = _Commits(wrong) if issubclass(wrong, FolderLake) else wrong()
        return {
            "plugin": plugin,
            "open_sized": lambda size: plugin.open(FolderOptions(path=str(folder), target_bytes=size), FakeClock()),
            "read_partitioned": partial(read_partitioned, folder),
            "read_each_snapshot": partial(read_each_snapshot, folder),
        }

    return failures(LakePartitionConformance, fixtures, wanted)


@pytest.mark.parametrize("test", sorted({test for _, test, _ in WRONG}))
def test_the_suite_finds_nothing_wrong_with_a_right_lake(test: str, tmp_path: Path) -> None:
    assert verdicts(FolderLakePlugin, test, tmp_path) == {}


@pytest.mark.parametrize(("wrong", "test", "message"), WRONG, ids=lambda value: getattr(value, "__name__", ""))
def test_the_suite_says_what_is_wrong_with_a_lake_that(wrong: type, test: str, message: str, tmp_path: Path) -> None:
    (said,) = verdicts(wrong, test, tmp_path).values()
    assert re.search(message, plain_part(said)), said


def test_there_is_a_mistake_for_each_wrong_lake() -> None:
    bases = (FolderLake, FolderLakePlugin, _Places, _Writes)
    known = {one for base in bases for one in base.__subclasses__() if one.__module__ == __name__}
    assert {wrong for wrong, _, _ in WRONG} == {one for one in known if not one.__name__.startswith("_")}
