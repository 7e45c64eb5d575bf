"""Reads the embedded store in a subtask: log ranges and KV snapshots as Arrow batches of mapped files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from lakeward.errors import CorruptFileError, LogTruncatedError, SnapshotGoneError, TableError, TableGoneError
from lakeward.model.batches import (
    BatchGatherer,
    SourceBatch,
    batch_schema,
    concat_batches,
    log_records,
    snapshot_records,
    split_batch,
)
from lakeward.model.column_ids import column_id
from lakeward.model.tables import CHANGE_COLUMN, Change
from lakeward_source_embedded.arrow_files import ArrowFile
from lakeward_source_embedded.catalog import key_of
from lakeward_source_embedded.column_ids import fitted, is_newer, is_wider
from lakeward_source_embedded.database import Database

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    import pyarrow as pa

    from lakeward.model.splits import LogSplit, SnapshotSplit
    from lakeward.model.tables import TableBucket, TableSpec

_SEGMENTS = """
SELECT base, stop, rows, timestamp_ms, file, batch FROM segments
WHERE table_id = ? AND partition_id = ? AND bucket = ? AND stop > ? AND base < ? ORDER BY stop"""
_BUCKET = "SELECT log_start, log_end FROM buckets WHERE table_id = ? AND partition_id = ? AND bucket = ?"
_SNAPSHOT = """
SELECT file, rows FROM snapshots WHERE table_id = ? AND partition_id = ? AND bucket = ? AND snapshot_id = ?"""
_Segment = tuple[int, int, int, int, str, int]


class ReaderTask(msgspec.Struct, frozen=True):
    """What a subtask's reader needs; the bytes of `Source.reader_task`."""

    directory: str


_TASKS = msgspec.msgpack.Decoder(ReaderTask)
"""Made while this is imported: threads that learn a type at the same time crash the process."""


