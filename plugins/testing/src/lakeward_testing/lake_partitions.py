"""What a lake must do whose tables can have a partitioning of their own (`PartitioningLakePlugin`).

Fixtures beside those of `LakeResumeConformance`: `read_partitioned`, a function from `TablePath` to a `pa.Table` of the
live rows with their columns `id`, `region`, `at` and `__bucket`, by an independent reader. And `read_each_snapshot`,
where the lake keeps snapshots that a reader can see: the same, of each snapshot of a table, the oldest first.
"""

# ruff: noqa: S101, D102, PLR2004 - these are tests: they assert, and a name states its fact
from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from lakeward.errors import LakeError
from lakeward.model.partitioning import PartitionField
from lakeward.model.tables import BUCKET_COLUMN, Change, TablePath
from lakeward_testing.clock import FakeClock
from lakeward_testing.expectations import expect_error, mismatch
from lakeward_testing.lake_tables import (
    PATH,
    TieringRound,
    check_landed,
    check_values,
    incarnation,
    key_table,
    log_table,
    source_batch,
)
from lakeward_testing.levels import Conformance, chaos, upsert

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lakeward.hooks.plugins import PartitioningLakePlugin
    from lakeward.model.results import LakeFile
    from lakeward.model.tables import TableSpec
    from lakeward.ports import Lake, LakeWriter, SourceBatch

    ReadTable = Callable[[TablePath], pa.Table]
    ReadSnapshots = Callable[[TablePath], Sequence[pa.Table]]
    WithTarget = Callable[[int], Any]

PARTITIONED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("region", pa.string()),
        pa.field("at", pa.timestamp("us")),
    ]
)
LAYOUTS = (
    ("region",),
    ("day(at)", "bucket(4, id)"),
    ("truncate(3, region)", "year(at)"),
    ("month(at)",),
    ("hour(at)", "truncate(10, id)"),
)
_HOUR_US = 3_600_000_000
_HUGE = 1 << 24


def partitioned(*fields: str) -> dict[str, Any]:
    """Return the changes of a spec that give it columns and a partitioning."""
    return {"schema": PARTITIONED, "lake_partition": tuple(map(PartitionField.parse, fields)), "bucket_key": ()}


def rows_with_bucket(rows: Sequence[Mapping[str, object]], start: int = 0, **options: Any) -> SourceBatch:  # noqa: ANN401 - see `source_batch`
    """Make a batch as the writers of partitions get it: with `__bucket`, the id's last bit."""
    batch = source_batch(PARTITIONED, rows, start=start, **options)
    buckets = pa.array([int(str(row["id"])) % 2 for row in rows], pa.int32())
    field = pa.field(BUCKET_COLUMN, pa.int32(), nullable=False)
    return type(batch)(batch.records.append_column(field, buckets), batch.next_offset)


def some_rows(count: int) -> list[dict[str, object]]:
    """Return rows of many partitions, with nulls."""
    regions = ["north", "south", None, "", "nörd"]
    return [
        {"id": number, "region": regions[number % 5], "at": None if number % 7 == 6 else 9 * _HOUR_US * number}
        for number in range(count)
    ]


def transformed(field: PartitionField, value: Any) -> object:  # noqa: ANN401 - of any column
    """Return a value's place in a field of a layout, as the Iceberg specification has it; a bucket's is its value.

    The value of a timestamp is its microseconds.
    """
    if value is None or field.transform in {"identity", "bucket"}:
        return value
    if field.transform == "truncate":
        width = field.argument or 1
        return value - value % width if isinstance(value, int) else value[:width]
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value)
    parts = (at.year, at.month, at.day, at.hour)
    return parts[: ("year", "month", "day", "hour").index(field.transform) + 1]


