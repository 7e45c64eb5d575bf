"""Deletes log records by age or on request, files that no row references, and leftovers of crashes."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from lakeward_source_embedded.catalog import check_exists
from lakeward_source_embedded.files import Layout, disk, remove
from lakeward_source_embedded.offsets import read_offsets_text
from lakeward_source_embedded.options import table_options

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

    from lakeward.model.tables import TableSpec
    from lakeward.ports import Clock
    from lakeward_source_embedded.database import Database

_UNPREPARED_S = 24 * 3600
"""Unregistered offsets files are kept for a day: a lake commit of unknown outcome may reference one."""
_EXPIRED = """
SELECT partition_id, bucket, MAX(stop) FROM segments
WHERE table_id = ? AND timestamp_ms < ? GROUP BY partition_id, bucket"""
_TRIMMABLE = """
SELECT s.piece, s.file FROM segments s JOIN buckets b USING (table_id, partition_id, bucket)
WHERE s.table_id = :table AND s.stop <= b.log_start AND (:log OR s.stop <= COALESCE(b.snapshot_offset, 0))"""
_NAMED = """
SELECT file FROM segments WHERE table_id = :table AND file IS NOT NULL
UNION SELECT file FROM snapshots WHERE table_id = :table UNION SELECT file FROM runs WHERE table_id = :table"""


class Retention:
    """Removes what is no longer needed; the caller holds the table's lock."""

    def __init__(self, layout: Layout, database: Database, clock: Clock) -> None:
        """Work on an open store."""
        self._layout = layout
        self._database = database
        self._clock = clock

    def trim(self, spec: TableSpec, bucket: tuple[int, int], before: int) -> None:
        """Delete log records below an offset, tiered or not; current rows of a primary-key table stay.

        `bucket` is partition id (-1 for none) and number. The log then begins at offset `before` (at its old start or
        its end, if this is outside of it).
        """
        with self._database.write() as sql:
            check_exists(sql, spec)
            _trim(sql, (before, spec.table_id, *bucket))
        self.drop_segments(spec)

    def expire(self, spec: TableSpec) -> None:
        """Trim records older than `table.log.ttl-s`; those not yet in the lake are kept, as Fluss does.

        Source: fluss.md, "Lake snapshots".
        """
        options = table_options(spec.properties)
        if not options.log_ttl_s:
            return
        oldest_ms = self._clock.wall_ms() - round(options.log_ttl_s * 1000)
        with self._database.write() as sql:
            lake = sql.execute("SELECT offsets FROM lake WHERE table_id = ?", (spec.table_id,)).fetchone()
            tiered = {} if lake is None else read_offsets_text(spec, lake[0])
            limits = {
                (-1 if bucket.partition_id is None else bucket.partition_id, bucket.bucket): offset
                for bucket, offset in tiered.items()
            }
            for partition_id, bucket, stop in sql.execute(_EXPIRED, (spec.table_id, oldest_ms)).fetchall():
                limit = limits.get((partition_id, bucket), 0) if options.lake_enabled else stop
                _trim(sql, (min(stop, limit), spec.table_id, partition_id, bucket))
        self.drop_segments(spec)

    def drop_segments(self, spec: TableSpec) -> None:
        """Delete trimmed segments without current rows, and files without segments."""
        arguments = {"table": spec.table_id, "log": not spec.has_primary_key}
        with self._database.read() as sql:
            if not sql.execute(_TRIMMABLE, arguments).fetchone():
                return
        with self._database.write() as sql:
            gone = sql.execute(_TRIMMABLE, arguments).fetchall()
            sql.executemany(
                "DELETE FROM segments WHERE table_id = ? AND piece = ?", [(spec.table_id, piece) for piece, _ in gone]
            )
            query = "SELECT 1 FROM segments WHERE file = ? LIMIT 1"
            files = {file for _, file in gone if file is not None}
            unused = [file for file in files if not sql.execute(query, (file,)).fetchone()]
        remove(self._layout.root / file for file in unused)

    def sweep(self, spec: TableSpec) -> int:
        """Delete files of a table that no row references, left by crashes; return how many."""
        with self._database.read() as sql:
            named = {row[0] for row in sql.execute(_NAMED, {"table": spec.table_id})}
            lake = sql.execute("SELECT file FROM lake WHERE table_id = ?", (spec.table_id,)).fetchone()
        *folders, offsets = self._layout.table_folders(spec.table_id)
        found = [path for folder in folders for path in _files(folder)]
        left = [path for path in found if path.relative_to(self._layout.root).as_posix() not in named]
        oldest_s = self._clock.wall_ms() / 1000 - _UNPREPARED_S
        registered = None if lake is None else lake[0]
        left += [path for path in _files(offsets) if str(path.absolute()) != registered and _mtime(path) < oldest_s]
        remove(left)
        return len(left)

    def sweep_dropped(self) -> None:
        """Delete the folders of dropped tables."""
        folders = [path for kind in ("log", "kv", "index", "lake") for path in _files(self._layout.root / kind)]
        with self._database.read() as sql:
            # The database is read after the disk: a folder is created only after its table.
            existing = {str(row[0]) for row in sql.execute("SELECT table_id FROM tables")}
        for folder in folders:
            if folder.name not in existing:
                remove_folder(folder)


def remove_folder(folder: Path) -> None:
    """Delete a folder with all its files; a missing folder is no error."""
    with disk(folder):
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            return


def _trim(sql: sqlite3.Connection, arguments: tuple[int, int, int, int]) -> None:
    sql.execute(
        "UPDATE buckets SET log_start = MAX(log_start, MIN(log_end, ?))"
        " WHERE table_id = ? AND partition_id = ? AND bucket = ?",
        arguments,
    )


def _files(folder: Path) -> list[Path]:
    with disk(folder):
        return list(folder.iterdir()) if folder.is_dir() else []


def _mtime(path: Path) -> float:
    with disk(path):
        return path.stat().st_mtime
