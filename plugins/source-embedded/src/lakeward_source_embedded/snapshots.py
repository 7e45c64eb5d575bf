"""KV snapshots of a primary-key table: taken when due, deleted when superseded and not leased.

A snapshot is one file per bucket with the current row of every key. The key index then points into the snapshot, so no
merge needs the log before it. Taking, deleting and merging all happen under the table's lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lakeward.errors import LakewardError, RowCountError
from lakeward.model.batches import gather
from lakeward_source_embedded.arrow_files import write_arrow
from lakeward_source_embedded.catalog import check_exists
from lakeward_source_embedded.files import remove, sync_files
from lakeward_source_embedded.index import ROW_BITS, IndexChange, KeyIndex, register_run, remove_replaced
from lakeward_source_embedded.options import table_options
from lakeward_source_embedded.pieces import Pieces

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from lakeward.model.tables import TableSpec
    from lakeward.ports import Clock
    from lakeward_source_embedded.database import Database
    from lakeward_source_embedded.files import Layout

    Ints = npt.NDArray[np.int64]

_CHANGED = """
SELECT partition_id, bucket, log_end, next_snapshot, log_end - COALESCE(snapshot_offset, 0), snapshot_ms
FROM buckets WHERE table_id = ? AND log_end > COALESCE(snapshot_offset, 0) ORDER BY partition_id, bucket"""
_OWNERS = """
SELECT piece, partition_id, bucket FROM segments WHERE table_id = :table
UNION ALL SELECT piece, partition_id, bucket FROM snapshots WHERE table_id = :table ORDER BY 1"""
_SUPERSEDED = """
SELECT s.piece, s.file FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY partition_id, bucket ORDER BY snapshot_id DESC) AS age
  FROM snapshots WHERE table_id = :table) s
