"""A Fluss cluster in a subtask: log ranges and KV snapshots as Arrow batches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakeward.model.tables import CHANGE_COLUMN, NO_OFFSET, OFFSET_COLUMN, TIMESTAMP_COLUMN, Change
from lakeward.ports import SourceBatch
from lakeward_fluss.formats.logbatch import LogBatch, decode
from lakeward_fluss.formats.storage import Storage
from lakeward_fluss.source.connecting import connect
from lakeward_fluss.source.fetching import BucketLog
from lakeward_fluss.source.kvscan import KvScan
from lakeward_fluss.source.logreading import log_format, read_batches
from lakeward_fluss.source.schemas import TableSchemas
from lakeward_fluss.source.snapshotreading import SnapshotReading
from lakeward_fluss.source.task import unpack_task

if TYPE_CHECKING:
    from lakeward.model.splits import LogSplit, SnapshotSplit
    from lakeward.model.tables import TableSpec
    from lakeward_fluss.rpc.client import FlussClient
    from lakeward_fluss.source.options import FlussOptions

ROWS_LEAST = 65_536
"""Small batches are gathered up to so many rows: below that the work per batch costs more than the copy."""
ROWS_MOST = 262_144
"""Large ones are cut, without a copy, into so many rows: that bounds what a writer holds."""
_SNAPSHOT_MS = -1
_SYSTEM = (
    pa.field(CHANGE_COLUMN, pa.uint8(), nullable=False),
    pa.field(OFFSET_COLUMN, pa.int64(), nullable=False),
    pa.field(TIMESTAMP_COLUMN, pa.timestamp("us", tz="UTC"), nullable=False),
)


class FlussReader:
    """See `lakeward.ports.SourceReader`."""

    def __init__(self, client: FlussClient, options: FlussOptions, table: TableSpec) -> None:
        """Read one table; `close` closes the client.

        Args:
            client: an open client.
            options: the `[source]` section.
            table: batches are given in its schema.
        """
        self._client = client
        self._options = options
        self._table = table
        self._storage = Storage(options.storage)
        self._format = log_format(table)
        self._schemas = TableSchemas(client, table)
        self._schema = pa.schema([*table.schema, *_SYSTEM])

    @classmethod
    def of_task(cls, task: bytes, table: TableSpec) -> FlussReader:
        """Open from the bytes of `Source.reader_task`."""
        options = unpack_task(task)
        return cls(connect(options), options, table)

    def read_log(self, split: LogSplit) -> Iterator[SourceBatch]:
        """See Protocol."""
        log = BucketLog(self._client, self._storage, self._table, split.bucket, self._options.fetch_bytes)
        held: list[pa.RecordBatch] = []
        rows, reached, given, decode_s = 0, split.start, -1, 0.0
        for batch in read_batches(log, self._format, split.start, split.stop):
            reached = min(batch.next_offset, split.stop)
            started = time.perf_counter()
            part = self._part(batch, split)
            decode_s += time.perf_counter() - started
            if part is not None:
                held.append(part)
                rows += len(part)
            if rows >= ROWS_LEAST:
                yield from _cut(held, reached, decode_s)
                held, rows, given, decode_s = [], 0, reached, 0.0
        if held:
            yield from _cut(held, reached, decode_s)
        elif reached > given:
            yield SourceBatch(self._empty(), reached)

    def read_snapshot(self, split: SnapshotSplit, skip_rows: int = 0) -> Iterator[SourceBatch]:
        """See Protocol."""
        rows = 0
        for batch, offset, decode_s in self._scan(split) if split.live else self._files(split, skip_rows):
            rows += len(batch)
            changes = np.full(len(batch), Change.INSERT, "u1")
            yield SourceBatch(self._whole(batch, changes, None, _SNAPSHOT_MS), offset, decode_s)
        if not rows:
            yield SourceBatch(self._empty(), split.log_offset)

    def _scan(self, split: SnapshotSplit) -> Iterator[tuple[pa.RecordBatch, int, float]]:
        log = BucketLog(self._client, self._storage, self._table, split.bucket, self._options.fetch_bytes)
        return ((batch, offset, 0.0) for batch, offset in KvScan(log).batches(self._schemas))

    def _files(self, split: SnapshotSplit, skip_rows: int) -> Iterator[tuple[pa.RecordBatch, int, float]]:
        reading = SnapshotReading(self._client, self._storage, self._table, Path(self._options.spool or gettempdir()))
        batches = reading.batches(split, self._schemas, skip_rows)
        return ((batch, split.log_offset, decode_s) for batch, decode_s in batches)

    def close(self) -> None:
        """See Protocol."""
        self._client.close()

    def _part(self, batch: LogBatch, split: LogSplit) -> pa.RecordBatch | None:
        """Decode a batch's share of the split; None where it has no records there."""
        first = max(batch.base_offset, split.start)
        count = min(batch.base_offset + batch.rows, split.stop) - first
        if count <= 0:
            return None
        skipped = first - batch.base_offset
        rows = decode(batch, self._schemas[batch.schema_id], self._table.schema).slice(skipped, count)
        offsets = np.arange(first, first + count, dtype=np.int64)
        return self._whole(rows, batch.changes[skipped : skipped + count], offsets, batch.timestamp_ms)

    def _whole(
        self, rows: pa.RecordBatch, changes: np.ndarray, offsets: np.ndarray | None, timestamp_ms: int
    ) -> pa.RecordBatch:
        """Add the system columns."""
        if offsets is None:
            offsets = np.full(len(rows), NO_OFFSET, dtype=np.int64)
        times = pa.array(np.full(len(rows), timestamp_ms * 1000, dtype=np.int64)).view(_SYSTEM[2].type)
        columns = [*rows.columns, pa.array(changes, pa.uint8()), pa.array(offsets), times]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _empty(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in self._schema], schema=self._schema)


def _cut(held: list[pa.RecordBatch], end: int, decode_s: float) -> Iterator[SourceBatch]:
    """Join what was gathered, and cut it where it is too large; the last piece ends where the last batch ended."""
    started = time.perf_counter()
    batch = held[0] if len(held) == 1 else pa.concat_batches(held)
    decode_s += time.perf_counter() - started
    for start in range(0, len(batch), ROWS_MOST):
        part = batch.slice(start, ROWS_MOST)
        last = start + len(part) == len(batch)
        yield SourceBatch(part, end if last else part.column(OFFSET_COLUMN)[-1].as_py() + 1, 0.0 if start else decode_s)
