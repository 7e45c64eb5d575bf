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
GROUP_BYTES = 32 * 1024 * 1024
"""A row group is written at this many rows or bytes of Arrow; this bounds a writer's memory."""


class AppendWriter:
    """See `lakeward.ports.LakeWriter`."""

    def __init__(  # noqa: PLR0917 - four say what is written; the others have their defaults
        self,
        task: WriterTask,
        table: TableSpec,
        split: Split,
        attempt: int,
        before: tuple[LakeFile, ...] = (),
        group_rows: int | None = None,
    ) -> None:
        """Open nothing yet: an empty split leaves no file. `before` are the files of the split's progress."""
        storage = Storage(task.location, task.storage)
        names = FileNames(task, split.split_id, attempt, len(before))
        self._before = before
        self._rolled: frozenset[str] = frozenset()
        self._group_rows = group_rows or GROUP_ROWS
        self._converter = RowConverter(table, task.arrow_schema(), split.bucket)
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
        if self._rows >= self._group_rows or self._bytes >= GROUP_BYTES:
            self._flush()
        self._encode_s += time.perf_counter() - started

    @property
    def all_rows_flushed(self) -> bool:
        """See `lakeward.ports.LakeWriter.all_rows_flushed`."""
        return not self._pending and not self._files.is_open

    def roll(self) -> tuple[LakeFile, ...]:
        """See `lakeward.ports.LakeWriter.roll`."""
        started = time.perf_counter()
        if self._pending and self._files.amounts_to_half(self._bytes):
            self._flush()
        if not self._pending and self._files.amounts_to_half(0):
            self._files.roll()
        self._encode_s += time.perf_counter() - started
        files = (*self._before, *self._files.closed)
        self._rolled = frozenset(file.path for file in files)
        return files

    def close(self) -> tuple[LakeFile, ...]:
        """See `lakeward.ports.LakeWriter.close`."""
        started = time.perf_counter()
        self._flush()
        self._files.roll()
        self._encode_s += time.perf_counter() - started
        return (*self._before, *self._files.closed)

    def abort(self) -> None:
        """See `lakeward.ports.LakeWriter.abort`."""
        self._pending.clear()
        self._files.abort(self._rolled)

    @property
    def left_out(self) -> int:
        """See `lakeward.ports.LakeWriter.left_out`; each record is a row."""
        return 0

    @property
    def timings_s(self) -> dict[str, float]:
        """See `lakeward.ports.LakeWriter.timings_s`."""
        upload_s = self._files.upload_s
        return {"encode": max(0.0, self._encode_s - upload_s), "upload": upload_s}

    def _flush(self) -> None:
        if self._pending:
            rows = pa.Table.from_batches(self._pending, schema=self._converter.schema)
            self._files.write(rows, self._bytes)
            self._pending.clear()
            self._rows = self._bytes = 0