class LakePartitionConformance(Conformance):
    """The contract of `PartitioningLakePlugin`, as tests."""

    __test__ = False

    @pytest.fixture
    def read_each_snapshot(self) -> ReadSnapshots | None:
        """Reads a table as of each snapshot that a reader can see, the oldest first; None where there are none."""
        return None

    @pytest.fixture
    def open_sized(self, plugin: PartitioningLakePlugin, with_target: WithTarget) -> Iterator[Callable[[int], Lake]]:
        """Opens a lake with a target file size."""
        lakes: list[Lake] = []

        def opened(target_bytes: int) -> Lake:
            lakes.append(plugin.open(with_target(target_bytes), FakeClock()))
            return lakes[-1]

        yield opened
        for lake in lakes:
            lake.close()

    @pytest.mark.parametrize("fields", LAYOUTS, ids=", ".join)
    def test_rows_of_every_partition_come_back_with_their_buckets(
        self,
        plugin: PartitioningLakePlugin,
        open_sized: Callable[[int], Lake],
        read_partitioned: ReadTable,
        fields: tuple[str, ...],
    ) -> None:
        table = log_table(**partitioned(*fields))
        tiering = _Partitions(plugin, open_sized(_HUGE), table)
        rows = some_rows(40)
        tiering.write(rows_with_bucket(rows))
        tiering.commit()
        found = read_partitioned(PATH).sort_by("id")
        where = f"commit of a table that is partitioned by {', '.join(fields)}"
        check_values(found, "id", list(range(40)), where)
        check_values(found, "region", [row["region"] for row in rows], where)
        check_values(found, BUCKET_COLUMN, [number % 2 for number in range(40)], where)

    @pytest.mark.parametrize("fields", LAYOUTS, ids=", ".join)
    def test_a_partition_is_the_same_in_every_process_and_is_that_of_its_files(
        self, plugin: PartitioningLakePlugin, open_sized: Callable[[int], Lake], fields: tuple[str, ...]
    ) -> None:
        table = log_table(**partitioned(*fields))
        tiering = _Partitions(plugin, open_sized(_HUGE), table)
        batch = rows_with_bucket(some_rows(40))
        codes, partitions = plugin.partitioner(tiering.round.task, table).partition(batch.records)
        where = f"partition by {', '.join(fields)}"
        assert codes.dtype == np.int32, mismatch(f"{where}: type of the codes", np.dtype(np.int32), codes.dtype)
        assert len(set(partitions)) == len(partitions), f"{where}: expected each partition once, found {partitions}"
        backwards = plugin.partitioner(tiering.round.task, table).partition(
            batch.records.take(pa.array(range(39, -1, -1)))
        )
        forth = [partitions[code] for code in codes]
        back = [backwards.partitions[code] for code in backwards.codes[::-1]]
        said = mismatch(f"{where}, of the same rows by another partitioner: partitions", forth, back)
        assert forth == back, said
        for partition, files in tiering.write(batch).items():
            found = {tiering.partitioner.partition_of(file) for file in files}
            assert found == {partition}, mismatch("partition_of the files of one partition", {partition}, found)

    @pytest.mark.parametrize("fields", LAYOUTS, ids=", ".join)
    def test_rows_share_a_partition_where_the_layout_says_so_and_nowhere_else(
        self, plugin: PartitioningLakePlugin, open_sized: Callable[[int], Lake], fields: tuple[str, ...]
    ) -> None:
        table = log_table(**partitioned(*fields))
        tiering = _Partitions(plugin, open_sized(_HUGE), table)
        times = [-7 * _HOUR_US * number if number % 2 else None for number in range(1, 13)]
        rows = some_rows(40)
        rows += [{"id": -number, "region": "nördlich", "at": at} for number, at in enumerate(times, 1)]
        codes, partitions = tiering.partitioner.partition(rows_with_bucket(rows).records)
        found = [partitions[code] if code >= 0 else None for code in codes.tolist()]
        _check_shared(table.lake_partition, rows, found)

    @upsert
    def test_a_key_that_moves_leaves_its_old_partition_in_the_same_commit(
        self, plugin: PartitioningLakePlugin, open_sized: Callable[[int], Lake], read_partitioned: ReadTable
    ) -> None:
        table = key_table(**partitioned("region"))
        lake = open_sized(_HUGE)
        first = _Partitions(plugin, lake, table)
        first.write(rows_with_bucket([{"id": 1, "region": "north"}, {"id": 2, "region": "north"}], changes=[1, 1]))
        first.commit()
        second = _Partitions(plugin, lake, table, 2)
        moved = [{"id": 1, "region": "north"}, {"id": 1, "region": "south"}]
        second.write(rows_with_bucket(moved, start=2, changes=[Change.DELETE, Change.UPDATE_AFTER]))
        second.commit()
        where = "commit of a key that moves to another partition"
        _check_regions(read_partitioned, [(1, "south"), (2, "north")], where)

    @upsert
    def test_no_snapshot_has_a_key_that_moves_in_two_partitions_or_in_none(
        self,
        plugin: PartitioningLakePlugin,
        open_sized: Callable[[int], Lake],
        read_each_snapshot: ReadSnapshots | None,
    ) -> None:
        if read_each_snapshot is None:
            pytest.skip("declared: read_each_snapshot gives None; a reader sees no snapshots of this lake")
        table = key_table(**partitioned("region"))
        lake = open_sized(_HUGE)
        first = _Partitions(plugin, lake, table)
        first.write(rows_with_bucket([{"id": 1, "region": "north"}, {"id": 2, "region": "north"}], changes=[1, 1]))
        first.commit()
        known = len(read_each_snapshot(PATH))
        second = _Partitions(plugin, lake, table, 2)
        moved = [{"id": 1, "region": "north"}, {"id": 1, "region": "south"}]
        second.write(rows_with_bucket(moved, start=2, changes=[Change.DELETE, Change.UPDATE_AFTER]))
        second.commit()
        states = [_regions(rows) for rows in read_each_snapshot(PATH)[known - 1 :]]
        found = [state for number, state in enumerate(states) if not number or state != states[number - 1]]
        expected = [[(1, "north"), (2, "north")], [(1, "south"), (2, "north")]]
        where = "commit of a key that moves to another partition: id and region of the rows, by snapshot"
        assert found == expected, mismatch(where, expected, found)

    @upsert
    def test_a_key_that_moves_and_comes_back_within_a_round_is_there_once(
        self, plugin: PartitioningLakePlugin, open_sized: Callable[[int], Lake], read_partitioned: ReadTable
    ) -> None:
        table = key_table(**partitioned("region"))
        lake = open_sized(_HUGE)
        first = _Partitions(plugin, lake, table)
        first.write(rows_with_bucket([{"id": 1, "region": "north"}], changes=[Change.INSERT]))
        first.commit()
        second = _Partitions(plugin, lake, table, 2)
        there = [{"id": 1, "region": "north"}, {"id": 1, "region": "south"}]
        changes = [Change.DELETE, Change.UPDATE_AFTER]
        second.write(rows_with_bucket(there, start=1, changes=changes))
        second.write(rows_with_bucket(there[::-1], start=3, changes=changes))
        second.commit()
        where = "commit of a key that moves to another partition and comes back"
        _check_regions(read_partitioned, [(1, "north")], where)

    @pytest.mark.parametrize("keyed", [False, True], ids=["log", "key"])
    @chaos
    def test_another_writer_goes_on_from_the_files_of_the_partition(
        self,
        plugin: PartitioningLakePlugin,
        open_sized: Callable[[int], Lake],
        read_partitioned: ReadTable,
        *,
        keyed: bool,
    ) -> None:
        table = (key_table if keyed else log_table)(**partitioned("region"))
        tiering = _Partitions(plugin, open_sized(1), table)
        rows = [{"id": number, "region": "north"} for number in range(10)]
        changes = [Change.INSERT if keyed else Change.APPEND] * 5
        (partition,) = tiering.partitioner.partition(rows_with_bucket(rows).records).partitions
        first = tiering.writer(partition, ())
        first.write(rows_with_bucket(rows[:5], changes=changes))
        before = first.roll()
        flushed = first.all_rows_flushed
        assert flushed, mismatch("roll of a partition's writer: all_rows_flushed afterwards", True, flushed)
        first.write(rows_with_bucket(rows[5:], start=5, changes=changes))
        first.abort()
        second = tiering.writer(partition, before)
        second.write(rows_with_bucket(rows[5:], start=5, changes=changes))
        if keyed:
            second.write(rows_with_bucket(rows[:1], start=10, changes=[Change.DELETE]))
        files = second.close()
        kept, where = files[: len(before)], "of a partition's writer that goes on from a checkpoint"
        assert kept == before, mismatch(f"close {where}: first files", before, kept)
        tiering.round.files += files
        tiering.commit()
        expected: list[tuple[object, object]] = [(number, "north") for number in range(int(keyed), 10)]
        _check_regions(read_partitioned, expected, f"commit {where}")

    @pytest.mark.parametrize("target_bytes", [1 << 12, 1 << 14, 1 << 16])
    @pytest.mark.parametrize("keyed", [False, True], ids=["log", "key"])
    @chaos
    def test_all_rows_count_as_flushed_only_while_closed_files_hold_them(
        self, plugin: PartitioningLakePlugin, open_sized: Callable[[int], Lake], target_bytes: int, *, keyed: bool
    ) -> None:
        table = (key_table if keyed else log_table)(**partitioned("region"))
        tiering = _Partitions(plugin, open_sized(target_bytes), table)
        rows = [{"id": number, "region": "north", "at": number * _HOUR_US} for number in range(4000)]
        (partition,) = tiering.partitioner.partition(rows_with_bucket(rows[:1]).records).partitions
        writer = tiering.writer(partition, ())
        changes = [Change.INSERT if keyed else Change.APPEND] * 100
        for start in range(0, 4000, 100):
            writer.write(rows_with_bucket(rows[start : start + 100], start=start, changes=changes))
            files = writer.roll()
            if writer.all_rows_flushed:
                _check_counted(files, writer, start + 100, "roll, where all_rows_flushed is True")
        _check_counted(writer.close(), writer, 4000, "close of a partition's writer")

    def test_a_table_with_data_gets_another_layout_and_keeps_its_rows(
        self, plugin: PartitioningLakePlugin, open_sized: Callable[[int], Lake], read_partitioned: ReadTable
    ) -> None:
        lake = open_sized(_HUGE)
        for number, fields in enumerate((("region",), ("day(at)", "bucket(4, id)"), ("region",)), 1):
            table = log_table(**partitioned(*fields))
            tiering = _Partitions(plugin, lake, table, number)
            tiering.write(rows_with_bucket(some_rows(40)[10 * number : 10 * number + 10], start=10 * number))
            tiering.commit()
        rows = read_partitioned(PATH).sort_by("id")
        check_values(rows, "id", list(range(10, 40)), "open_table with another partitioning, twice, and commits")

    @upsert
    def test_a_key_whose_row_lies_in_another_layout_is_updated(
        self, plugin: PartitioningLakePlugin, open_sized: Callable[[int], Lake], read_partitioned: ReadTable
    ) -> None:
        lake = open_sized(_HUGE)
        first = _Partitions(plugin, lake, key_table(**partitioned("region")))
        first.write(rows_with_bucket([{"id": 1, "region": "north"}, {"id": 2, "region": "south"}], changes=[1, 1]))
        first.commit()
        second = _Partitions(plugin, lake, key_table(**partitioned("bucket(2, id)")), 2)
        second.write(rows_with_bucket([{"id": 1, "region": "west"}], start=2, changes=[Change.UPDATE_AFTER]))
        second.commit()
        where = "commit of a key whose row lies in another partitioning"
        _check_regions(read_partitioned, [(1, "west"), (2, "south")], where)

    @chaos
    def test_a_file_of_another_layout_is_refused(
        self, plugin: PartitioningLakePlugin, open_sized: Callable[[int], Lake]
    ) -> None:
        lake = open_sized(_HUGE)
        first = _Partitions(plugin, lake, log_table(**partitioned("region")))
        ((file,),) = first.write(rows_with_bucket([{"id": 1, "region": "north"}])).values()
        second = _Partitions(plugin, lake, log_table(**partitioned("bucket(2, id)")), 2)
        with expect_error(LakeError, "partition_of a file of another partitioning"):
            second.partitioner.partition_of(file)


