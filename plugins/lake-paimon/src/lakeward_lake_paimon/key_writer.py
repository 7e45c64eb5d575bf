"""The writer of primary-key tables: files of level 0, each ordered by key, with one row a key.

Nothing is looked up: a row replaces older ones of its key by its sequence number, when it is read or compacted. What is
taken in between two files is folded to the last row of each key. With `changelog-producer = input`, all changes go to
changelog files too, for Paimon's streaming readers.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakeward.model.lake_rows import RowConverter
from lakeward.model.results import LakeFile
from lakeward.model.tables import CHANGE_COLUMN
from lakeward_lake_paimon.column_stats import ColumnStats
from lakeward_lake_paimon.datafile import FileNames, ParquetFile, parquet_options, parquet_writer
from lakeward_lake_paimon.detail import CHANGELOG, FileDetail, pack_detail, unpack_detail
from lakeward_lake_paimon.key_rows import DELETE, KEY_PREFIX, UPDATE_BEFORE, VALUE_KIND, KeyEnds, KeyLayout, kinds_of
from lakeward_lake_paimon.stores import open_storage
from lakeward_lake_paimon.writer import own_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.model.tables import TableSpec
    from lakeward.ports import SourceBatch
    from lakeward_lake_paimon.datafile import Place
    from lakeward_lake_paimon.places import PlaceFinder
    from lakeward_lake_paimon.task import WriterTask

_HALF = 0.5
_SAMPLE_ROWS, _SAMPLE_BYTES = 1 << 15, 4 << 20


@dataclass(frozen=True, slots=True)
class BufferLimits:
    """Rows and bytes of Arrow that become one file; this bounds a writer's memory, to a few times the bytes."""

    rows: int = 1 << 20
    size_bytes: int = 96 << 20

    @classmethod
    def within(cls, memory_bytes: int) -> BufferLimits:
        """Return limits of a writer that may hold so much."""
        return cls(size_bytes=max(1 << 16, memory_bytes // 2))


class KeyWriter:
    """See `lakeward.ports.LakeWriter`."""

    def __init__(  # noqa: PLR0917 - four say what is written; the others have their defaults
        self,
        task: WriterTask,
        table: TableSpec,
        finder: PlaceFinder,
        attempt: int,
        before: tuple[LakeFile, ...] = (),
        limits: BufferLimits | None = None,
    ) -> None:
        """Open nothing yet: without rows there is no file. `before` are files that were closed by another writer."""
        self._task = task
        self._finder = finder
        self._limits = limits or BufferLimits()
        self._storage = open_storage(task.location, task.storage)
        self._names = FileNames(task, finder.name, attempt, len(before))
        self._options = parquet_options(task.table_schema, task.compression, task.compression_level)
        self._converter = RowConverter(table, task.table_schema.arrow_schema, finder.bucket, finder.constants)
        self._layout = KeyLayout(task.table_schema)
        written = self._layout.schema
        self._key_stats = ColumnStats.of_keys(task.table_schema, written, KEY_PREFIX)
        self._value_stats = {
            "data": ColumnStats.of_values(task.table_schema, written, 0),
            CHANGELOG: ColumnStats.of_values(task.table_schema, written, 0, changelog=True),
        }
        self._with_changelog = task.table_schema.options.get("changelog-producer") == "input"
        self._before = before
        self._next_sequence = max([task.next_sequence, *(unpack_detail(one.detail).max_sequence + 1 for one in before)])
        self._closed: list[LakeFile] = []
        self._rolled: frozenset[str] = frozenset()
        self._place: Place | None = None
        self._pending: list[pa.RecordBatch] = []
        self._kinds: list[pa.Array] = []
        self._rows = 0
        self._bytes = 0
        self._ratio: float | None = None
        """Bytes of a file for each byte that was pending; None: no file was written yet."""
        self._left_out = 0
        self._encode_s = 0.0
        self._upload_s = 0.0
        self._keys_s = 0.0

    def write(self, batch: SourceBatch) -> None:
        """See `lakeward.ports.LakeWriter.write`."""
        if not batch.records.num_rows:
            return
        started = time.perf_counter()
        records = own_memory(batch.records)
        converted = self._converter.convert(records)
        self._place = self._place or self._finder.place(converted)
        self._pending.append(converted)
        self._kinds.append(kinds_of(records.column(CHANGE_COLUMN)))
        self._rows += converted.num_rows
        self._bytes += converted.nbytes
        self._encode_s += time.perf_counter() - started
        if self._rows >= self._limits.rows or self._bytes >= self._limits.size_bytes or self._amounts_to(1.0):
            self._flush()

    @property
    def all_rows_flushed(self) -> bool:
        """See `lakeward.ports.LakeWriter.all_rows_flushed`."""
        return not self._pending

    def roll(self) -> tuple[LakeFile, ...]:
        """See `lakeward.ports.LakeWriter.roll`."""
        if self._amounts_to(_HALF):
            self._flush()
        files = (*self._before, *self._closed)
        self._rolled = frozenset(file.path for file in files)
        return files

    def close(self) -> tuple[LakeFile, ...]:
        """See `lakeward.ports.LakeWriter.close`."""
        self._flush()
        return (*self._before, *self._closed)

    def abort(self) -> None:
        """See `lakeward.ports.LakeWriter.abort`."""
        self._pending.clear()
        self._kinds.clear()
        for file in self._closed:
            if file.path not in self._rolled:
                self._storage.delete(file.path)

    @property
    def left_out(self) -> int:
        """See `lakeward.ports.LakeWriter.left_out`. A delete is a row of a file here."""
        return self._left_out

    @property
    def timings_s(self) -> dict[str, float]:
        """See `lakeward.ports.LakeWriter.timings_s`."""
        return {"encode": max(0.0, self._encode_s - self._upload_s), "upload": self._upload_s, "keys": self._keys_s}

    def _amounts_to(self, share: float) -> bool:
        """Return whether what is pending has so much of the target size, as it compresses."""
        if not self._pending:
            return False
        size = share * self._task.target_size_bytes
        if self._ratio is None and self._bytes >= size:
            self._ratio = self._sampled_ratio()
        return self._bytes * (self._ratio or 1.0) >= size

    def _sampled_ratio(self) -> float:
        """Return how some of the pending rows compress, by writing them nowhere."""
        most = max(1, min(_SAMPLE_ROWS, self._rows * _SAMPLE_BYTES // max(1, self._bytes)))
        rows = pa.Table.from_batches(self._pending, schema=self._converter.schema).slice(0, most)
        sink = pa.BufferOutputStream()
        _, folded = self._ordered(rows)
        with parquet_writer(sink, self._layout.schema, self._options, folded) as writer:
            writer.write_table(folded)
        ratio: float = sink.tell() / max(1, rows.nbytes)
        return ratio

    def _ordered(self, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return the first of the pending rows as files of changes have them, and as files of rows."""
        numbers = np.arange(self._next_sequence, self._next_sequence + rows.num_rows, dtype=np.int64)
        kinds = pa.chunked_array(self._kinds, pa.int8()).slice(0, rows.num_rows)
        ordered = self._layout.file_rows(rows, pa.array(numbers), kinds)
        return ordered, self._layout.last_of_each_key(ordered)

    def _flush(self) -> None:
        """Write what is pending as one file, and one of its changes."""
        if not self._pending:
            return
        started = time.perf_counter()
        rows = pa.Table.from_batches(self._pending, schema=self._converter.schema)
        ordered, folded = self._ordered(rows)
        self._keys_s += time.perf_counter() - started
        started = time.perf_counter()
        sequences = (self._next_sequence, self._next_sequence + rows.num_rows - 1)
        if folded is ordered and self._with_changelog:
            self._write(("data", CHANGELOG), folded, sequences)
        else:
            if folded.num_rows:
                self._write(("data",), folded, sequences)
            if self._with_changelog:
                self._write((CHANGELOG,), ordered, sequences)
        self._left_out += rows.num_rows - folded.num_rows
        self._next_sequence += rows.num_rows
        self._pending.clear()
        self._kinds.clear()
        self._rows = self._bytes = 0
        self._encode_s += time.perf_counter() - started

    def _write(self, kinds: Sequence[str], rows: pa.Table, sequences: tuple[int, int]) -> None:
        """Write rows as a file; of two kinds, as two files of the same bytes."""
        place = self._place
        assert place is not None  # noqa: S101 - it is found with the first row
        folder = f"{self._task.location}/{place.folder}bucket-{place.bucket}"
        paths = [f"{folder}/{self._names.next(kind)}" for kind in kinds]
        file = ParquetFile(self._storage, paths[0], self._layout.schema, self._options, *paths[1:])
        try:
            file.write(rows)
            size = file.close()
        except BaseException:
            file.drop()
            for path in paths:
                self._storage.delete(path)
            raise
        self._upload_s += file.upload_s
        for kind, path in zip(kinds, paths, strict=True):
            self._closed.append(LakeFile(path, kind, rows.num_rows, size, self._detail(kind, file, rows, sequences)))
            if kind != CHANGELOG:
                self._ratio = size / max(1, self._bytes)

    def _detail(self, kind: str, file: ParquetFile, rows: pa.Table, sequences: tuple[int, int]) -> bytes:
        place = self._place
        assert place is not None  # noqa: S101 - as above
        ends = KeyEnds(self._layout)
        ends.add(rows)
        first, last = ends.rows()
        keys, _ = self._key_stats.gather(file)
        values, columns = self._value_stats[kind].gather(file)
        kinds = rows.column(VALUE_KIND).to_numpy()
        detail = FileDetail(
            partition=place.partition,
            bucket=place.bucket,
            total_buckets=place.total_buckets,
            schema_id=self._task.table_schema.id,
            created_ms=time.time_ns() // 1_000_000,
            layout=self._finder.layout,
            min_sequence=sequences[0],
            max_sequence=sequences[1],
            min_key=first,
            max_key=last,
            least_key=keys.least,
            greatest_key=keys.greatest,
            least_values=values.least,
            greatest_values=values.greatest,
            nulls=values.nulls,
            stats_columns=columns,
            deleted_rows=int(np.count_nonzero((kinds == DELETE) | (kinds == UPDATE_BEFORE))),
            base_snapshot=self._task.base_snapshot,
        )
        return pack_detail(detail)
