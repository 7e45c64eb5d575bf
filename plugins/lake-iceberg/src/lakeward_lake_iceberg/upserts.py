"""The writer of primary-key tables: new rows, and position deletes for what they replace (merge-on-read).

Records are taken in chunks. A chunk is folded to the last change of each key; its rows are appended; its keys go into
a window. When the window is full, or at the end, the older versions of its keys are looked for: among the rows written
in the same window without reading anything, in the bucket's pinned files and in files of earlier windows by reading
their key columns. Memory is bounded by chunk and window, never by the table.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.model.splits import SnapshotSplit
from lakeward.model.tables import CHANGE_COLUMN, Change
from lakeward_lake_iceberg.base import KeyScan
from lakeward_lake_iceberg.datafile import DataFiles, FileNames
from lakeward_lake_iceberg.keys import ABSENT, KeyIndex
from lakeward_lake_iceberg.positions import read_positions, write_positions
from lakeward_lake_iceberg.rows import RowConverter
from lakeward_lake_iceberg.storage import Storage
from lakeward_lake_iceberg.task import BaseFile
from lakeward_lake_iceberg.writer import GROUP_BYTES, GROUP_ROWS

if TYPE_CHECKING:
    from lakeward.model.results import LakeFile
    from lakeward.model.splits import Split
    from lakeward.model.tables import TableSpec
    from lakeward.ports import SourceBatch
    from lakeward_lake_iceberg.keys import Codes
    from lakeward_lake_iceberg.task import WriterTask

WINDOW_KEYS = 4_000_000
WINDOW_BYTES = 256 * 1024 * 1024
MERGED_DELETES = 4
"""From so many delete files of one data file on, the next one contains their positions and takes their place."""


@dataclass(slots=True)
class _Limits:
    """How much is gathered before work is done; tests make them small."""

    chunk_rows: int = GROUP_ROWS
    chunk_bytes: int = GROUP_BYTES
    window_keys: int = WINDOW_KEYS
    window_bytes: int = WINDOW_BYTES


@dataclass(slots=True)
class _Window:
    """Keys not yet looked up, with the file number and position of each one's row (ABSENT for a delete)."""

    keys: list[pa.Table]
    files: list[Codes]
    positions: list[Codes]
    count: int = 0
    size_bytes: int = 0

    def add(self, keys: pa.Table, files: Codes, positions: Codes) -> None:
        self.keys.append(keys)
        self.files.append(files)
        self.positions.append(positions)
        self.count += keys.num_rows
        self.size_bytes += keys.nbytes


