"""A source made of `LogSource` and `LogReader` passes the suite of all sources, but for what it does not have."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakeward.errors import LeaseApiMissingError, LogGapError, LogTruncatedError, SnapshotGoneError, TableGoneError
from lakeward.hooks.log_source import LogPart, LogReader, LogSource, log_table
from lakeward.model.splits import LogSplit, SnapshotSplit
from lakeward.model.tables import OFFSET_COLUMN, TIMESTAMP_COLUMN, BucketState, TableBucket, TablePath, TableSpec
from lakeward_testing.source_conformance import SourceConformance
from lakeward_testing.source_world import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakeward.ports import Source, SourceReader
    from lakeward_testing.source_world import SourceWorld

PATH = TablePath("shop", "orders")


@dataclass
class Logs:
    """A table: a list of rows for each bucket, and the first offset that is still there."""

    spec: TableSpec
    rows: list[list[dict[str, Any]]]
    start: int = 0


@dataclass
class System:
    """What knows of logs alone."""

    tables: dict[TablePath, Logs] = field(default_factory=dict)
    made: int = 0

    def of(self, table: TableSpec) -> Logs:
        found = self.tables.get(table.path)
        if found is None or found.spec.table_id != table.table_id:
            raise TableGoneError(str(table.path))
        return found


class ListSource(LogSource):
    name = "lists"

    def __init__(self, system: System) -> None:
        self._system = system

    def all_tables(self) -> Sequence[TableSpec]:
        return [logs.spec for logs in self._system.tables.values()]

    def buckets(self, table: TableSpec) -> Sequence[BucketState]:
        logs = self._system.of(table)
        return [
            BucketState(TableBucket(table.table_id, None, number), (), logs.start, len(rows), None)
            for number, rows in enumerate(logs.rows)
        ]

    def reader_task(self, table: TableSpec) -> bytes:
        logs = self._system.tables[table.path]
        return json.dumps([logs.spec.table_id, logs.start, logs.rows]).encode()


class ListReader(LogReader):
    def __init__(self, task: bytes, table: TableSpec) -> None:
        super().__init__(table)
        self._table_id, self._start, self._rows = json.loads(task)

    def rows(self, split: LogSplit) -> Sequence[Mapping[str, Any]]:
        if self._table_id != self.table.table_id:
            raise TableGoneError(str(self.table.path))
        if split.start < self._start:
            raise LogTruncatedError(str(self.table.path))
        rows: list[dict[str, Any]] = self._rows[split.bucket.bucket]
        return rows[split.start : split.stop]


class ListWorld:
    def __init__(self) -> None:
        self._system = System()
        self.source: Source = ListSource(self._system)
        self.tiering_timeout_s = 0.0

    def reader(self, table: TableSpec) -> SourceReader:
        return ListReader(self.source.reader_task(table), table)

    def create(
        self,
        path: TablePath,
        *,
        primary_key: bool,
        partitioned: bool = False,
        buckets: int = 1,
        freshness_s: float = 60,
    ) -> TableSpec:
        assert not primary_key
        assert not partitioned
        self._system.made += 1
        spec = log_table(path, SCHEMA, table_id=self._system.made, buckets=buckets, freshness_s=freshness_s)
        self._system.tables[path] = Logs(spec, [[] for _ in range(buckets)])
        return spec

    def write(self, path: TablePath, rows: Sequence[tuple[str, int, str]], day: str = "mon") -> None:
        logs = self._system.tables[path]
        for _, number, name in rows:
            logs.rows[number % len(logs.rows)].append({"id": number, "name": name, "day": day})

    def drop(self, path: TablePath) -> None:
        del self._system.tables[path]

    def add_column(self, path: TablePath, name: str) -> None:
        logs = self._system.tables[path]
        schema = logs.spec.schema.append(pa.field(name, pa.string()))
        logs.spec = log_table(path, schema, table_id=logs.spec.table_id, schema_id=logs.spec.schema_id + 1)

    def trim(self, path: TablePath, bucket: int, before: int) -> None:
        assert bucket == 0
        self._system.tables[path].start = before

    def advance(self, seconds: float) -> None:
        """Nothing depends on time."""

    def snapshot(self, path: TablePath) -> None:
        raise NotImplementedError

    def append_empty(self, path: TablePath, bucket: int, count: int) -> None:
        raise NotImplementedError

    def lose(self, path: TablePath, bucket: int, offset: int) -> None:
        raise NotImplementedError

    def set_lease_api(self, *, on: bool) -> None:
        raise NotImplementedError


class TestListSource(SourceConformance):
    __test__ = True

    has_tiering_queue = False
    has_primary_keys = False
    has_partitions = False
    has_write_times = False
    has_empty_batches = False

    @pytest.fixture
    def world(self) -> SourceWorld:
        return ListWorld()


class Parts(LogReader):
    """Reads parts that a test gives."""

    def __init__(self, *parts: LogPart) -> None:
        super().__init__(log_table(PATH, pa.schema([("id", pa.int64())])))
        self._parts = parts

    def parts(self, split: LogSplit) -> Iterator[LogPart]:
        return iter(self._parts)


def some(*ids: int) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(ids, pa.int64())})


def split(start: int, stop: int) -> LogSplit:
    return LogSplit("split", TableBucket(1, None, 0), (), start, stop)


def test_a_system_with_write_times_and_empty_offsets_gives_them_with_its_parts() -> None:
    reader = Parts(LogPart(3, some(7, 8), timestamp_ms=1000, empty=2), LogPart(7, some(9), timestamp_ms=2000))

    (batch,) = reader.read_log(split(3, 8))

    assert batch.records.column(OFFSET_COLUMN).to_pylist() == [3, 4, 7]
    assert batch.records.column(TIMESTAMP_COLUMN).cast(pa.int64()).to_pylist() == [1_000_000, 1_000_000, 2_000_000]
    assert (batch.next_offset, batch.empty_offsets) == (8, 2)


def test_a_hole_between_two_parts_is_an_error() -> None:
    with pytest.raises(LogGapError):
        list(Parts(LogPart(0, some(1)), LogPart(2, some(2))).read_log(split(0, 3)))


def test_many_rows_become_few_batches_that_end_at_the_stop() -> None:
    class Counted(LogReader):
        def rows(self, split: LogSplit) -> Iterator[Mapping[str, Any]]:
            for number in range(split.start, split.stop + 5):  # more than was asked for
                yield {"id": number, "unknown": "left out"}

    batches = list(Counted(log_table(PATH, pa.schema([("id", pa.int64())]))).read_log(split(10, 100_010)))

    assert len(batches) == 2
    assert sum(batch.records.num_rows for batch in batches) == 100_000
    assert batches[-1].next_offset == 100_010


def test_a_source_of_logs_has_no_snapshots_and_a_lease_on_none_is_no_error() -> None:
    leases, bucket = ListSource(System()).leases, TableBucket(1, None, 0)
    assert leases.acquire("lease", 60.0, {}).unavailable == {}
    leases.release("lease", [bucket])
    leases.drop("lease")
    with pytest.raises(LeaseApiMissingError):
        leases.acquire("lease", 60.0, {bucket: 5})
    with pytest.raises(SnapshotGoneError):
        Parts().read_snapshot(SnapshotSplit("split", bucket, (), 5, 0))


def test_the_id_of_a_table_without_one_is_that_of_its_name_in_each_process() -> None:
    schema = pa.schema([("id", pa.int64())])
    assert log_table(PATH, schema).table_id == 127_925_404_621_809
    assert log_table(PATH, schema).table_id != log_table(TablePath("shop", "returns"), schema).table_id