class _Partitions:
    """One round on a partitioned table: each partition of a batch is written by a writer of its own."""

    def __init__(self, plugin: PartitioningLakePlugin, lake: Lake, table: TableSpec, number: int = 1) -> None:
        self.round = TieringRound(plugin, lake, table, incarnation(1000 + number), number)
        self.partitioner = plugin.partitioner(self.round.task, table)
        self._plugin = plugin
        self._writers = 0
        self._files: dict[bytes, tuple[LakeFile, ...]] = {}

    def writer(self, partition: bytes, before: tuple[LakeFile, ...]) -> LakeWriter:
        self._writers += 1
        made = self.round
        name = f"w{self._writers}"
        return self._plugin.partition_writer(made.task, made.table, partition, name, 1, before, 1 << 20)

    def write(self, batch: SourceBatch) -> dict[bytes, tuple[LakeFile, ...]]:
        """Write a batch; return the files of its partitions so far."""
        codes, partitions = self.partitioner.partition(batch.records)
        for code, partition in enumerate(partitions):
            writer = self.writer(partition, self._files.get(partition, ()))
            rows = batch.records.filter(pa.array(codes == code))
            writer.write(type(batch)(rows, batch.next_offset))
            self._files[partition] = writer.close()
        return {partition: self._files[partition] for partition in partitions}

    def commit(self) -> None:
        self.round.files += [file for files in self._files.values() for file in files]
        check_landed(self.round.lake.commit(self.round.request()))


