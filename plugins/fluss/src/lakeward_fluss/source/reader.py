"""A Fluss cluster in a subtask: log ranges and KV snapshots as Arrow batches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakeward.model.batches import BatchGatherer, SourceBatch, cut
from lakeward.model.tables import CHANGE_COLUMN, NO_OFFSET, OFFSET_COLUMN, TIMESTAMP_COLUMN, Change
from lakeward_fluss.formats.encodings import Encoding
from lakeward_fluss.formats.logbatch import LogBatch, decode, raw_value
from lakeward_fluss.formats.rows import rows_at_once
from lakeward_fluss.formats.storage import Storage
from lakeward_fluss.source.connecting import connect
from lakeward_fluss.source.fetching import BucketLog
from lakeward_fluss.source.kvscan import KvScan
from lakeward_fluss.source.logreading import log_format, read_batches
from lakeward_fluss.source.schemas import TableSchemas
from lakeward_fluss.source.snapshotreading import SnapshotReading, kv_encoding
from lakeward_fluss.source.task import unpack_task
from lakeward_fluss.source.undecodable import UNDECODABLE, UndecodableRows

if TYPE_CHECKING:
    from lakeward.model.splits import LogSplit, SnapshotSplit
    from lakeward.model.tables import TableBucket, TableSpec
    from lakeward_fluss.rpc.client import FlussClient
    from lakeward_fluss.source.options import FlussOptions

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
        # The server writes the log of such tables with the padding of the rows (docs/explanation/fluss.md, "CHAR").
        self._padded = table.has_primary_key and kv_encoding(table) is Encoding.INDEXED
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
        gatherer = BatchGatherer(self._schema, log.name, split.start)
        for batch in read_batches(log, self._format, split.start, split.stop):
            first, end = max(batch.base_offset, split.start), min(batch.next_offset, split.stop)
            records_end = max(first, min(batch.base_offset + batch.rows, end))
            while first < records_end:
                started = time.perf_counter()
                part = self._part(batch, split.bucket, first, records_end)
                seconds = time.perf_counter() - started
                yield from gatherer.add(part, first, first + len(part), decode_s=seconds)
                first += len(part)
            if first < end:
                yield from gatherer.add(None, first, end, empty=end - first)
        yield from gatherer.rest()

    def read_snapshot(self, split: SnapshotSplit, skip_rows: int = 0) -> Iterator[SourceBatch]:
        """See Protocol."""
        rows = 0
        for batch, offset, decode_s in self._scan(split) if split.live else self._files(split, skip_rows):
            rows += len(batch)
            for part in cut(batch) if len(batch) else ():
                changes = np.full(len(part), Change.INSERT, "u1")
                yield SourceBatch(self._whole(part, changes, None, _SNAPSHOT_MS), offset, decode_s)
                decode_s = 0.0  # noqa: PLW2901 - the first part has taken it
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

    def _part(self, batch: LogBatch, bucket: TableBucket, first: int, end: int) -> pa.RecordBatch:
        """Decode a batch's records from an offset on, up to another one or as many as may be decoded at once."""
        schema = self._schemas[batch.schema_id]
        skipped, count = first - batch.base_offset, end - first
        if batch.records is not None:
            count = min(count, rows_at_once(schema.columns))

        def part(columns: pa.Schema, start: int, rows: int) -> pa.RecordBatch:
            return decode(batch, schema, columns, skipped + start, rows, padded=self._padded)

        try:
            rows = part(self._table.schema, 0, count)
        except UNDECODABLE as broken:
            raise UndecodableRows(
                self._table,
                bucket,
                count,
                part,
                lambda row: first + row,
                lambda row, column: raw_value(batch, skipped + row, column, schema),
            ).error(broken) from broken
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
