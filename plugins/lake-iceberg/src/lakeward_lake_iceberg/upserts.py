"""The writer of primary-key tables: new rows, and position deletes for what they replace (merge-on-read).

Records are taken in chunks. A chunk is folded to the last change of each key; its rows are appended; its keys go into
a window. When the window is full, at a checkpoint, or at the end, the older versions of its keys are looked for: among
the rows written in the same window without reading anything, in the bucket's pinned files and in files of earlier
windows by reading their key columns. Memory is bounded by chunk and window, never by the table.

Whenever all rows taken so far lie in closed files, the window is marked: at a checkpoint it is searched up to the mark
and no further, so that the deletes cover exactly the rows of the closed files. What comes after the mark stays.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.model.lake_rows import RowConverter
from lakeward.model.tables import CHANGE_COLUMN, NO_OFFSET, OFFSET_COLUMN, Change
from lakeward_lake_iceberg.datafile import DataFiles, FileNames, encodings_of_round
from lakeward_lake_iceberg.deletes import Deletes
from lakeward_lake_iceberg.keys import ABSENT, KeyIndex
from lakeward_lake_iceberg.nanoseconds import to_microseconds
from lakeward_lake_iceberg.storage import Storage
from lakeward_lake_iceberg.writer import GROUP_BYTES, GROUP_ROWS, own_memory

if TYPE_CHECKING:
    from lakeward.model.results import LakeFile
    from lakeward.model.tables import TableSpec
    from lakeward.ports import SourceBatch
    from lakeward_lake_iceberg.keys import Codes
    from lakeward_lake_iceberg.partitioner import Place
    from lakeward_lake_iceberg.task import WriterTask

WINDOW_KEYS = 4_000_000
WINDOW_BYTES = 256 * 1024 * 1024
_PLACE_BYTES = 16
"""Bytes beside each key of a window: the number of the file, and the position in it."""


@dataclass(slots=True)
class Limits:
    """Sizes of chunk and window; tests make them small, and so do writers of one of many partitions."""

    chunk_rows: int = GROUP_ROWS
    chunk_bytes: int = GROUP_BYTES
    window_keys: int = WINDOW_KEYS
    window_bytes: int = WINDOW_BYTES

    @classmethod
    def within(cls, memory_bytes: int) -> Limits:
        """Return limits of a writer that may hold about so many bytes: half for its chunk, half for its window."""
        return cls(
            chunk_bytes=max(1, min(GROUP_BYTES, memory_bytes // 2)),
            window_keys=max(1, min(WINDOW_KEYS, memory_bytes // 4 // _PLACE_BYTES)),
            window_bytes=max(1, min(WINDOW_BYTES, memory_bytes // 4)),
        )


@dataclass(slots=True)
class _Window:
    """Keys not yet looked up, with the file number and position of each one's row (ABSENT for a delete)."""

    keys: list[pa.Table] = field(default_factory=list)
    files: list[Codes] = field(default_factory=list)
    positions: list[Codes] = field(default_factory=list)
    count: int = 0
    size_bytes: int = 0

    def add(self, keys: pa.Table, files: Codes, positions: Codes) -> None:
        self.keys.append(keys)
        self.files.append(files)
        self.positions.append(positions)
        self.count += keys.num_rows
        self.size_bytes += keys.nbytes

    def split_after(self, entries: int) -> tuple[_Window, _Window]:
        """Return the first entries, and the others."""
        parts = _Window(), _Window()
        for number, entry in enumerate(zip(self.keys, self.files, self.positions, strict=True)):
            parts[number >= entries].add(*entry)
        return parts


