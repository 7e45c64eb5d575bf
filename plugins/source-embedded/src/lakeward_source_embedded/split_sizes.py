"""How many rows and bytes splits are, from the catalog and the sizes of the files: no file is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.model.splits import LogSplit
from lakeward.ports.source import SplitSize
from lakeward_source_embedded.catalog import check_exists, key_of
from lakeward_source_embedded.files import disk

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence
    from pathlib import Path

    from lakeward.model.splits import SnapshotSplit, Split
    from lakeward.model.tables import TableSpec
    from lakeward_source_embedded.database import Database

_LOG = """
SELECT s.file, SUM(MIN(s.stop, :stop) - MAX(s.base, :start)),
  (SELECT SUM(o.rows) FROM segments o WHERE o.file = s.file)
FROM segments s WHERE s.table_id = :table AND s.partition_id = :partition AND s.bucket = :bucket
  AND s.stop > :start AND s.base < :stop AND s.file IS NOT NULL GROUP BY s.file"""
_SNAPSHOT = """
SELECT rows, file FROM snapshots WHERE table_id = ? AND partition_id = ? AND bucket = ? AND snapshot_id = ?"""


def split_sizes(database: Database, root: Path, table: TableSpec, splits: Sequence[Split]) -> tuple[SplitSize, ...]:
    """Return the size of each split of a table, in their order; `root` is the store's directory.

    Raises:
        TableGoneError: the table was dropped.
        StorageError: a file's size cannot be read.
    """
    with database.read() as sql:
        check_exists(sql, table)
        return tuple(
            _log_size(sql, root, split) if isinstance(split, LogSplit) else _snapshot_size(sql, root, split)
            for split in splits
        )


def _log_size(sql: sqlite3.Connection, root: Path, split: LogSplit) -> SplitSize:
    """Return the records of a log range; a file with other buckets or offsets, too, counts by the share of its rows."""
    table_id, partition_id, bucket = key_of(split.bucket)
    arguments = {
        "table": table_id,
        "partition": partition_id,
        "bucket": bucket,
        "start": split.start,
        "stop": split.stop,
    }
    records, size_bytes = 0, 0.0
    for file, rows, rows_in_file in sql.execute(_LOG, arguments).fetchall():
        in_file = _file_size(root / file)
        if in_file is None:
            return SplitSize(None, None)
        records += rows
        size_bytes += in_file * rows / rows_in_file
    return SplitSize(records, round(size_bytes))


def _snapshot_size(sql: sqlite3.Connection, root: Path, split: SnapshotSplit) -> SplitSize:
    row = sql.execute(_SNAPSHOT, (*key_of(split.bucket), split.snapshot_id)).fetchone()
    size_bytes = None if row is None else _file_size(root / row[1])
    return SplitSize(None, None) if size_bytes is None else SplitSize(int(row[0]), size_bytes)


def _file_size(path: Path) -> int | None:
    """Return the size of a file, None where the clean-up was faster."""
    with disk(path):
        try:
            return path.stat().st_size
        except FileNotFoundError:
            return None
