"""A table's schema file, `schema/schema-N`, and what its options mean for a writer."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from lakeward.errors import ConfigError, CorruptFileError, SchemaMismatchError
from lakeward.model.tables import BUCKET_COLUMN, OFFSET_COLUMN, PRECISION, TIMESTAMP_COLUMN
from lakeward_lake_paimon.kinds import Field, Kind, arrow_field, paimon_kind
from lakeward_lake_paimon.layout import computed_fields, partition_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lakeward.model.tables import TableSpec
    from lakeward_lake_paimon.storage import Storage

VERSION = 3
"""Of schema files, since Paimon 0.9."""
SYSTEM_COLUMNS: dict[str, Kind] = {
    BUCKET_COLUMN: Kind("INT"),
    OFFSET_COLUMN: Kind("BIGINT"),
    TIMESTAMP_COLUMN: Kind("TIMESTAMP_LTZ", digits=3),
}
"""The last columns of a lake table that Fluss made before 1.0; since then it makes tables without them."""
_NAME = re.compile(r"schema-(\d+)")
_PREFIX = "paimon."
_SERVER_ONLY = "table.datalake.paimon."
_FIXED_OPTIONS = frozenset({"bucket", "bucket-key", "partition.legacy-name"})
"""Options of Paimon that Fluss does not let a user set."""
_COMMENT = b"comment"
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_TIME_DIGITS, _TIMESTAMP_DIGITS = 3, 6
"""Of a time of day Paimon has milliseconds; of a timestamp the sources have microseconds."""
_FLOATING = frozenset({"FLOAT", "DOUBLE"})


@dataclass(frozen=True, slots=True)
class TableSchema:
    """What a schema file says."""

    id: int
    fields: tuple[Field, ...]
    highest_field_id: int
    partition_keys: tuple[str, ...]
    primary_keys: tuple[str, ...]
    options: Mapping[str, str]
    comment: str = ""
    time_ms: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names."""
        return tuple(one.name for one in self.fields)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns as data files have them."""
        return pa.schema([arrow_field(field) for field in self.fields])

    @property
    def is_legacy(self) -> bool:
        """Whether rows have bucket, offset and time: Fluss tells by this column as well."""
        return TIMESTAMP_COLUMN in self.names

    @property
    def bucket(self) -> int:
        """The number of buckets; -1: rows of a log table are in no bucket, those of a key table in any."""
        return int(self.options.get("bucket", "-1"))

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The primary key without the partition keys: what rows of a partition are told apart by."""
        return tuple(name for name in self.primary_keys if name not in self.partition_keys)

    def named(self, names: Iterable[str]) -> tuple[Field, ...]:
        """Return columns by their names."""
        by_name = {one.name: one for one in self.fields}
        return tuple(by_name[name] for name in names)

    def to_json(self) -> dict[str, Any]:
        """Return what the schema file says."""
        return {
            "version": VERSION,
            "id": self.id,
            "fields": [one.to_json() for one in self.fields],
            "highestFieldId": self.highest_field_id,
            "partitionKeys": list(self.partition_keys),
            "primaryKeys": list(self.primary_keys),
            "options": dict(self.options),
            "comment": self.comment,
            "timeMillis": self.time_ms,
            **self.extra,
        }

    def to_bytes(self) -> bytes:
        """Return the schema file."""
        return msgspec.json.format(msgspec.json.encode(self.to_json()), indent=2)

    @classmethod
    @lru_cache(maxsize=64)
    def from_bytes(cls, data: bytes, place: str) -> TableSchema:
        """Read a schema file.

        Raises:
            CorruptFileError: it is damaged, or of a version that is not known; names `place`.
            SchemaMismatchError: it has a type that cannot be written here.
        """
        try:
            stored = msgspec.json.decode(data)
            if stored["version"] != VERSION:
                raise CorruptFileError(place, f"a schema of version {VERSION}", stored["version"])
            known = {
                "version",
                "id",
                "fields",
                "highestFieldId",
                "partitionKeys",
                "primaryKeys",
                "options",
                "comment",
                "timeMillis",
            }
            return cls(
                id=int(stored["id"]),
                fields=tuple(map(Field.from_json, stored["fields"])),
                highest_field_id=int(stored["highestFieldId"]),
                partition_keys=tuple(stored["partitionKeys"]),
                primary_keys=tuple(stored["primaryKeys"]),
                options=dict(stored["options"]),
                comment=stored.get("comment") or "",
                time_ms=int(stored.get("timeMillis") or 0),
                extra={key: value for key, value in stored.items() if key not in known},
            )
        except (msgspec.DecodeError, KeyError, TypeError, ValueError) as damaged:
            raise CorruptFileError(place, "a schema of Paimon as JSON", str(damaged)) from damaged


def schema_path(location: str, number: int) -> str:
    """Return the path of one of a table's schema files."""
    return f"{location}/schema/schema-{number}"


