"""A source of append-only logs, for systems that know nothing of tiering: what it has to do beside reading.

Tables of such a source are mirrored (`mode = "mirror"`): the service schedules them itself and keeps their offsets in
the lake. So there is no tiering queue, no record of the lake, no KV snapshot and no lease on one. A plugin writes a
`LogSource` that lists tables and buckets, and a `LogReader` that reads rows.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakeward.errors import LeaseApiMissingError, SnapshotGoneError, TableGoneError
from lakeward.model.batches import BatchGatherer, batch_schema, log_records
from lakeward.model.protection import Protection
from lakeward.model.tables import NO_TIME_MS, Change, TableSpec
from lakeward.model.tiering import HeartbeatResponse, Refusal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from lakeward.model.splits import LogSplit, SnapshotSplit
    from lakeward.model.tables import BucketState, KvSnapshot, TableBucket, TablePath
    from lakeward.model.tiering import HeartbeatRequest, LakeRecord
    from lakeward.ports import SnapshotLeases, SourceBatch

_ID_BYTES = 6
"""Of an id that is made of a name: programs that read JSON keep integers of up to 53 bits."""
_ROWS = 1_000
"""Rows that are made one by one are held in so large parts; larger batches are made of the parts."""


def log_table(
    path: TablePath,
    schema: pa.Schema,
    *,
    table_id: int | None = None,
    schema_id: int = 1,
    buckets: int = 1,
    freshness_s: float = 60.0,
) -> TableSpec:
    """Return an append-only table without partitions.

    A system that has ids gives them as `table_id`: a table that was dropped and made anew is then another one. Without,
    the id is made of the name. A changed schema has a higher `schema_id`.
    """
    if table_id is None:
        table_id = int.from_bytes(hashlib.sha256(str(path).encode()).digest()[:_ID_BYTES])
    return TableSpec(path, table_id, schema_id, schema, (), (), (), buckets, freshness_s)


class NoLeases:
    """See `lakeward.ports.SnapshotLeases`. There is nothing to hold, and a lease on nothing is no error."""

    def acquire(self, lease_id: str, duration_s: float, snapshots: Mapping[TableBucket, int]) -> Protection:
        """See Protocol."""
        del lease_id, duration_s
        if snapshots:
            message = "a source of logs has no KV snapshots, and so no leases on them"
            raise LeaseApiMissingError(message)
        return Protection(None)

    def release(self, lease_id: str, buckets: Collection[TableBucket]) -> None:
        """See Protocol."""

    def drop(self, lease_id: str) -> None:
        """See Protocol."""


class LogSource(ABC):
    """See `lakeward.ports.Source`. Left to write are `name`, `all_tables`, `buckets` and `reader_task`."""

    name: str
    has_write_times = False
    """True where each record's write time is known: then `pending_since_ms` is to be written, too."""
    leases: SnapshotLeases = NoLeases()

    @abstractmethod
    def all_tables(self) -> Sequence[TableSpec]:
        """See Protocol; `log_table` makes one."""

    @abstractmethod
    def buckets(self, table: TableSpec) -> Sequence[BucketState]:
        """See Protocol."""

    @abstractmethod
    def reader_task(self, table: TableSpec) -> bytes:
        """See Protocol."""

    def tables(self) -> Sequence[TableSpec]:
        """See Protocol. No table is lake-enabled, so the configuration has to mirror them."""
        return ()

    def table(self, path: TablePath) -> TableSpec:
        """See Protocol."""
        for table in self.all_tables():
            if table.path == path:
                return table
        message = f"table {path}: expected a table, found none"
        raise TableGoneError(message)

    def missing_snapshots(self, snapshots: Collection[KvSnapshot]) -> frozenset[KvSnapshot]:
        """See Protocol. There are none, so all that are asked for are missing."""
        return frozenset(snapshots)

    def pending_since_ms(self, table: TableSpec, offsets: Mapping[TableBucket, int]) -> int | None:
        """See Protocol. Without write times nobody knows."""
        del table, offsets
        return None

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """See Protocol. No table is ever handed out, so none is anybody's."""
        named = (*request.renewed, *request.finished, *request.failed)
        return HeartbeatResponse(0, None, {epoch.table_id: Refusal.NOT_TIERING for epoch in named})

    def make_due(self, paths: Collection[TablePath]) -> bool:
        """See Protocol. There is no queue."""
        del paths
        return False

    def lake_record(self, table: TableSpec) -> LakeRecord | None:
        """See Protocol. There is no record."""
        del table
        return None

    def read_offsets(self, table: TableSpec, path: str) -> Mapping[TableBucket, int]:
        """See Protocol. No commit of a mirrored table names a file."""
        del table, path
        return {}

    def prepare(self, table: TableSpec, offsets: Mapping[TableBucket, int]) -> str:
        """See Protocol. Nothing is stored."""
        del table, offsets
        return ""

    def commit(self, table: TableSpec, snapshot_id: int, prepared: str, offsets: Mapping[TableBucket, int]) -> None:
        """See Protocol. Nothing is registered."""
        del table, snapshot_id, prepared, offsets

    def close(self) -> None:  # noqa: B027 - most have nothing to free
        """See Protocol. Nothing is held."""