WHERE s.age > :retained AND NOT EXISTS (
  SELECT 1 FROM leased_snapshots l JOIN leases e ON e.lease_id = l.lease_id
  WHERE l.table_id = s.table_id AND l.partition_id = s.partition_id AND l.bucket = s.bucket
    AND l.snapshot_id = s.snapshot_id AND e.expires_ms > :now)"""


@dataclass(frozen=True, slots=True)
class _Due:
    partition_id: int
    bucket: int
    log_end: int
    snapshot_id: int


@dataclass(frozen=True, slots=True)
class _Taken:
    due: _Due
    piece: int
    file: str
    rows: int


class Snapshots:
    """Takes and cleans KV snapshots; the caller holds the table's lock."""

    def __init__(self, layout: Layout, database: Database, clock: Clock) -> None:
        """Work on an open store; the clock is for intervals and the expiry of leases."""
        self._layout = layout
        self._database = database
        self._clock = clock

    def take_due(self, spec: TableSpec) -> int:
        """Snapshot the buckets whose interval or row count is reached; returns how many."""
        options = table_options(spec.properties)
        now = self._clock.wall_ms()
        interval_ms = options.snapshot_interval_s * 1000

        def due(changed: int, last_ms: int) -> bool:
            by_time = interval_ms > 0 and now - last_ms >= interval_ms
            return by_time or 0 < options.snapshot_rows <= changed

        with self._database.read() as sql:
            rows = sql.execute(_CHANGED, (spec.table_id,)).fetchall()
        return self._take(spec, [_Due(*row[:4]) for row in rows if due(row[4], row[5])])

    def take_all(self, spec: TableSpec) -> int:
        """Snapshot every bucket that changed since its last snapshot; returns how many."""
        with self._database.read() as sql:
            rows = sql.execute(_CHANGED, (spec.table_id,)).fetchall()
        return self._take(spec, [_Due(*row[:4]) for row in rows])

    def clean_up(self, spec: TableSpec) -> int:
        """Delete snapshots beyond the retained number that no unexpired lease holds; return how many."""
        arguments = {
            "table": spec.table_id,
            "retained": table_options(spec.properties).snapshots_retained,
            "now": self._clock.wall_ms(),
        }
        with self._database.read() as sql:
            if not sql.execute(_SUPERSEDED, arguments).fetchone():
                return 0
        with self._database.write() as sql:
            # Checked again within the write transaction: a lease that was acquired meanwhile counts.
            gone = sql.execute(_SUPERSEDED, arguments).fetchall()
            sql.executemany(
                "DELETE FROM snapshots WHERE table_id = ? AND piece = ?", [(spec.table_id, piece) for piece, _ in gone]
            )
        remove(self._layout.root / file for _, file in gone)
        return len(gone)

    def without(self, spec: TableSpec, partition_id: int) -> IndexChange:
        """Prepare the index without the keys of a partition; the caller registers it when it drops the partition."""
        with self._database.read() as sql:
            index = KeyIndex.read(self._layout, sql, spec.table_id)
            owners = _Owners.read(sql, spec.table_id)
        hashes, locations = index.entries()
        kept = owners.partitions[owners.of(locations)] != partition_id
        return index.replace(hashes[kept], locations[kept])

    def _take(self, spec: TableSpec, due: Sequence[_Due]) -> int:
        if not due:
            return 0
        with self._database.read() as sql:
            query = "SELECT next_piece FROM tables WHERE table_id = ?"
            first_piece = int(sql.execute(query, (spec.table_id,)).fetchone()[0])
            index = KeyIndex.read(self._layout, sql, spec.table_id)
            owners = _Owners.read(sql, spec.table_id)
        hashes, locations = index.entries()
        moved = locations.copy()
        pieces = Pieces(self._layout, self._database, spec)
        members = owners.members(locations)
        taken: list[_Taken] = []
        try:
            for piece, one in enumerate(due, first_piece):
                rows = members.get((one.partition_id, one.bucket), np.zeros(0, dtype=np.int64))
                file = self._write(spec, one, pieces, locations[rows])
                taken.append(_Taken(one, piece, file, len(rows)))
                moved[rows] = (piece << ROW_BITS) | np.arange(len(rows))
            sync_files(self._layout.root / one.file for one in taken)
            change = index.replace(hashes, moved)
            self._register(spec, taken, change)
        except LakewardError:
            remove(self._layout.root / one.file for one in taken)
            raise
        remove_replaced(self._layout, change)
        return len(due)

    def _write(self, spec: TableSpec, one: _Due, pieces: Pieces, locations: Ints) -> str:
        partition = "" if one.partition_id < 0 else f"p{one.partition_id}-"
        file = self._layout.new_file("kv", spec.table_id, f"{partition}b{one.bucket}-s{one.snapshot_id}")
        batches = _Counted(gather(pieces.ordered(locations), spec.schema))
        write_arrow(self._layout.root / file, spec.schema, batches, sync=False)
        if batches.rows != len(locations):
            remove([self._layout.root / file])
            message = (
                f"table {spec.path}, KV snapshot {one.snapshot_id} of bucket {one.bucket}: "
                f"expected {len(locations)} rows, found {batches.rows}"
            )
            raise RowCountError(message)
        return file

    def _register(self, spec: TableSpec, taken: Sequence[_Taken], change: IndexChange) -> None:
        now = self._clock.wall_ms()
        with self._database.write() as sql:
            check_exists(sql, spec)
            for one in taken:
                due = one.due
                key = (spec.table_id, due.partition_id, due.bucket)
                sql.execute(
                    "INSERT INTO snapshots VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (key[0], one.piece, *key[1:], due.snapshot_id, due.log_end, one.rows, one.file),
                )
                sql.execute(
                    "UPDATE buckets SET snapshot_id = ?, snapshot_offset = ?, snapshot_ms = ?, next_snapshot = ?"
                    " WHERE table_id = ? AND partition_id = ? AND bucket = ?",
                    (due.snapshot_id, due.log_end, now, due.snapshot_id + 1, *key),
                )
            sql.execute("UPDATE tables SET next_piece = ? WHERE table_id = ?", (taken[-1].piece + 1, spec.table_id))
            register_run(sql, spec.table_id, change)


class _Counted:
    """Iterates over batches and counts their rows."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self.rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.rows += len(batch)
            yield batch


@dataclass(frozen=True, slots=True)
class _Owners:
    """The bucket of each piece: three arrays, ordered by piece."""

    pieces: Ints
    partitions: Ints
    buckets: Ints

    @classmethod
    def read(cls, sql: sqlite3.Connection, table_id: int) -> _Owners:
        rows = np.array(sql.execute(_OWNERS, {"table": table_id}).fetchall(), dtype=np.int64).reshape(-1, 3)
        return cls(rows[:, 0], rows[:, 1], rows[:, 2])

    def of(self, locations: Ints) -> Ints:
        """Return the index in these arrays of each location's piece."""
        return np.searchsorted(self.pieces, locations >> ROW_BITS)

    def members(self, locations: Ints) -> dict[tuple[int, int], Ints]:
        """Return the entries of each bucket, ordered by location, so that files are read from front to back."""
        if not len(locations):
            return {}
        at = self.of(locations)
        partitions, buckets = self.partitions[at], self.buckets[at]
        order = np.lexsort((locations, buckets, partitions))
        cuts = np.flatnonzero(np.diff(partitions[order]) | np.diff(buckets[order])) + 1
        return {(int(partitions[part[0]]), int(buckets[part[0]])): part for part in np.split(order, cuts)}
