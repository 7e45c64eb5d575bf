"""The writer of log tables: every record becomes a row."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.model.lake_rows import RowConverter
from lakeward.model.results import LakeFile
from lakeward.model.tables import OFFSET_COLUMN
from lakeward_lake_paimon.column_stats import ColumnStats
from lakeward_lake_paimon.datafile import FileNames, ParquetFile, parquet_options
from lakeward_lake_paimon.detail import FileDetail, pack_detail
from lakeward_lake_paimon.places import PlaceFinder
from lakeward_lake_paimon.stores import open_storage

if TYPE_CHECKING:
    from lakeward.model.tables import TableSpec
    from lakeward.ports import SourceBatch
    from lakeward_lake_paimon.datafile import Place
    from lakeward_lake_paimon.task import WriterTask

GROUP_ROWS = 1 << 19
GROUP_BYTES = 32 * 1024 * 1024
"""A row group is written at this many rows or bytes of Arrow; this bounds a writer's memory."""
_MOST_RETAINED = 2
"""A slice is copied if what it keeps in memory is more than so many times itself."""


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """Rows and bytes of a row group; writers of one of many partitions make them small."""

    rows: int = GROUP_ROWS
    size_bytes: int = GROUP_BYTES


def own_memory(records: pa.RecordBatch) -> pa.RecordBatch:
    """Return records that do not keep a much larger batch in memory, of which they are a slice."""
    if records.get_total_buffer_size() <= _MOST_RETAINED * records.nbytes:
        return records
    # With one batch there would be no copy, and `take` of all rows is several times slower than a copy of memory.
    return pa.concat_batches([records, records.slice(0, 0)])


class AppendWriter:
    """See `lakeward.ports.LakeWriter`."""

    def __init__(  # noqa: PLR0917 - four say what is written; the others have their defaults
        self,
        task: WriterTask,
        table: TableSpec,
        finder: PlaceFinder,
        attempt: int,
        before: tuple[LakeFile, ...] = (),
        limits: GroupLimits | None = None,
    ) -> None:
        """Open nothing yet: without rows there is no file. `before` are files that were closed by another writer."""
        self._task = task
        self._finder = finder
        self._storage = open_storage(task.location, task.storage)
        self._names = FileNames(task, finder.name, attempt, len(before))
        self._options = parquet_options(task.table_schema, task.compression, task.compression_level)
        self._converter = RowConverter(table, task.table_schema.arrow_schema, finder.bucket, finder.constants)
        self._stats = ColumnStats.of_values(task.table_schema, self._converter.schema)
        self._limits = limits or GroupLimits()
        self._before = before
        self._closed: list[LakeFile] = []
        self._rolled: frozenset[str] = frozenset()
        self._file: ParquetFile | None = None
        self._place: Place | None = None
        self._first_offset = 0
        self._pending: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0
        self._ratio = 1.0
        self._encode_s = 0.0
        self._upload_s = 0.0

    def write(self, batch: SourceBatch) -> None:
        """See `lakeward.ports.LakeWriter.write`."""
        if not batch.records.num_rows:
            return
        started = time.perf_counter()
        records = own_memory(batch.records) if self._finder.bucket is None else batch.records
        converted = self._converter.convert(records)
        self._place = self._place or self._finder.place(converted)
        if not self._pending and self._file is None:
            self._first_offset = pc.min(records.column(OFFSET_COLUMN)).as_py()
        self._pending.append(converted)
        self._rows += converted.num_rows
        self._bytes += converted.nbytes
        if self._rows >= self._limits.rows or self._bytes >= self._limits.size_bytes or self._amounts_to(1.0):
            self._flush()
        if self._amounts_to(1.0):
            self._close_file()
        self._encode_s += time.perf_counter() - started

    @property
    def all_rows_flushed(self) -> bool:
        """See `lakeward.ports.LakeWriter.all_rows_flushed`."""
        return not self._pending and self._file is None

    def roll(self) -> tuple[LakeFile, ...]:
        """See `lakeward.ports.LakeWriter.roll`."""
        started = time.perf_counter()
        if self._amounts_to(0.5):
            self._flush()
        if self._amounts_to(0.5):  # only now it is known how what was pending compresses
            self._close_file()
        self._encode_s += time.perf_counter() - started
        files = (*self._before, *self._closed)
        self._rolled = frozenset(file.path for file in files)
        return files

    def close(self) -> tuple[LakeFile, ...]:
        """See `lakeward.ports.LakeWriter.close`."""
        started = time.perf_counter()
        self._flush()
        self._close_file()
        self._encode_s += time.perf_counter() - started
        return (*self._before, *self._closed)

    def abort(self) -> None:
        """See `lakeward.ports.LakeWriter.abort`."""
        self._pending.clear()
        if self._file is not None:
            self._file.drop()
            self._storage.delete(self._file.path)
            self._file = None
        for file in self._closed:
            if file.path not in self._rolled:
                self._storage.delete(file.path)

    @property
    def left_out(self) -> int:
        """See `lakeward.ports.LakeWriter.left_out`; each record is a row."""
        return 0

    @property
    def timings_s(self) -> dict[str, float]:
        """See `lakeward.ports.LakeWriter.timings_s`."""
        return {"encode": max(0.0, self._encode_s - self._upload_s), "upload": self._upload_s}

    def _amounts_to(self, share: float) -> bool:
        """Return whether the open file has so much of the target size, what is pending counted as it compresses."""
        written = 0 if self._file is None else self._file.size_bytes
        size = written + self._bytes * self._ratio
        return not self.all_rows_flushed and size >= share * self._task.target_size_bytes

    def _flush(self) -> None:
        if not self._pending:
            return
        assert self._place is not None  # noqa: S101 - it is found with the first row
        if self._file is None:
            name = self._names.next("data")
            path = f"{self._task.location}/{self._place.folder}bucket-{self._place.bucket}/{name}"
            self._file = ParquetFile(self._storage, path, self._converter.schema, self._options)
        before = self._file.size_bytes
        self._file.write(pa.Table.from_batches(self._pending, schema=self._converter.schema))
        self._ratio = (self._file.size_bytes - before) / max(1, self._bytes)
        self._pending.clear()
        self._rows = self._bytes = 0

    def _close_file(self) -> None:
        if self._file is None:
            return
        assert self._place is not None  # noqa: S101 - as above
        file, self._file = self._file, None
        size = file.close()
        self._upload_s += file.upload_s
        stats, columns = self._stats.gather(file)
        detail = FileDetail(
            partition=self._place.partition,
            bucket=self._place.bucket,
            total_buckets=self._place.total_buckets,
            schema_id=self._task.table_schema.id,
            created_ms=time.time_ns() // 1_000_000,
            layout=self._finder.layout,
            first_offset=self._first_offset,
            least_values=stats.least,
            greatest_values=stats.greatest,
            nulls=stats.nulls,
            stats_columns=columns,
        )
        self._closed.append(LakeFile(file.path, "data", file.rows, size, pack_detail(detail)))