def newest_schema(storage: Storage, location: str) -> TableSchema | None:
    """Return a table's present schema, None where there is no such table.

    Raises:
        CorruptFileError: it cannot be read.
    """
    numbers = schema_ids(storage, location)
    return read_schema(storage, location, max(numbers)) if numbers else None


def schema_ids(storage: Storage, location: str) -> list[int]:
    """Return the ids of a table's schemas; none where there is no such table."""
    matches = (_NAME.fullmatch(name) for name in storage.names(f"{location}/schema"))
    return [int(found[1]) for found in matches if found]


def read_schema(storage: Storage, location: str, number: int) -> TableSchema:
    """Return one of a table's schemas.

    Raises:
        CorruptFileError: it is not there, or cannot be read.
    """
    path = schema_path(location, number)
    data = storage.read(path)
    if data is None:
        raise CorruptFileError(path, "a schema of Paimon", "nothing")
    return TableSchema.from_bytes(data, path)


def new_schema(table: TableSpec, *, system_columns: bool, time_ms: int) -> TableSchema:
    """Return the schema that Fluss's coordinator gives the lake table of a source's table.

    Raises:
        SchemaMismatchError: a column cannot be in a Paimon table.
    """
    ids = count(0)
    fields = [user_field(table, one, ids) for one in table.schema]
    fields += computed_fields(table, fields, ids)
    if system_columns:
        fields += [Field(next(ids), name, kind) for name, kind in SYSTEM_COLUMNS.items()]
    return TableSchema(
        id=0,
        fields=tuple(fields),
        highest_field_id=next(ids) - 1,
        partition_keys=partition_names(table),
        primary_keys=table.primary_key,
        options=_options(table),
        time_ms=time_ms,
    )


def user_field(table: TableSpec, column: pa.Field, ids: Iterator[int]) -> Field:
    """Return a source's column as one of Paimon.

    Raises:
        SchemaMismatchError: its name or its type cannot be in a Paimon table.
    """
    if column.name in SYSTEM_COLUMNS:
        message = f"{table.path}: column {column.name!r} has a name that is reserved for a system column"
        raise SchemaMismatchError(message)
    number = next(ids)
    in_key = column.name in table.primary_key
    kind = paimon_kind(column.type, ids, nullable=column.nullable and not in_key)
    if kind is None:
        message = f"{table.path}: column {column.name!r}: type {column.type} has no form in Paimon"
        raise SchemaMismatchError(message)
    if (in_key or column.name in table.partition_keys) and (kind.is_nested or kind.root in _FLOATING):
        message = (
            f"{table.path}: key column {column.name!r}: expected a whole number, decimal, boolean, text, binary, date "
            f"or time, found {kind}; give the source's table another key"
        )
        raise SchemaMismatchError(message)
    if in_key:
        _check_precision(table, column)
    comment = (column.metadata or {}).get(_COMMENT)
    return Field(number, column.name, kind, None if comment is None else comment.decode())


def _check_precision(table: TableSpec, column: pa.Field) -> None:
    """Refuse keys of finer times than those that are written: keys that differ in nothing else would become one."""
    is_time = pa.types.is_time(column.type)
    most = _TIME_DIGITS if is_time else _TIMESTAMP_DIGITS
    unit = _DIGITS.get(getattr(column.type, "unit", ""), 0) if is_time else 0
    digits = int((column.metadata or {}).get(PRECISION, unit))
    if digits > most:
        message = (
            f"{table.path}: key column {column.name!r}: expected a time of at most {most} digits of a second, found "
            f"{digits}: keys that differ only in the others would become one; give the source's table another key"
        )
        raise SchemaMismatchError(message)


def _options(table: TableSpec) -> dict[str, str]:
    """Return a new table's options, as Fluss's coordinator sets them (`toPaimonSchema`)."""
    options = {"partition.legacy-name": "false"}
    keys = table.bucket_key or tuple(name for name in table.primary_key if name not in table.partition_keys)
    if keys and not table.lake_partition:
        options |= {"bucket": str(table.buckets), "bucket-key": ",".join(keys)}
    else:
        # Of a key table too: a key may move to another partition, which Paimon allows where buckets are free.
        options["bucket"] = "-1"
    if table.has_primary_key:
        options["changelog-producer"] = "input"
    for key, value in table.properties.items():
        if key.startswith(_PREFIX):
            name = key.removeprefix(_PREFIX)
            if name not in _FIXED_OPTIONS:
                options[name] = value
        elif not key.startswith(_SERVER_ONLY):
            options[f"fluss.{key}"] = value
    return options | dict(configured_options(table))


def configured_options(table: TableSpec) -> Mapping[str, str]:
    """Return the options that the configuration wants a lake table to have.

    Raises:
        ConfigError: one of them is not for a person to set.
    """
    for key in table.lake_properties:
        if key in _FIXED_OPTIONS or key.startswith("fluss."):
            where = f"{table.section}.lake_properties"
            raise ConfigError(where, "options of Paimon that a person sets", key, "Lakeward or Fluss sets it.")
    return table.lake_properties