class EmbeddedReader:
    """See `lakeward.ports.SourceReader`."""

    def __init__(self, root: Path, table: TableSpec) -> None:
        """Open the store for one table."""
        self._root = root
        self._table = table
        self._checked: set[tuple[str, int]] = set()
        self._database = Database(root)
        self._schema = batch_schema(table.schema)

    @classmethod
    def of_task(cls, task: bytes, table: TableSpec) -> EmbeddedReader:
        """Open from the bytes of `Source.reader_task`."""
        return cls(Path(_TASKS.decode(task).directory), table)

    def read_log(self, split: LogSplit) -> Iterator[SourceBatch]:
        """See Protocol."""
        with self._database.read() as sql:
            start, end = self._bucket(sql, split.bucket)
            segments = sql.execute(_SEGMENTS, (*key_of(split.bucket), split.start, split.stop)).fetchall()
        if split.start < start:
            raise self._truncated(split, start)
        if end < split.stop:
            message = f"bucket {split.bucket} of {self._table.path}"
            raise CorruptFileError(str(self._database.file), f"{message} up to offset {split.stop}", end)
        return self._log_batches(split, segments)

    def read_snapshot(self, split: SnapshotSplit, skip_rows: int = 0) -> Iterator[SourceBatch]:
        """See Protocol. The file is mapped at once, so it can still be read after it was deleted."""
        with self._database.read() as sql:
            self._bucket(sql, split.bucket)
            row = sql.execute(_SNAPSHOT, (*key_of(split.bucket), split.snapshot_id)).fetchone()
        if row is None:
            raise self._snapshot_gone(split)
        path = self._root / row[0]
        try:
            file = ArrowFile(path, self._checked)
        except FileNotFoundError as error:
            raise self._snapshot_gone(split) from error
        return self._snapshot_batches(split, path, file, int(row[1]), skip_rows)

    def close(self) -> None:
        """See Protocol."""
        self._database.close()

    def _log_batches(self, split: LogSplit, segments: list[_Segment]) -> Iterator[SourceBatch]:
        """Yield each segment's part of the split; the last batch ends at the split's end."""
        gatherer = BatchGatherer(self._schema, self._where(split.bucket), split.start)
        for base, stop, rows, timestamp_ms, file, number in segments:
            first, end = max(base, split.start), min(stop, split.stop)
            if not rows:
                yield from gatherer.add(None, first, end, empty=end - first)
                continue
            complete = self._batch(split, file, number, stop - base)
            part = self._log_batch(complete.slice(first - base, end - first), first, timestamp_ms)
            yield from gatherer.add(part, first, end)
        yield from gatherer.rest()

    def _snapshot_batches(
        self, split: SnapshotSplit, path: Path, file: ArrowFile, rows: int, skip_rows: int
    ) -> Iterator[SourceBatch]:
        given, left, found = 0, skip_rows, 0
        for number in range(file.batches):
            # Of a mapped batch that is skipped only the metadata is read.
            mapped = file.batch(number, check=False)
            found += len(mapped)
            skipped = min(left, len(mapped))
            left -= skipped
            if skipped < len(mapped):
                mapped = file.batch(number)
            complete = self._fitted(mapped.slice(skipped))
            for batch in split_batch(complete) if len(complete) else ():
                given += len(batch)
                yield SourceBatch(snapshot_records(self._schema, batch), split.log_offset)
        if left:
            raise CorruptFileError(str(path), f"at least {skip_rows} rows", skip_rows - left)
        if found != rows:
            raise CorruptFileError(str(path), f"{rows} rows", found)
        if not given:
            yield SourceBatch(concat_batches([], self._schema), split.log_offset)

    def _bucket(self, sql: sqlite3.Connection, bucket: TableBucket) -> tuple[int, int]:
        row = sql.execute(_BUCKET, key_of(bucket)).fetchone()
        if row is None:
            message = f"table {self._table.path}: bucket {bucket} is no more: its table or partition was dropped"
            raise TableGoneError(message)
        return int(row[0]), int(row[1])

    def _batch(self, split: LogSplit, file: str, number: int, rows: int) -> pa.RecordBatch:
        path = self._root / file
        try:
            batch = ArrowFile(path, self._checked).batch(number)
        except FileNotFoundError as error:
            with self._database.read() as sql:
                start, _ = self._bucket(sql, split.bucket)
            if start > split.start:
                raise self._truncated(split, start) from error
            raise CorruptFileError(str(path), "a log segment", "no file") from error
        if len(batch) != rows:
            raise CorruptFileError(str(path), f"{rows} rows in batch {number}", len(batch))
        return batch

    def _log_batch(self, part: pa.RecordBatch, first: int, timestamp_ms: int) -> pa.RecordBatch:
        changes = part.column(CHANGE_COLUMN) if self._table.has_primary_key else Change.APPEND
        return log_records(self._schema, self._fitted(part), changes, first, timestamp_ms)

    def _fitted(self, part: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with the columns and types that the round knows.

        Raises:
            TableError: they are newer than the round: a column would be lost, or a value does not fit the old type.
        """
        table = self._table
        known = {*table.schema.names, *table.left_out, CHANGE_COLUMN}
        unnumbered = {field.name for field in part.schema if column_id(field) is None}
        newer = not known.issuperset(unnumbered) or is_newer(part.schema, table.schema)
        if newer or is_wider(part.schema, table.schema):
            message = f"table {table.path} was changed while the round ran; the next one takes the new columns in"
            raise TableError(message)
        return fitted(part, table.schema)

    def _where(self, bucket: TableBucket) -> str:
        return f"table {self._table.path}, bucket {bucket}"

    def _truncated(self, split: LogSplit, start: int) -> LogTruncatedError:
        return LogTruncatedError(
            f"{self._where(split.bucket)}: expected log records from offset {split.start}, "
            f"found the log to begin at {start}"
        )

    def _snapshot_gone(self, split: SnapshotSplit) -> SnapshotGoneError:
        return SnapshotGoneError(f"{self._where(split.bucket)}: KV snapshot {split.snapshot_id} was cleaned away")
