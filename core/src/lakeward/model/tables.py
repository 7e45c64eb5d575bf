"""Tables, buckets and what a source says of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from lakeward.errors import NewerSourceError, SchemaMismatchError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa

    from lakeward.model.partitioning import PartitionField

CHANGE_COLUMN = "__change"
"""uint8 column of every batch read from a source: see `Change`."""
BUCKET_COLUMN = "__bucket"
OFFSET_COLUMN = "__offset"
TIMESTAMP_COLUMN = "__timestamp"
RESERVED_COLUMNS = frozenset({CHANGE_COLUMN, BUCKET_COLUMN, OFFSET_COLUMN, TIMESTAMP_COLUMN})
NO_OFFSET = -1
"""`__offset` of a row that comes from a KV snapshot (fluss.md, "Lake snapshots"); its `__timestamp` is -1 ms."""
NO_TIME_MS = -1
"""`__timestamp` of a row whose write time nobody knows, in ms since 1970."""


class Change:
    """Change types of a changelog, as the values of `CHANGE_COLUMN` (Fluss's own order)."""

    APPEND = 0
    INSERT = 1
    UPDATE_BEFORE = 2
    UPDATE_AFTER = 3
    DELETE = 4


@dataclass(frozen=True, slots=True, order=True)
class TablePath:
    """Database and table name; its text form is `database.table`."""

    database: str
    table: str

    @classmethod
    def parse(cls, text: str) -> TablePath:
        """Read `database.table`: two names joined by one dot.

        Raises:
            UsageError: not of that form.
        """
        database, dot, table = text.partition(".")
        if not (database and dot and table) or "." in table:
            message = f"table name: expected DATABASE.TABLE, found {text!r}"
            raise UsageError(message)
        return cls(database, table)

    def __str__(self) -> str:
        """Join the names by a dot."""
        return f"{self.database}.{self.table}"


class TableBucket(msgspec.Struct, frozen=True, array_like=True):
    """The unit of order and offsets: a bucket of a table, or of one of its partitions."""

    table_id: int
    partition_id: int | None
    bucket: int

    def sort_key(self) -> tuple[int, int, int]:
        """Order buckets by table, partition (none first), bucket."""
        return (self.table_id, -1 if self.partition_id is None else self.partition_id, self.bucket)

    def __str__(self) -> str:
        """`table/bucket` or `table/partition/bucket`."""
        middle = "" if self.partition_id is None else f"{self.partition_id}/"
        return f"{self.table_id}/{middle}{self.bucket}"


def in_order(offsets: Mapping[TableBucket, int]) -> tuple[tuple[TableBucket, int], ...]:
    """Order offsets by bucket: the same offsets are stored as the same bytes."""
    return tuple(sorted(offsets.items(), key=lambda item: item[0].sort_key()))


PRECISION = b"precision"
"""Metadata of a column of `TableSpec.schema`: the digits of a second in the source, if it is given on with fewer."""


@dataclass(frozen=True, slots=True)
class TableSpec:
    """What a source says of one table at one moment.

    `schema` holds the user's columns in the source's order, with nullability. `partition_keys` are string columns.
    `bucket_key` is empty (log table without one: rows are spread freely) or one column. `lake_partition` is what the
    configuration wants of the lake table; empty: the source's own layout. `system_columns` says whether the
    configuration wants a lake table with bucket, offset and time of each row; None: as the lake table is, and with them
    where it is made. `lake_format` is the format in which the source's clients read a tiered table, by the name of its
    lake; empty: the source does not say. `before_images`: in the log, the row from before each update stands right
    before it (-U). `union_read`: the source's clients read lake table and log as one,
    so each file of the lake table must lie as the source has it. `unreadable` says why the source cannot describe the
    table; it is listed all the same, with its path, its id and no columns, so that it fails alone. `newer`: it cannot,
    because the table has what this release does not know. `unread_kept_s`: the source deletes records of the log after
    so many seconds, whether a lake has them or not; None: it keeps those that no lake has, or does not say.
    `left_out` are columns that the source has and `schema` has not, as the configuration does not want them in the
    lake. `lake_properties` are those that the configuration wants the lake table to have, by the lake's own names.
    `may_widen`: a column of the lake table gets a type that holds more where the source's has become wider. If not, and
    with `keeps_types`, it keeps its own, and values that do not fit it make bad rows. `read_schema`: the source's rows
    are read with these columns, of which the lake table is not to have all: a row with a value in another one than
    those of `schema` is a bad row. None: they are read with those of `schema`.
    `lake_path` is the name of the lake table where the configuration gives it another one than the source's. Lakes are
    given the table by the name that it has there (`in_lake`); `configured_as` is then the one of the source.
    `bucket_counts` are those of partitions that have another one than `buckets`, by their values, where the lake keeps
    each partition's own.
    `late_rows`: the source takes rows of partitions that it has dropped, and gives them in buckets without partition
    values: the partition columns of each row say where it belongs.
    `lake_columns` has the names of columns in the lake table that are called otherwise there, by those of the source.
    """

    path: TablePath
    table_id: int
    schema_id: int
    schema: pa.Schema
    primary_key: tuple[str, ...]
    partition_keys: tuple[str, ...]
    bucket_key: tuple[str, ...]
    buckets: int
    freshness_s: float
    properties: Mapping[str, str] = field(default_factory=dict)
    lake_partition: tuple[PartitionField, ...] = ()
    system_columns: bool | None = None
    lake_format: str = ""
    before_images: bool = True
    union_read: bool = False
    unreadable: str = ""
    newer: bool = False
    unread_kept_s: float | None = None
    left_out: tuple[str, ...] = ()
    lake_properties: Mapping[str, str] = field(default_factory=dict)
    may_widen: bool = True
    keeps_types: bool = False
    read_schema: pa.Schema | None = None
    lake_path: TablePath | None = None
    configured_as: TablePath | None = None
    lake_columns: Mapping[str, str] = field(default_factory=dict)
    late_rows: bool = False
    bucket_counts: tuple[tuple[tuple[str, ...], int], ...] = ()

    @property
    def in_lake(self) -> TableSpec:
        """The table as a lake is given it: its path is that of the lake table, and its columns are called as there."""
        if self.lake_path is None:
            return self.as_written
        return replace(self.as_written, path=self.lake_path, lake_path=None, configured_as=self.path)

    @property
    def as_written(self) -> TableSpec:
        """The table whose rows are written: its columns are called as in the lake table."""
        return replace(self.with_names(self.lake_columns), lake_columns={}) if self.lake_columns else self

    def with_names(self, names: Mapping[str, str]) -> TableSpec:
        """Return the table with other names of columns, by those that they have; the others stay."""
        if not names:
            return self

        def called(schema: pa.Schema) -> pa.Schema:
            for place, one in enumerate(schema):
                schema = schema.set(place, one.with_name(names.get(one.name, one.name)))
            return schema

        def renamed(columns: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(names.get(name, name) for name in columns)

        return replace(
            self,
            schema=called(self.schema),
            read_schema=None if self.read_schema is None else called(self.read_schema),
            primary_key=renamed(self.primary_key),
            partition_keys=renamed(self.partition_keys),
            bucket_key=renamed(self.bucket_key),
            lake_partition=tuple(replace(one, column=names.get(one.column, one.column)) for one in self.lake_partition),
        )

    @property
    def section(self) -> str:
        """The name of the table's section of the configuration, for errors that name a key of it."""
        return f'tables."{self.configured_as or self.path}"'

    def check_readable(self) -> None:
        """Check that the source could describe the table.

        Raises:
            NewerSourceError: the table has what this release does not know; says what.
            SchemaMismatchError: it could not for another reason; says why.
        """
        if self.unreadable:
            raise (NewerSourceError if self.newer else SchemaMismatchError)(self.unreadable)

    @property
    def as_read(self) -> TableSpec:
        """The table with the columns that its rows are read with."""
        return self if self.read_schema is None else replace(self, schema=self.read_schema, read_schema=None)

    def check_lake(self, name: str) -> None:
        """Check that the source's clients would read a tiered table in a lake of this name.

        Raises:
            SchemaMismatchError: they read it in another one.
        """
        if self.lake_format not in {"", name}:
            message = (
                f"{self.path}: expected a lake of type {self.lake_format!r}, in which the source's clients read the "
                f"table, found lake.type = {name!r}. Leave it to a service with that lake, or mirror it "
                f'(`mode = "mirror"` in [{self.section}])'
            )
            raise SchemaMismatchError(message)

    @property
    def has_primary_key(self) -> bool:
        """True for a primary-key table, False for a log (append-only) table."""
        return bool(self.primary_key)

    def outside_key(self, fields: Iterable[PartitionField]) -> tuple[str, ...]:
        """Return the columns of a partitioning, such as `lake_partition`, that an update of a key can change.

        There are none without a primary key.
        """
        outside = (field.column for field in fields if field.column not in self.primary_key)
        return tuple(outside) if self.has_primary_key else ()


@dataclass(frozen=True, slots=True)
class KvSnapshot:
    """A KV snapshot of one bucket; it stands for all log records with an offset below `log_offset`.

    A `live` one is taken when it is read: it has no files and no id, needs no lease, and may stand for later records
    too.
    """

    bucket: TableBucket
    snapshot_id: int
    log_offset: int
    live: bool = False


@dataclass(frozen=True, slots=True)
class BucketState:
    """What the source knows of one bucket at one moment.

    `partition` holds the values of the partition keys, empty for an unpartitioned table and for rows of any partition
    (`TableSpec.late_rows`). `start` is the earliest offset still in the log, `end` the first offset not yet written
    (high watermark).
    """

    bucket: TableBucket
    partition: tuple[str, ...]
    start: int
    end: int
    snapshot: KvSnapshot | None
