"""The store's record of the lake: offsets prepared for a lake commit, and the registered lake snapshot.

As Fluss's PREPARE and COMMIT (fluss.md, "Lake snapshots"), but idempotent: registering never deletes the file that it
registers, and the record holds the offsets itself, so it does not depend on a file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from lakeward.errors import CorruptFileError, SourceError
from lakeward.model.tiering import LakeRecord
from lakeward_source_embedded.catalog import bucket_at, check_exists
from lakeward_source_embedded.database import NO_PARTITION
from lakeward_source_embedded.files import Layout, disk, remove, write_bytes

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

    from lakeward.model.tables import TableBucket, TableSpec
    from lakeward_source_embedded.database import Database

_VERSION = 1
_UNKNOWN = -1
_RECORD = "SELECT snapshot_id, file, offsets FROM lake WHERE table_id = ?"


class LakeOffsets:
    """Prepares and registers lake snapshots."""

    def __init__(self, layout: Layout, database: Database) -> None:
        """Work on an open store."""
        self._layout = layout
        self._database = database

    def prepare(self, table: TableSpec, offsets: Mapping[TableBucket, int]) -> str:
        """See `lakeward.ports.Source.prepare`. Offsets on record that are not sent are kept."""
        with self._database.read() as sql:
            check_exists(sql, table)
            record = _record(sql, table)
        merged = dict(offsets) if record is None else {**record.offsets, **offsets}
        path = (self._layout.root / self._layout.new_file("lake", table.table_id, "tiered", ".offsets")).absolute()
        write_bytes(path, offsets_text(table, merged).encode())
        return str(path)

    def commit(self, table: TableSpec, snapshot_id: int, prepared: str, offsets: Mapping[TableBucket, int]) -> None:
        """See `lakeward.ports.Source.commit`."""
        with self._database.write() as sql:
            check_exists(sql, table)
            before = sql.execute(_RECORD, (table.table_id,)).fetchone()
            sql.execute(
                "INSERT OR REPLACE INTO lake VALUES (?, ?, ?, ?)",
                (table.table_id, snapshot_id, prepared, offsets_text(table, offsets)),
            )
        path = Path(prepared)
        if self._ours(table, path) and not path.exists():
            # The file was deleted since, because another lake commit was registered meanwhile.
            self._layout.new_file("lake", table.table_id, "folder")
            write_bytes(path, offsets_text(table, offsets).encode())
        if before is not None and before[1] != prepared and self._ours(table, Path(before[1])):
            remove([Path(before[1])])

    def record(self, table: TableSpec) -> LakeRecord | None:
        """See `lakeward.ports.Source.lake_record`."""
        with self._database.read() as sql:
            return _record(sql, table)

    def read(self, table: TableSpec, path: str) -> Mapping[TableBucket, int]:
        """See `lakeward.ports.Source.read_offsets`.

        Raises:
            SourceError: there is no such file.
            CorruptFileError: it is not an offsets file of this table.
        """
        file = Path(path)
        if not file.is_file():
            message = f"{path}: expected an offsets file of table {table.path}, found none"
            raise SourceError(message)
        with disk(file):
            text = file.read_text(encoding="utf-8")
        try:
            return read_offsets_text(table, text)
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptFileError(path, f"offsets of table id {table.table_id}", text[:60]) from error

    def _ours(self, table: TableSpec, path: Path) -> bool:
        """Return whether a path is one of this table's offsets files: no other file is ever written or deleted."""
        return path.parent == (self._layout.root / "lake" / str(table.table_id)).absolute()


def offsets_text(table: TableSpec, offsets: Mapping[TableBucket, int]) -> str:
    """Return the JSON form of Fluss: arrays by bucket number, -1 = unknown."""
    parts: dict[int, list[int]] = {}
    for bucket, offset in offsets.items():
        partition_id = NO_PARTITION if bucket.partition_id is None else bucket.partition_id
        values = parts.setdefault(partition_id, [_UNKNOWN] * table.buckets)
        values[bucket.bucket] = offset
    head: dict[str, object] = {"version": _VERSION, "table_id": table.table_id}
    if table.partition_keys:
        head["partition_offsets"] = [
            {"partition_id": partition_id, "bucket_offsets": values} for partition_id, values in sorted(parts.items())
        ]
    else:
        head["bucket_offsets"] = parts.get(NO_PARTITION, [])
    return json.dumps(head)


def read_offsets_text(table: TableSpec, text: str) -> dict[TableBucket, int]:
    """Read the JSON form of Fluss.

    Raises:
        ValueError: another version or table.
    """
    head = json.loads(text)
    if head["version"] != _VERSION or head["table_id"] != table.table_id:
        message = f"expected version {_VERSION} and table id {table.table_id}"
        raise ValueError(message)
    parts = head.get("partition_offsets")
    if parts is None:
        parts = [{"partition_id": NO_PARTITION, "bucket_offsets": head["bucket_offsets"]}]
    return {
        bucket_at(table.table_id, int(part["partition_id"]), number): int(offset)
        for part in parts
        for number, offset in enumerate(part["bucket_offsets"])
        if offset != _UNKNOWN
    }


def _record(sql: sqlite3.Connection, table: TableSpec) -> LakeRecord | None:
    row = sql.execute(_RECORD, (table.table_id,)).fetchone()
    return None if row is None else LakeRecord(row[0], read_offsets_text(table, row[2]))
