"""Databases, tables, partitions and buckets: the definitions, as rows of the database."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward.errors import CorruptFileError, TableGoneError, UsageError
from lakeward.model.tables import BucketState, KvSnapshot, TableBucket, TablePath, TableSpec
from lakeward_source_embedded.check_table import check_field, check_path, checked_keys, checked_schema
from lakeward_source_embedded.column_ids import check_numbered, numbered, with_column
from lakeward_source_embedded.columns import type_text, widens
from lakeward_source_embedded.database import NO_PARTITION
from lakeward_source_embedded.options import FRESHNESS, LAKE_ENABLED, check_table_properties, table_options

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence

    from lakeward.ports import Clock
    from lakeward_source_embedded.database import Database

_SPEC = """
SELECT t.database, t.name, t.table_id, t.schema_id, t.definition, t.properties, t.freshness_s, s.arrow
FROM tables t JOIN schemas s ON s.table_id = t.table_id AND s.schema_id = t.schema_id"""
_BUCKETS = """
SELECT b.partition_id, b.bucket, b.log_start, b.log_end, b.snapshot_id, b.snapshot_offset, p.spec
FROM buckets b LEFT JOIN partitions p ON p.partition_id = b.partition_id
WHERE b.table_id = ? ORDER BY b.partition_id, b.bucket"""
_TABLE_ROWS = (
    "tables",
    "schemas",
    "partitions",
    "buckets",
    "segments",
    "snapshots",
    "runs",
    "leased_snapshots",
    "tiering",
    "lake",
)


class Catalog:
    """The definitions of one store."""

    def __init__(self, database: Database, clock: Clock) -> None:
        """Work on an open database."""
        self._database = database
        self._clock = clock

    def create_table(
        self,
        path: TablePath,
        schema: pa.Schema,
        *,
        primary_key: Sequence[str],
        partition_keys: Sequence[str],
        bucket_key: Sequence[str] | None,
        buckets: int,
        freshness_s: float,
        properties: Mapping[str, str],
    ) -> TableSpec:
        """Create a table; see `EmbeddedStore.create_table`."""
        check_path(path)
        properties = dict(properties)
        properties.setdefault(FRESHNESS, f"{freshness_s:g}")
        check_table_properties(properties)
        required = (*primary_key, *partition_keys, *(bucket_key or ()))
        schema = numbered(checked_schema(schema, required))
        chosen = checked_keys(
            schema,
            tuple(primary_key),
            tuple(partition_keys),
            None if bucket_key is None else tuple(bucket_key),
            buckets,
        )
        definition = {
            "primary_key": list(primary_key),
            "partition_keys": list(partition_keys),
            "bucket_key": list(chosen),
            "buckets": buckets,
        }
        with self._database.write() as sql:
            self._insert(sql, path, schema, definition, properties)
            return read_spec(sql, path)

    def _insert(
        self,
        sql: sqlite3.Connection,
        path: TablePath,
        schema: pa.Schema,
        definition: Mapping[str, object],
        properties: Mapping[str, str],
    ) -> None:
        names = (path.database, path.table)
        if sql.execute("SELECT 1 FROM tables WHERE database = ? AND name = ?", names).fetchone():
            message = f"table {path}: expected a new name, found a table"
            raise UsageError(message)
        now = self._clock.wall_ms()
        table_id = sql.execute(
            "INSERT INTO tables (database, name, schema_id, definition, properties, freshness_s, created_ms, last_ms)"
            " VALUES (?, ?, 1, ?, ?, ?, ?, 0)",
            (*names, json.dumps(definition), json.dumps(dict(properties)), float(properties[FRESHNESS]), now),
        ).lastrowid
        sql.execute("INSERT INTO schemas VALUES (?, 1, ?)", (table_id, schema.serialize().to_pybytes()))
        if not definition["partition_keys"]:
            _insert_buckets(sql, int(table_id or 0), NO_PARTITION, int(str(definition["buckets"])), now)
        if table_options(properties).lake_enabled:
            # A new table is due at once: better than Fluss, which waits one freshness before the first round.
            sql.execute("INSERT INTO tiering VALUES (?, 'scheduled', 0, ?, 0)", (table_id, now))

    def add_column(self, path: TablePath, field: pa.Field) -> TableSpec:
        """Add a nullable column at the end."""
        check_field(field)
        with self._database.write() as sql:
            spec = read_spec(sql, path)
            if field.name in spec.schema.names:
                message = f"column {field.name!r}: expected a new name, found it in table {path}"
                raise UsageError(message)
            if not field.nullable:
                message = (
                    f"column {field.name!r}: expected a nullable column, found NOT NULL (older rows have no value)"
                )
                raise UsageError(message)
            return _next_schema(sql, spec, with_column(spec.schema, field).serialize().to_pybytes())

    def widen_column(self, path: TablePath, name: str, kind: pa.DataType) -> TableSpec:
        """Give a column a type that holds all values of its present one."""
        with self._database.write() as sql:
            spec = read_spec(sql, path)
            place = _place_outside_keys(spec, name)
            old = spec.schema.field(place)
            if not widens(old.type, kind):
                expected = "a larger integer, double for float, or a decimal of more digits and the same scale"
                message = f"column {name!r} of type {type_text(old.type)}: expected {expected}, found {type_text(kind)}"
                raise UsageError(message)
            arrow = spec.schema.set(place, old.with_type(kind)).serialize().to_pybytes()
            return _next_schema(sql, spec, arrow)

    def rename_column(self, path: TablePath, name: str, new: str) -> TableSpec:
        """Give a column another name."""
        with self._database.write() as sql:
            spec = read_spec(sql, path)
            place = _place_outside_keys(spec, name)
            check_numbered(spec.schema, f"column {name!r}: cannot be renamed")
            check_field(spec.schema.field(place).with_name(new))
            if new in spec.schema.names:
                message = f"column {new!r}: expected a new name, found it in table {path}"
                raise UsageError(message)
            arrow = spec.schema.set(place, spec.schema.field(place).with_name(new)).serialize().to_pybytes()
            return _next_schema(sql, spec, arrow)

    def drop_column(self, path: TablePath, name: str) -> TableSpec:
        """Drop a column; its values can be had no more, also if one of that name is added again."""
        with self._database.write() as sql:
            spec = read_spec(sql, path)
            place = _place_outside_keys(spec, name)
            check_numbered(spec.schema, f"column {name!r}: cannot be dropped")
            if len(spec.schema) == 1:
                message = f"column {name!r}: expected one besides others, found the only one of table {path}"
                raise UsageError(message)
            return _next_schema(sql, spec, spec.schema.remove(place).serialize().to_pybytes())

    def set_property(self, path: TablePath, key: str, text: str) -> TableSpec:
        """Change one property; a new freshness is planned for at once (fluss.md, "The tiering queue")."""
        check_table_properties({key: text})
        with self._database.write() as sql:
            spec = read_spec(sql, path)
            properties = dict(spec.properties) | {key: text}
            freshness_s = float(properties[FRESHNESS])
            sql.execute(
                "UPDATE tables SET properties = ?, freshness_s = ? WHERE table_id = ?",
                (json.dumps(properties), freshness_s, spec.table_id),
            )
            if key == FRESHNESS:
                moved_ms = round((freshness_s - spec.freshness_s) * 1000)
                sql.execute(
                    "UPDATE tiering SET due_ms = due_ms + ? WHERE table_id = ? AND state = 'scheduled'",
                    (moved_ms, spec.table_id),
                )
            if key == LAKE_ENABLED and text == "true":
                now = self._clock.wall_ms()
                sql.execute("INSERT OR IGNORE INTO tiering VALUES (?, 'scheduled', 0, ?, 0)", (spec.table_id, now))
            elif key == LAKE_ENABLED:
                sql.execute("DELETE FROM tiering WHERE table_id = ?", (spec.table_id,))
            return read_spec(sql, path)

    def table(self, path: TablePath) -> TableSpec:
        """Return a table as it is now."""
        with self._database.read() as sql:
            return read_spec(sql, path)

    def tables(self) -> tuple[TableSpec, ...]:
        """Return all tables, by database and name; one whose definition is damaged is unreadable."""
        with self._database.read() as sql:
            return tuple(_listed(row) for row in sql.execute(f"{_SPEC} ORDER BY t.database, t.name"))

    def partitions(self, table: TableSpec, specs: Sequence[tuple[str, ...]]) -> list[int]:
        """Return the ids of partitions, by values of the partition keys, creating those that are missing."""
        texts = [json.dumps(spec) for spec in specs]
        query = "SELECT spec, partition_id FROM partitions WHERE table_id = ?"
        with self._database.read() as sql:
            known: dict[str, int] = dict(sql.execute(query, (table.table_id,)).fetchall())
        if any(text not in known for text in texts):
            with self._database.write() as sql:
                check_exists(sql, table)
                for text in texts:
                    _insert_partition(sql, table, text, self._clock.wall_ms())
                known = dict(sql.execute(query, (table.table_id,)).fetchall())
        return [known[text] for text in texts]

    def buckets(self, table: TableSpec) -> tuple[BucketState, ...]:
        """Return the state of all buckets at one moment."""
        with self._database.read() as sql:
            check_exists(sql, table)
            rows = sql.execute(_BUCKETS, (table.table_id,)).fetchall()
        return tuple(_state(table.table_id, row) for row in rows)


def _place_outside_keys(spec: TableSpec, name: str) -> int:
    """Return the place of a column that may be changed.

    Raises:
        UsageError: there is no such column, or it is in a key.
    """
    place = int(spec.schema.get_field_index(name))
    if place < 0:
        message = f"column {name!r}: expected one of {', '.join(spec.schema.names)}"
        raise UsageError(message)
    if name in {*spec.primary_key, *spec.partition_keys, *spec.bucket_key}:
        message = f"column {name!r}: expected one that is in no key, as rows are found by their keys"
        raise UsageError(message)
    return place


def read_spec(sql: sqlite3.Connection, path: TablePath) -> TableSpec:
    """Read one table's definition.

    Raises:
        TableGoneError: there is no such table.
    """
    row = sql.execute(f"{_SPEC} WHERE t.database = ? AND t.name = ?", (path.database, path.table)).fetchone()
    if row is None:
        message = f"table {path}: expected a table of that name, found none"
        raise TableGoneError(message)
    return _spec(row)


def check_exists(sql: sqlite3.Connection, table: TableSpec) -> None:
    """Check that the table with this id still exists.

    Raises:
        TableGoneError: it was dropped, or dropped and re-created.
    """
    if sql.execute("SELECT 1 FROM tables WHERE table_id = ?", (table.table_id,)).fetchone() is None:
        message = f"table {table.path} (id {table.table_id}): it was dropped"
        raise TableGoneError(message)


def delete_table(sql: sqlite3.Connection, table_id: int) -> None:
    """Delete every row of a table, leased snapshots too (fluss.md, "Leases on KV snapshots": a drop ignores leases)."""
    for name in _TABLE_ROWS:
        sql.execute(f"DELETE FROM {name} WHERE table_id = ?", (table_id,))  # noqa: S608 - constant names


def delete_partition(sql: sqlite3.Connection, table: TableSpec, spec: tuple[str, ...]) -> int:
    """Delete every row of a partition and return its id.

    Raises:
        UsageError: there is no such partition.
    """
    query = "SELECT partition_id FROM partitions WHERE table_id = ? AND spec = ?"
    row = sql.execute(query, (table.table_id, json.dumps(spec))).fetchone()
    if row is None:
        message = f"table {table.path}: expected a partition {'/'.join(spec)!r}, found none"
        raise UsageError(message)
    for name in ("partitions", "buckets", "segments", "snapshots", "leased_snapshots"):
        sql.execute(
            f"DELETE FROM {name} WHERE table_id = ? AND partition_id = ?",  # noqa: S608 - constant names
            (table.table_id, row[0]),
        )
    return int(row[0])


def _insert_partition(sql: sqlite3.Connection, table: TableSpec, spec: str, now_ms: int) -> None:
    added = sql.execute("INSERT OR IGNORE INTO partitions (table_id, spec) VALUES (?, ?)", (table.table_id, spec))
    if added.rowcount:
        _insert_buckets(sql, table.table_id, int(added.lastrowid or 0), table.buckets, now_ms)


def _next_schema(sql: sqlite3.Connection, spec: TableSpec, arrow: bytes) -> TableSpec:
    sql.execute("INSERT INTO schemas VALUES (?, ?, ?)", (spec.table_id, spec.schema_id + 1, arrow))
    sql.execute("UPDATE tables SET schema_id = schema_id + 1 WHERE table_id = ?", (spec.table_id,))
    return read_spec(sql, spec.path)


def _insert_buckets(sql: sqlite3.Connection, table_id: int, partition_id: int, buckets: int, now_ms: int) -> None:
    sql.executemany(
        "INSERT INTO buckets (table_id, partition_id, bucket, snapshot_ms) VALUES (?, ?, ?, ?)",
        ((table_id, partition_id, bucket, now_ms) for bucket in range(buckets)),
    )


_Row = tuple[str, str, int, int, str, str, float, bytes]


def _listed(row: _Row) -> TableSpec:
    try:
        return _spec(row)
    except CorruptFileError as damaged:
        database, name, table_id, schema_id, _, _, freshness_s, _ = row
        path = TablePath(database, name)
        return TableSpec(path, table_id, schema_id, pa.schema([]), (), (), (), 0, freshness_s, unreadable=str(damaged))


def _spec(row: _Row) -> TableSpec:
    try:
        return _read_spec(row)
    except (pa.ArrowException, LookupError, OSError, TypeError, ValueError) as damaged:
        what, expected = f"definition of table {TablePath(row[0], row[1])}", "columns and keys of a table"
        raise CorruptFileError(what, expected, str(damaged)) from damaged


def _read_spec(row: _Row) -> TableSpec:
    database, name, table_id, schema_id, definition, properties, freshness_s, arrow = row
    keys = json.loads(definition)
    return TableSpec(
        path=TablePath(database, name),
        table_id=table_id,
        schema_id=schema_id,
        schema=pa.ipc.read_schema(pa.py_buffer(arrow)),
        primary_key=tuple(keys["primary_key"]),
        partition_keys=tuple(keys["partition_keys"]),
        bucket_key=tuple(keys["bucket_key"]),
        buckets=keys["buckets"],
        freshness_s=freshness_s,
        properties=(given := json.loads(properties)),
        unread_kept_s=table_options(given).unread_kept_s,
    )


def _state(table_id: int, row: tuple[int, int, int, int, int | None, int, str | None]) -> BucketState:
    partition_id, number, start, end, snapshot_id, snapshot_offset, spec = row
    bucket = bucket_at(table_id, partition_id, number)
    snapshot = None if snapshot_id is None else KvSnapshot(bucket, snapshot_id, snapshot_offset)
    return BucketState(bucket, () if spec is None else tuple(json.loads(spec)), start, end, snapshot)


def bucket_at(table_id: int, partition_id: int, bucket: int) -> TableBucket:
    """Make a bucket of database columns."""
    return TableBucket(table_id, None if partition_id == NO_PARTITION else partition_id, bucket)


def key_of(bucket: TableBucket) -> tuple[int, int, int]:
    """Return the database columns of a bucket: table, partition, number."""
    return (bucket.table_id, NO_PARTITION if bucket.partition_id is None else bucket.partition_id, bucket.bucket)
