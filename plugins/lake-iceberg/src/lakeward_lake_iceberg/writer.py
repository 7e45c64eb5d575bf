"""The writer of log tables: every record becomes a row."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward.model.lake_rows import RowConverter
from lakeward_lake_iceberg.datafile import DataFiles, FileNames, encodings_of_round
from lakeward_lake_iceberg.nanoseconds import to_microseconds
from lakeward_lake_iceberg.storage import Storage

if TYPE_CHECKING:
    from lakeward.model.results import LakeFile
    from lakeward.model.tables import TableSpec
    from lakeward.ports import SourceBatch
    from lakeward_lake_iceberg.partitioner import Place
    from lakeward_lake_iceberg.task import WriterTask

GROUP_ROWS = 1 << 19
GROUP_BYTES = 32 * 1024 * 1024
"""A row group is written at this many rows or bytes of Arrow; this bounds a writer's memory."""
_MOST_RETAINED = 2
"""A slice is copied if what it keeps in memory is more than so many times itself."""


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """Rows and bytes of a row group; tests make them small, and so do writers of one of many partitions."""

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
        place: Place,
        attempt: int,
        before: tuple[LakeFile, ...] = (),
        limits: GroupLimits | None = None,
    ) -> None:
        """Open nothing yet: without rows there is no file. `before` are files that were closed by another writer."""
        storage = Storage(task.location, task.storage)
        names = FileNames(task, place, attempt, len(before))
        self._before = before
        self._rolled: frozenset[str] = frozenset()
        self._limits = limits or GroupLimits(GROUP_ROWS, GROUP_BYTES)
        self._shares = place.bucket is None
        self._converter = RowConverter(table, task.arrow_schema(), place.bucket, coarsen=to_microseconds)
        encodings = encodings_of_round(task) if self._shares else None
        self._files = DataFiles(storage, task, place.partition, names.next, encodings)
        self._pending: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0
        self._encode_s = 0.0

    def write(self, batch: SourceBatch) -> None:
        """See `lakeward.ports.LakeWriter.write`."""
        if not batch.records.num_rows:
            return
        started = time.perf_counter()
        records = own_memory(batch.records) if self._shares else batch.records
        converted = self._converter.convert(records)
        self._pending.append(converted)
        self._rows += converted.num_rows
        self._bytes += converted.nbytes
        if self._rows >= self._limits.rows or self._bytes >= self._limits.size_bytes:
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
