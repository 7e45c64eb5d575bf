"""Checks a new table's names, columns and keys before anything is stored."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa

from lakeward.errors import UsageError
from lakeward.model.tables import RESERVED_COLUMNS, TablePath
from lakeward_source_embedded.buckets import check_bucket_type

if TYPE_CHECKING:
    from collections.abc import Sequence

_NAME_MOST = 200
_NAME = re.compile(rf"(?!__)[A-Za-z0-9_][A-Za-z0-9_-]{{0,{_NAME_MOST - 1}}}")
_BUCKETS_MOST = 100_000


def check_path(path: TablePath) -> None:
    """Refuse names that a lake could not use as namespace, table or directory.

    Raises:
        UsageError: names the piece.
    """
    for name in (path.database, path.table):
        if not _NAME.fullmatch(name):
            allowed = f"names of 1 to {_NAME_MOST} letters, digits, _ and -, not beginning with __ or -"
            message = f"table {path}: expected {allowed}, found {name!r} ({len(name)} characters)"
            raise UsageError(message)


def check_field(field: pa.Field) -> None:
    """Refuse a column whose name is reserved or whose type Fluss does not have.

    Raises:
        UsageError: names column and type.

    Source: fluss.md, "Lake tables".
    """
    if field.name in RESERVED_COLUMNS or not field.name:
        message = f"column {field.name!r}: the names {', '.join(sorted(RESERVED_COLUMNS))} are reserved"
        raise UsageError(message)
    _check_type(field.name, field.type)


def checked_schema(schema: pa.Schema, required: Sequence[str]) -> pa.Schema:
    """Return the schema with `required` columns made NOT NULL and without metadata of other programs.

    Raises:
        UsageError: a column is reserved, doubled, missing or of a type that cannot be stored.
    """
    for field in schema:
        check_field(field)
        if len(schema.get_all_field_indices(field.name)) > 1:
            message = f"column {field.name!r}: expected distinct names, found it more than once"
            raise UsageError(message)
    for name in required:
        if name not in schema.names:
            message = f"key column {name!r}: expected one of {', '.join(schema.names)}"
            raise UsageError(message)
    fields = [field.with_nullable(nullable=False) if field.name in required else field for field in schema]
    if not fields:
        message = "columns: expected at least one"
        raise UsageError(message)
    return pa.schema(fields)


def checked_keys(
    schema: pa.Schema,
    primary_key: tuple[str, ...],
    partition_keys: tuple[str, ...],
    bucket_key: tuple[str, ...] | None,
    buckets: int,
) -> tuple[str, ...]:
    """Check the keys of a table against each other; return the bucket key.

    All key columns are in the schema; partition keys are string columns; a log table has an empty primary key;
    `buckets` are of each partition. A bucket key has at most one column; None = the first primary-key column that is no
    partition key.

    Raises:
        UsageError: says which key and why.
    """
    if not 1 <= buckets <= _BUCKETS_MOST:
        _refuse("buckets", f"1 to {_BUCKETS_MOST}", buckets)
    rest = tuple(name for name in primary_key if name not in partition_keys)
    if primary_key and not rest:
        _refuse("primary key", "at least one column that is no partition key", ", ".join(primary_key))
    chosen = rest[:1] if bucket_key is None else tuple(bucket_key)
    if len(chosen) > 1:
        _refuse("bucket key", "at most one column", ", ".join(chosen))
    if primary_key:
        _check_within(primary_key, partition_keys, chosen)
    for name in primary_key:
        _check_key_type(name, schema.field(name).type)
    for name in partition_keys:
        if not pa.types.is_string(schema.field(name).type):
            _refuse(f"partition key {name!r}", "a string column", schema.field(name).type)
    for name in chosen:
        check_bucket_type(name, schema.field(name).type)
    return chosen


def _check_within(primary_key: tuple[str, ...], partition_keys: tuple[str, ...], bucket_key: tuple[str, ...]) -> None:
    if not bucket_key:
        _refuse("bucket key", "one column (a primary-key table needs it)", "none")
    for kind, names in (("partition key", partition_keys), ("bucket key", bucket_key)):
        for name in names:
            if name not in primary_key:
                _refuse(f"{kind} {name!r}", "a column of the primary key", ", ".join(primary_key))
    if bucket_key[0] in partition_keys:
        _refuse(f"bucket key {bucket_key[0]!r}", "a column that is no partition key", bucket_key[0])


def _check_key_type(name: str, data_type: pa.DataType) -> None:
    if pa.types.is_floating(data_type) or pa.types.is_nested(data_type):
        _refuse(f"primary key {name!r}", "a type with exact equality (no float, double, array, map, row)", data_type)


def _check_type(name: str, data_type: pa.DataType) -> None:
    types = pa.types
    if types.is_list(data_type):
        _check_type(name, data_type.value_type)
    elif types.is_map(data_type):
        _check_type(name, data_type.key_type)
        _check_type(name, data_type.item_type)
    elif types.is_struct(data_type):
        for child in data_type:
            _check_type(f"{name}.{child.name}", child.type)
    elif not _is_plain(data_type):
        hint = {pa.large_string(): " (use string)", pa.large_binary(): " (use binary)"}.get(data_type, "")
        _refuse(f"column {name!r}", "a type of Fluss", f"{data_type}{hint}")


def _is_plain(data_type: pa.DataType) -> bool:
    types = pa.types
    if types.is_timestamp(data_type):
        return data_type.tz in {None, "UTC"}
    plain = (
        types.is_boolean(data_type)
        or types.is_signed_integer(data_type)
        or types.is_float32(data_type)
        or types.is_float64(data_type)
        or (types.is_decimal128(data_type) and data_type.scale >= 0)
        or types.is_string(data_type)
        or types.is_binary(data_type)
        or types.is_fixed_size_binary(data_type)
        or types.is_date32(data_type)
        or types.is_time(data_type)
    )
    return bool(plain)


def _refuse(what: str, expected: str, found: object) -> NoReturn:
    message = f"{what}: expected {expected}, found {found}"
    raise UsageError(message)
