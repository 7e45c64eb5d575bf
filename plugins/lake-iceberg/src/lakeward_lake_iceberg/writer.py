"""The writer of log tables: every record becomes a row."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward_lake_iceberg.datafile import DataFiles, FileNames
from lakeward_lake_iceberg.rows import RowConverter
from lakeward_lake_iceberg.storage import Storage

if TYPE_CHECKING:
    from lakeward.model.results import LakeFile
    from lakeward.model.splits import Split
    from lakeward.model.tables import TableSpec
    from lakeward.ports import SourceBatch
    from lakeward_lake_iceberg.task import WriterTask

GROUP_ROWS = 1 << 19
GROUP_BYTES = 64 * 1024 * 1024
"""A row group is written at so many rows or bytes of Arrow; this bounds a writer's memory."""


class AppendWriter:
    """See `lakeward.ports.LakeWriter`."""

    def __init__(self, task: WriterTask, table: TableSpec, split: Split, attempt: int) -> None:
        """Open nothing yet: an empty split leaves no file."""
        storage = Storage(task.location, task.storage)
        names = FileNames(task, split.split_id, attempt)
        self._converter = RowConverter(table, task.arrow_schema(), split.bucket.bucket)
        self._files = DataFiles(storage, task, (*split.partition, split.bucket.bucket), names.next)
        self._pending: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0
        self._encode_s = 0.0

    def write(self, batch: SourceBatch) -> None:
        """See `lakeward.ports.LakeWriter.write`."""
        if not batch.records.num_rows:
            return
        started = time.perf_counter()
        converted = self._converter.convert(batch.records)
        self._pending.append(converted)
        self._rows += converted.num_rows
        self._bytes += converted.nbytes
        if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._flush()
        self._encode_s += time.perf_counter() - started

    def close(self) -> tuple[LakeFile, ...]:
        """See `lakeward.ports.LakeWriter.close`."""
        started = time.perf_counter()
        self._flush()
        self._files.roll()
        self._encode_s += time.perf_counter() - started
        return tuple(self._files.closed)

    def abort(self) -> None:
        """See `lakeward.ports.LakeWriter.abort`."""
        self._pending.clear()
        self._files.abort()

    @property
    def timings_s(self) -> dict[str, float]:
        """See `lakeward.ports.LakeWriter.timings_s`."""
        upload_s = self._files.upload_s
        return {"encode": max(0.0, self._encode_s - upload_s), "upload": upload_s}

    def _flush(self) -> None:
        if self._pending:
            rows = pa.Table.from_batches(self._pending, schema=self._converter.schema)
            self._pending.clear()
            self._rows = self._bytes = 0
            self._files.write(rows)