class UpsertWriter:
    """See `lakeward.ports.LakeWriter`."""

    def __init__(  # noqa: PLR0917 - four say what is written; the others have their defaults
        self,
        task: WriterTask,
        table: TableSpec,
        place: Place,
        attempt: int,
        before: tuple[LakeFile, ...] = (),
        limits: Limits | None = None,
    ) -> None:
        """Open nothing yet: without rows there is no file. `before` are files that were closed by another writer."""
        self._task = task
        self._limits = limits or Limits()
        self._before = before
        self._rolled: frozenset[str] = frozenset()
        storage = Storage(task.location, task.storage)
        names = FileNames(task, place, attempt, len(before))
        self._converter = RowConverter(table, task.arrow_schema(), place.bucket, coarsen=to_microseconds)
        self._shares = place.bucket is None
        encodings = encodings_of_round(task) if self._shares else None
        self._files = DataFiles(storage, task, place.partition, names.next, encodings)
        self._deletes = Deletes(storage, task, place, names.next)
        # A snapshot holds each key once, so in an empty bucket or partition there is nothing to replace.
        self._plain = place.only_snapshot is not False and not self._deletes.knows_rows
        self._only_snapshot = place.only_snapshot
        self._deletes.adopt(before)
        self._pending: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0
        self._window = _Window()
        self._marked = 0
        self._since_rows = 0
        self._since_bytes = 0
        self._searched = 0
        self._left_out = 0
        self._encode_s = 0.0
        self._keys_s = 0.0

    def write(self, batch: SourceBatch) -> None:
        """See `lakeward.ports.LakeWriter.write`."""
        records = batch.records
        kept = pc.not_equal(records.column(CHANGE_COLUMN), pa.scalar(Change.UPDATE_BEFORE, pa.uint8()))
        if kept.false_count:
            self._left_out += kept.false_count
            records = records.filter(kept)
        if not records.num_rows:
            return
        if self._shares:
            records = own_memory(records)
        self._pending.append(records)
        self._rows += records.num_rows
        self._bytes += records.nbytes
        self._since_rows += records.num_rows
        self._since_bytes += records.nbytes
        if self._rows >= self._limits.chunk_rows or self._bytes >= self._limits.chunk_bytes:
            self._take_chunk()

    @property
    def all_rows_flushed(self) -> bool:
        """See `lakeward.ports.LakeWriter.all_rows_flushed`."""
        return not self._since_rows

    def roll(self) -> tuple[LakeFile, ...]:
        """See `lakeward.ports.LakeWriter.roll`."""
        if self._pending and self._amounts_to_half():
            self._take_chunk()
        if self._since_rows and not self._pending and self._amounts_to_half():
            self._close_file()
        self._search()
        files = self._all_files()
        self._rolled = frozenset(file.path for file in files)
        return files

    def close(self) -> tuple[LakeFile, ...]:
        """See `lakeward.ports.LakeWriter.close`."""
        self._take_chunk()
        self._close_file()
        self._search()
        return self._all_files()

    def abort(self) -> None:
        """See `lakeward.ports.LakeWriter.abort`."""
        self._pending.clear()
        self._files.abort(self._rolled)
        self._deletes.abort(self._rolled)

    @property
    def left_out(self) -> int:
        """See `lakeward.ports.LakeWriter.left_out`."""
        return self._left_out

    @property
    def timings_s(self) -> dict[str, float]:
        """See `lakeward.ports.LakeWriter.timings_s`."""
        upload_s = self._files.upload_s
        return {"encode": max(0.0, self._encode_s - upload_s), "upload": upload_s, "keys": self._keys_s}

    def _all_files(self) -> tuple[LakeFile, ...]:
        return (*self._before, *self._files.closed, *self._deletes.closed)

    def _amounts_to_half(self) -> bool:
        """Return whether enough was taken since the mark; without an open file it is deletes, counted as rows."""
        return self._files.amounts_to_half(self._bytes if self._files.is_open else self._since_bytes)

    def _take_chunk(self) -> None:
        if not self._pending:
            return
        chunk = pa.Table.from_batches(self._pending)
        size, closed = self._bytes, len(self._files.closed)
        self._pending.clear()
        self._rows = self._bytes = 0
        if self._plain and self._only_snapshot is None and not _from_snapshot(chunk):
            self._end_plain()
            self._since_rows, self._since_bytes = chunk.num_rows, size  # this chunk is in no file yet
        if self._plain:
            self._append(chunk, size)
        else:
            self._remember(self._fold(chunk), size)
        if len(self._files.closed) > closed:
            self._mark()
        window = self._window
        if window.count >= self._limits.window_keys or window.size_bytes >= self._limits.window_bytes:
            self._close_file()
            self._search()

    def _end_plain(self) -> None:
        """Know the rows written so far, of which no key was remembered: a change of one of them may come now."""
        self._plain = False
        self._close_file()
        self._search()

    def _fold(self, chunk: pa.Table) -> pa.Table:
        started = time.perf_counter()
        last = KeyIndex(self._keys(chunk)).last_rows()
        folded = chunk if len(last) == chunk.num_rows else chunk.take(pa.array(last))
        self._left_out += chunk.num_rows - len(last)
        self._keys_s += time.perf_counter() - started
        return folded

    def _remember(self, folded: pa.Table, size: int) -> None:
        gone = pc.equal(folded.column(CHANGE_COLUMN), pa.scalar(Change.DELETE, pa.uint8()))
        rows, removed = folded.filter(pc.invert(gone)), folded.filter(gone)
        self._left_out += pc.sum(gone).as_py() or 0
        if rows.num_rows:
            number, start = self._append(rows, size)
            positions = np.arange(start, start + rows.num_rows, dtype=np.int64)
            self._window.add(self._keys(rows), np.full(rows.num_rows, number, dtype=np.int64), positions)
        if removed.num_rows:
            absent = np.full(removed.num_rows, ABSENT, dtype=np.int64)
            self._window.add(self._keys(removed), absent, absent)

    def _append(self, rows: pa.Table, size: int) -> tuple[int, int]:
        started = time.perf_counter()
        batches = [self._converter.convert(batch) for batch in rows.to_batches()]
        place = self._files.write(pa.Table.from_batches(batches, schema=self._converter.schema), size)
        self._encode_s += time.perf_counter() - started
        return place

    def _close_file(self) -> None:
        started = time.perf_counter()
        self._files.roll()
        self._encode_s += time.perf_counter() - started
        self._mark()

    def _mark(self) -> None:
        """Record that all rows taken so far are in closed files."""
        self._marked = len(self._window.keys)
        self._since_rows = self._since_bytes = 0

    def _keys(self, rows: pa.Table) -> pa.Table:
        fields = [self._converter.schema.field(name) for name in self._task.key_columns]
        batches = [[self._converter.column(batch, field) for field in fields] for batch in rows.to_batches()]
        schema = pa.schema(fields).remove_metadata()
        return pa.Table.from_batches([pa.RecordBatch.from_arrays(one, schema=schema) for one in batches], schema)

    def _search(self) -> None:
        """Delete the older versions of the window's keys up to the mark; what comes after it stays in the window."""
        window, self._window = self._window.split_after(self._marked)
        self._marked = 0
        started = time.perf_counter()
        if window.count:
            # A delete and a new insert in one chunk are folded; across chunks, the later one is later in this order.
            index = KeyIndex(pa.concat_tables(window.keys))
            self._delete_own(index, np.concatenate(window.files), np.concatenate(window.positions))
            self._deletes.search(index)
        self._deletes.add(self._files.closed[self._searched :])
        self._searched = len(self._files.closed)
        self._keys_s += time.perf_counter() - started

    def _delete_own(self, index: KeyIndex, files: Codes, positions: Codes) -> None:
        superseded = np.ones(len(files), dtype=np.bool_)
        superseded[index.last_rows()] = False
        superseded &= files >= 0
        for number in np.unique(files[superseded]):
            chosen = np.sort(positions[superseded & (files == number)])
            self._deletes.delete(self._files.paths[int(number)], chosen)


def _from_snapshot(chunk: pa.Table) -> bool:
    return bool(pc.max(chunk.column(OFFSET_COLUMN)).as_py() == NO_OFFSET)