@dataclass(frozen=True, slots=True)
class LogPart:
    """Some records with consecutive offsets from `first` on.

    `rows` has the table's columns, or more. `timestamp_ms` is when they were written, in ms since 1970. So many
    offsets after them as `empty` says hold no record.
    """

    first: int
    rows: pa.RecordBatch
    timestamp_ms: int = NO_TIME_MS
    empty: int = 0


class LogReader:
    """See `lakeward.ports.SourceReader`. Left to write is `rows`, or `parts` for what rows cannot say."""

    def __init__(self, table: TableSpec) -> None:
        """Keep the table; nothing is opened."""
        self.table = table

    def rows(self, split: LogSplit) -> Iterable[Mapping[str, Any]]:
        """Yield the rows of a split, one for each offset from `split.start` to before `split.stop`, by column name.

        A column that a row lacks is null; one that the table lacks is left out.

        Raises:
            RowError: a record cannot be decoded.
            LogTruncatedError, TableGoneError: as `SourceReader.read_log`.
        """
        raise NotImplementedError

    def parts(self, split: LogSplit) -> Iterator[LogPart]:
        """Yield the records of a split, without a hole between two parts; those that `rows` yields.

        To be written instead of `rows` where the system has Arrow batches, write times, or offsets without a record.
        Raises as `rows`.
        """
        rows, first = iter(islice(self.rows(split), split.stop - split.start)), split.start
        while some := list(islice(rows, _ROWS)):
            yield LogPart(first, pa.RecordBatch.from_pylist(some, self.table.schema))
            first += len(some)

    def read_log(self, split: LogSplit) -> Iterator[SourceBatch]:
        """See Protocol."""
        schema, where = batch_schema(self.table.schema), f"table {self.table.path}, bucket {split.bucket}"
        gatherer = BatchGatherer(schema, where, split.start)
        for part in self.parts(split):
            rows = part.rows.select(self.table.schema.names)
            records = log_records(schema, rows, Change.APPEND, part.first, part.timestamp_ms)
            end = part.first + len(part.rows) + part.empty
            yield from gatherer.add(records, part.first, end, empty=part.empty)
        yield from gatherer.rest()

    def read_snapshot(self, split: SnapshotSplit, skip_rows: int = 0) -> Iterator[SourceBatch]:
        """See Protocol. There are none."""
        del skip_rows
        message = f"bucket {split.bucket}: expected no snapshot of a log, found {split.snapshot_id}"
        raise SnapshotGoneError(message)

    def close(self) -> None:
        """See Protocol. Nothing is held."""
