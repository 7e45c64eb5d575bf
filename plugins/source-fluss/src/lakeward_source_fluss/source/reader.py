"""A Fluss cluster in a subtask: log ranges and KV snapshots as Arrow batches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING

from lakeward.model.batches import (
    BatchGatherer,
    SourceBatch,
    batch_schema,
    concat_batches,
    log_records,
    snapshot_records,
    split_batch,
)
from lakeward_source_fluss.formats.encodings import Encoding
from lakeward_source_fluss.formats.logbatch import LogBatch, decode, raw_value
from lakeward_source_fluss.formats.rows import rows_at_once
from lakeward_source_fluss.formats.storage import Storage
from lakeward_source_fluss.source.bucket_log import BucketLog
from lakeward_source_fluss.source.connect import connect
from lakeward_source_fluss.source.kv_scan import KvScan
from lakeward_source_fluss.source.naming import naming_release
from lakeward_source_fluss.source.options import unpack_task
from lakeward_source_fluss.source.read_log import read_batches
from lakeward_source_fluss.source.read_snapshot import SnapshotReading
from lakeward_source_fluss.source.schemas import TableSchemas
from lakeward_source_fluss.source.table_formats import kv_encoding, log_format
from lakeward_source_fluss.source.undecodable import UNDECODABLE, UndecodableRows

if TYPE_CHECKING:
    import pyarrow as pa

    from lakeward.model.splits import LogSplit, SnapshotSplit
    from lakeward.model.tables import TableBucket, TableSpec
    from lakeward_source_fluss.rpc.client import FlussClient
    from lakeward_source_fluss.source.options import FlussOptions


class FlussReader:
    """See `lakeward.ports.SourceReader`."""

    def __init__(self, client: FlussClient, options: FlussOptions, table: TableSpec) -> None:
        """Read one table; `close` closes the client."""
        self._client = client
        self._options = options
        self._table = table
        self._storage = Storage(options.storage)
        self._format = log_format(table)
        # The server writes the log of such tables with the padding of the rows (fluss.md, "CHAR").
        self._padded = table.has_primary_key and kv_encoding(table) is Encoding.INDEXED
        self._schemas = TableSchemas(client, table)
        self._schema = batch_schema(table.schema)

    @classmethod
    def of_task(cls, task: bytes, table: TableSpec) -> FlussReader:
        """Open from the bytes of `Source.reader_task`."""
        options = unpack_task(task)
        return cls(connect(options), options, table)

    def read_log(self, split: LogSplit) -> Iterator[SourceBatch]:
        """See Protocol."""
        with naming_release(self._client):
            yield from self._log(split)

    def _log(self, split: LogSplit) -> Iterator[SourceBatch]:
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
        with naming_release(self._client):
            yield from self._snapshot(split, skip_rows)

    def _snapshot(self, split: SnapshotSplit, skip_rows: int) -> Iterator[SourceBatch]:
        rows = 0
        for batch, offset, decode_s in self._scan(split) if split.live else self._files(split, skip_rows):
            rows += len(batch)
            for part in split_batch(batch) if len(batch) else ():
                yield SourceBatch(snapshot_records(self._schema, part), offset, decode_s)
                decode_s = 0.0  # noqa: PLW2901 - the first part has taken it
        if not rows:
            yield SourceBatch(concat_batches([], self._schema), split.log_offset)

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
        return log_records(self._schema, rows, batch.changes[skipped : skipped + count], first, batch.timestamp_ms)