def _check_shared(
    fields: tuple[PartitionField, ...], rows: Sequence[Mapping[str, Any]], found: Sequence[bytes | None]
) -> None:
    """Check which rows are in one partition. Which bucket a value is in is the lake's own matter."""
    __tracebackhide__ = True
    where = f"partition by {', '.join(map(str, fields))}"
    places = [tuple(transformed(field, row.get(field.column)) for field in fields) for row in rows]
    known: dict[tuple[object, ...], tuple[bytes | None, Mapping[str, Any]]] = {}
    for row, place, partition in zip(rows, places, found, strict=True):
        assert partition is not None, f"{where}: expected a partition of row {row}, found none"
        one, other = known.setdefault(place, (partition, row))
        said = f"{where}: expected rows {other} and {row} in one partition, found {one!r} and {partition!r}"
        assert one == partition, said
    plain = [number for number, field in enumerate(fields) if field.transform != "bucket"]
    owners: dict[bytes | None, tuple[tuple[object, ...], Mapping[str, Any]]] = {}
    shares: dict[tuple[object, ...], set[bytes | None]] = defaultdict(set)
    for row, place, partition in zip(rows, places, found, strict=True):
        key = tuple(place[number] for number in plain)
        shares[key].add(partition)
        one_key, other = owners.setdefault(partition, (key, row))
        said = f"{where}: expected rows {other} and {row} in two partitions, found both in {partition!r}"
        assert one_key == key, said
    buckets = int(np.prod([field.argument or 1 for field in fields if field.transform == "bucket"]))
    most = max(map(len, shares.values()))
    assert most <= buckets, (
        f"{where}: expected at most {buckets} buckets of rows that differ in nothing else, found {most}"
    )
    said = f"{where}: expected rows of several buckets, found one bucket for all of {len(rows)} ids"
    assert buckets == 1 or len(owners) > len(shares), said


def _regions(rows: pa.Table) -> list[tuple[object, object]]:
    return sorted(zip(rows.column("id").to_pylist(), rows.column("region").to_pylist(), strict=True))


def _check_regions(read_partitioned: ReadTable, expected: list[tuple[object, object]], where: str) -> None:
    __tracebackhide__ = True
    found = _regions(read_partitioned(PATH))
    said = mismatch(f"{where}: id and region of the rows as a reader sees them", expected, found)
    assert found == expected, said


def _check_counted(files: tuple[LakeFile, ...], writer: LakeWriter, taken: int, where: str) -> None:
    __tracebackhide__ = True
    found = sum(file.rows for file in files if file.kind == "data") + writer.left_out
    said = mismatch(f"{where}: rows of the closed data files and those that `left_out` counts", taken, found)
    assert found == taken, said