class UpsertWriter:
    """See `lakeward.ports.LakeWriter`."""

    def __init__(
        self, task: WriterTask, table: TableSpec, split: Split, attempt: int, limits: _Limits | None = None
    ) -> None:
        """Open nothing yet: an empty split leaves no file."""
        self._task = task
        self._limits = limits or _Limits()
        self._storage = Storage(task.location, task.storage)
        self._names = FileNames(task, split.split_id, attempt)
        self._partition: tuple[str | int, ...] = (*split.partition, split.bucket.bucket)
        self._converter = RowConverter(table, task.arrow_schema(), split.bucket.bucket)
        self._files = DataFiles(self._storage, task, self._partition, self._names.next)
        self._scan = KeyScan(self._storage, task)
        base = task.base_of(self._partition)
        self._base = {file.path: file for file in base.files}
        self._shared = base.shared_deletes
        # A snapshot holds each key once, so in an empty bucket there is nothing to replace.
        self._plain = isinstance(split, SnapshotSplit) and not self._base
        self._pending: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0
        self._window = _Window([], [], [])
        self._searched = 0
        self._deletes: list[LakeFile] = []
        self._own_deletes: dict[str, tuple[str, ...]] = {}
        self._encode_s = 0.0
        self._keys_s = 0.0

    def write(self, batch: SourceBatch) -> None:
        """See `lakeward.ports.LakeWriter.write`."""
        records = batch.records
        kept = pc.not_equal(records.column(CHANGE_COLUMN), pa.scalar(Change.UPDATE_BEFORE, pa.uint8()))
        if kept.false_count:
            records = records.filter(kept)
        if not records.num_rows:
            return
        self._pending.append(records)
        self._rows += records.num_rows
        self._bytes += records.nbytes
        if self._rows >= self._limits.chunk_rows or self._bytes >= self._limits.chunk_bytes:
            self._take_chunk()

    def close(self) -> tuple[LakeFile, ...]:
        """See `lakeward.ports.LakeWriter.close`."""
        self._take_chunk()
        self._search()
        self._roll()
        return (*self._files.closed, *self._deletes)

    def abort(self) -> None:
        """See `lakeward.ports.LakeWriter.abort`."""
        self._pending.clear()
        self._files.abort()
        for file in self._deletes:
            self._storage.delete(file.path)

    @property
    def timings_s(self) -> dict[str, float]:
        """See `lakeward.ports.LakeWriter.timings_s`."""
        upload_s = self._files.upload_s
        return {"encode": max(0.0, self._encode_s - upload_s), "upload": upload_s, "keys": self._keys_s}

    def _take_chunk(self) -> None:
        if not self._pending:
            return
        chunk = pa.Table.from_batches(self._pending)
        self._pending.clear()
        self._rows = self._bytes = 0
        if self._plain:
            self._append(chunk)
            return
        self._remember(self._fold(chunk))
        window = self._window
        if window.count >= self._limits.window_keys or window.size_bytes >= self._limits.window_bytes:
            self._search()

    def _fold(self, chunk: pa.Table) -> pa.Table:
        started = time.perf_counter()
        last = KeyIndex(self._keys(chunk)).last_rows()
        folded = chunk if len(last) == chunk.num_rows else chunk.take(pa.array(last))
        self._keys_s += time.perf_counter() - started
        return folded

    def _remember(self, folded: pa.Table) -> None:
        gone = pc.equal(folded.column(CHANGE_COLUMN), pa.scalar(Change.DELETE, pa.uint8()))
        rows, removed = folded.filter(pc.invert(gone)), folded.filter(gone)
        if rows.num_rows:
            number, start = self._append(rows)
            positions = np.arange(start, start + rows.num_rows, dtype=np.int64)
            self._window.add(self._keys(rows), np.full(rows.num_rows, number, dtype=np.int64), positions)
        if removed.num_rows:
            absent = np.full(removed.num_rows, ABSENT, dtype=np.int64)
            self._window.add(self._keys(removed), absent, absent)

    def _append(self, rows: pa.Table) -> tuple[int, int]:
        started = time.perf_counter()
        batches = [self._converter.convert(batch) for batch in rows.to_batches()]
        place = self._files.write(pa.Table.from_batches(batches, schema=self._converter.schema))
        self._encode_s += time.perf_counter() - started
        return place

    def _roll(self) -> None:
        started = time.perf_counter()
        self._files.roll()
        self._encode_s += time.perf_counter() - started

    def _keys(self, rows: pa.Table) -> pa.Table:
        fields = [self._converter.schema.field(name) for name in self._task.key_columns]
        return pa.table([rows.column(field.name).cast(field.type) for field in fields], names=[f.name for f in fields])

    def _search(self) -> None:
        """Delete the older versions of the window's keys, and start a new window."""
        window, self._window = self._window, _Window([], [], [])
        if not window.count:
            return
        self._roll()
        started = time.perf_counter()
        # What was deleted and inserted anew in one chunk is folded; across chunks the later one stands later here.
        index = KeyIndex(pa.concat_tables(window.keys))
        self._delete_own(index, np.concatenate(window.files), np.concatenate(window.positions))
        for path in self._files.paths[: self._searched]:
            self._delete(path, self._scan.positions(path, index))
        for file in list(self._base.values()):
            if self._scan.may_hold(file, index):
                self._delete_base(file, self._scan.positions(file.path, index))
        self._searched = len(self._files.paths)
        self._keys_s += time.perf_counter() - started

    def _delete_own(self, index: KeyIndex, files: Codes, positions: Codes) -> None:
        superseded = np.ones(len(files), dtype=np.bool_)
        superseded[index.last_rows()] = False
        superseded &= files >= 0
        by_file: dict[int, Codes] = defaultdict(lambda: np.empty(0, dtype=np.int64))
        for number in np.unique(files[superseded]):
            by_file[int(number)] = np.sort(positions[superseded & (files == number)])
        for number, chosen in by_file.items():
            self._delete(self._files.paths[number], chosen)

    def _delete_base(self, file: BaseFile, positions: Codes) -> None:
        """Name only rows that still live: else the deletes of a hot key would grow with the square of its updates."""
        if not len(positions):
            return
        own = self._own_deletes.get(file.path, ())
        known = read_positions(self._storage, (*file.deletes, *self._shared, *own), file.path)
        fresh = np.setdiff1d(positions, known, assume_unique=True)
        if not len(fresh):
            return
        if len(file.deletes) >= MERGED_DELETES:
            written = self._delete(file.path, np.union1d(fresh, known), replaces=file.deletes)
            self._base[file.path] = BaseFile(file.path, file.rows, file.lower, file.upper)
        else:
            written = self._delete(file.path, fresh)
        self._own_deletes[file.path] = (*own, *written)

    def _delete(self, target: str, positions: Codes, replaces: tuple[str, ...] = ()) -> tuple[str, ...]:
        if not len(positions):
            return ()
        path = self._names.next("-deletes")
        file = write_positions(
            self._storage, self._task, target, path, positions, partition=self._partition, replaces=replaces
        )
        self._deletes.append(file)
        return (path,)
