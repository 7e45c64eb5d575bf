"""Types and layout of lake tables (fluss.md, "Lake tables"), between Arrow and Iceberg."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from lakeward.errors import ConfigError, SchemaMismatchError
from lakeward.model.tables import BUCKET_COLUMN, OFFSET_COLUMN, PRECISION, TIMESTAMP_COLUMN
from lakeward_lake_iceberg.parquet_fields import FIELD_ID

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyiceberg.table import Table

    from lakeward.model.tables import TableSpec

SYSTEM_COLUMNS: dict[str, IcebergType] = {
    BUCKET_COLUMN: IntegerType(),
    OFFSET_COLUMN: LongType(),
    TIMESTAMP_COLUMN: TimestamptzType(),
}
"""The last columns of a lake table that Fluss made before 1.0; since then it makes tables without them."""
_MAX_DECIMAL = 38
_MICROSECOND_DIGITS, _NANOSECOND_DIGITS = 6, 9
_COMMENT = b"comment"
FORMAT_VERSION = "format-version"
"""The property of `lake_properties` that is the version of Iceberg's format, for a new table."""
FORMAT_VERSIONS = ("2", "3")
_RESERVED = frozenset(
    {
        "uuid",
        "snapshot-count",
        "current-snapshot-summary",
        "current-snapshot-id",
        "current-snapshot-timestamp-ms",
        "current-schema",
        "default-partition-spec",
        "default-sort-order",
    }
)
"""Properties that are no properties: Iceberg keeps none of them (`TableProperties.RESERVED_PROPERTIES`)."""


def has_system_columns(table: Table) -> bool:
    """Return of which kind a lake table is. It never changes: one that has lost a system column is still to have it."""
    return any(field.name in SYSTEM_COLUMNS for schema in table.metadata.schemas for field in schema.fields)


def lake_schema(table: TableSpec, *, system_columns: bool) -> Schema:
    """Return the schema that a source's table has in the lake; field ids are provisional.

    `system_columns` is the kind of the lake table (`has_system_columns`).

    Raises:
        SchemaMismatchError: a column's type has no form in Iceberg, a key column's type can be no key there, or two
            fields have one path.
    """
    ids = count(1)
    fields = [_user_field(table, field, ids) for field in table.schema]
    if system_columns:
        fields += [NestedField(next(ids), name, kind, required=True) for name, kind in SYSTEM_COLUMNS.items()]
    _check_names(table, fields)
    keys = [field.field_id for field in fields if field.name in table.primary_key]
    for field in fields:
        if field.field_id in keys:
            _check_key(table, field)
            _check_precision(table, table.schema.field(field.name))
    return Schema(*fields, identifier_field_ids=keys)


def _user_field(table: TableSpec, field: pa.Field, ids: Iterator[int]) -> NestedField:
    if field.name in SYSTEM_COLUMNS:
        message = f"{table.path}: column {field.name!r} has a name that is reserved for a system column"
        raise SchemaMismatchError(message)
    try:
        kind = iceberg_type(field.type, ids)
    except _NoFormError as unfit:
        message = f"{table.path}: column {field.name!r}: type {unfit} has no form in Iceberg"
        raise SchemaMismatchError(message) from None
    comment = (field.metadata or {}).get(_COMMENT)
    return NestedField(
        next(ids),
        field.name,
        kind,
        required=not field.nullable or field.name in table.primary_key,
        doc=None if comment is None else comment.decode("utf-8"),
    )


def _check_names(table: TableSpec, fields: Iterable[NestedField]) -> None:
    """Refuse two fields of one path: Iceberg knows a field by the names from its column down, joined by dots."""
    seen: set[str] = set()
    for path in _paths("", fields):
        if path in seen:
            message = (
                f"{table.path}: column {path!r}: expected that no other column, and no field of a nested column, has "
                f"this path, as Iceberg tells fields by it, found two; rename one of them in the source"
            )
            raise SchemaMismatchError(message)
        seen.add(path)


def _paths(prefix: str, fields: Iterable[NestedField]) -> Iterator[str]:
    for field in fields:
        path = f"{prefix}{field.name}"
        yield path
        yield from _paths(f"{path}.", _fields_of(field.field_type))


def _fields_of(kind: IcebergType) -> Iterable[NestedField]:
    if isinstance(kind, StructType):
        return kind.fields
    if isinstance(kind, ListType):
        return (kind.element_field,)
    return (kind.key_field, kind.value_field) if isinstance(kind, MapType) else ()


def _check_key(table: TableSpec, field: NestedField) -> None:
    """Refuse key types that the Iceberg specification forbids: readers compare keys, and NaN equals nothing."""
    kind = field.field_type
    if isinstance(kind, PrimitiveType) and not isinstance(kind, FloatType | DoubleType):
        return
    found = str(kind) if isinstance(kind, PrimitiveType) else type(kind).__name__.removesuffix("Type").lower()
    message = (
        f"{table.path}: key column {field.name!r}: expected a type that Iceberg allows in a key (whole number, "
        f"decimal, boolean, text, binary, date or time), found {found}; give the source's table another key"
    )
    raise SchemaMismatchError(message)


def _check_precision(table: TableSpec, field: pa.Field) -> None:
    """Refuse keys that are finer than a microsecond: those that differ in nothing else would become one."""
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    fine = pa.types.is_temporal(kind) and getattr(kind, "unit", "") == "ns"
    digits = int((field.metadata or {}).get(PRECISION, _NANOSECOND_DIGITS if fine else 0))
    if digits > _MICROSECOND_DIGITS:
        message = (
            f"{table.path}: key column {field.name!r}: expected a time of at most {_MICROSECOND_DIGITS} digits of a "
            f"second, as Iceberg holds microseconds, found {kind} of {digits} digits: keys that differ only in the "
            "others would become one; give the source's table another key"
        )
        raise SchemaMismatchError(message)


class _NoFormError(Exception):
    """An Arrow type that Iceberg cannot hold."""


def iceberg_type(kind: pa.DataType, ids: Iterator[int]) -> IcebergType:
    """Return the Iceberg type of an Arrow type; nested fields take their ids from `ids`."""
    nested = _nested_type(kind, ids)
    return _primitive_type(kind) if nested is None else nested


def _nested_type(kind: pa.DataType, ids: Iterator[int]) -> IcebergType | None:
    if pa.types.is_struct(kind):
        if not kind.num_fields:
            raise _NoFormError(str(kind))  # Parquet has none
        return StructType(
            *(
                NestedField(next(ids), child.name, iceberg_type(child.type, ids), required=not child.nullable)
                for child in kind
            )
        )
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        element = iceberg_type(kind.value_type, ids)
        return ListType(next(ids), element, element_required=not kind.value_field.nullable)
    if pa.types.is_map(kind):
        key, value = iceberg_type(kind.key_type, ids), iceberg_type(kind.item_type, ids)
        return MapType(next(ids), key, next(ids), value, value_required=not kind.item_field.nullable)
    return None


def _primitive_type(kind: pa.DataType) -> IcebergType:
    if pa.types.is_dictionary(kind):
        return _primitive_type(kind.value_type)
    if pa.types.is_timestamp(kind):
        return TimestampType() if kind.tz is None else TimestamptzType()
    if pa.types.is_decimal(kind) and kind.precision <= _MAX_DECIMAL and kind.scale >= 0:
        return DecimalType(kind.precision, kind.scale)
    for fits, result in _PRIMITIVES:
        if fits(kind):
            return result
    raise _NoFormError(str(kind))


_PRIMITIVES = (
    (pa.types.is_boolean, BooleanType()),
    (pa.types.is_int8, IntegerType()),
    (pa.types.is_int16, IntegerType()),
    (pa.types.is_int32, IntegerType()),
    (pa.types.is_int64, LongType()),
    (pa.types.is_float32, FloatType()),
    (pa.types.is_float64, DoubleType()),
    (pa.types.is_string, StringType()),
    (pa.types.is_large_string, StringType()),
    (pa.types.is_string_view, StringType()),
    (pa.types.is_binary, BinaryType()),
    (pa.types.is_large_binary, BinaryType()),
    (pa.types.is_binary_view, BinaryType()),
    (pa.types.is_fixed_size_binary, BinaryType()),
    (pa.types.is_date, DateType()),
    (pa.types.is_time, TimeType()),
)


def source_spec(table: TableSpec, schema: Schema) -> PartitionSpec:
    """Return the source's own layout: identity of each partition key, then the bucket, if files are divided by it.

    `schema` is the lake's.

    Raises:
        SchemaMismatchError: the bucket key cannot be hashed by Iceberg, or has several columns.
    """
    layout = partition_layout(table, system_columns=BUCKET_COLUMN in schema.column_names)
    fields = []
    for number, (column, transform) in enumerate(layout):
        field = schema.find_field(column)
        hashed = transform.startswith("bucket")
        kind: Transform[Any, Any] = BucketTransform(table.buckets) if hashed else IdentityTransform()
        if not kind.can_transform(field.field_type):
            message = f"{table.path}: column {column!r} of type {field.field_type} cannot be a bucket key in Iceberg"
            raise SchemaMismatchError(message)
        name = f"{column}_bucket" if hashed else column
        fields.append(PartitionField(field.field_id, 1000 + number, kind, name))
    return PartitionSpec(*fields)


def partition_layout(table: TableSpec, *, system_columns: bool) -> list[tuple[str, str]]:
    """Return the partition fields as pairs of column and transform, in Iceberg's words.

    `system_columns` is the kind of the lake table (`has_system_columns`). A table with neither a bucket key nor system
    columns has nothing that says in which bucket a row is.

    Raises:
        SchemaMismatchError: the bucket key has several columns.
    """
    if len(table.bucket_key) > 1:
        message = f"{table.path}: bucket key: expected at most one column, found {', '.join(table.bucket_key)}"
        raise SchemaMismatchError(message)
    layout = [(column, "identity") for column in table.partition_keys]
    if table.bucket_key:
        layout.append((table.bucket_key[0], f"bucket[{table.buckets}]"))
    elif system_columns:
        layout.append((BUCKET_COLUMN, "identity"))
    return layout


def sort_order(schema: Schema) -> SortOrder:
    """Return the order by offset, ascending, which files have by nature; none where rows do not have their offset."""
    if OFFSET_COLUMN not in schema.column_names:
        return UNSORTED_SORT_ORDER
    return SortOrder(SortField(schema.find_field(OFFSET_COLUMN).field_id, IdentityTransform()))


def table_properties(table: TableSpec) -> dict[str, str]:
    """Return the properties of a new lake table: the source's own, ours, and merge-on-read where rows change."""
    properties = {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "10",
    }
    if table.has_primary_key:
        properties |= {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}
    for key, value in table.properties.items():
        properties[key.removeprefix("iceberg.") if key.startswith("iceberg.") else f"fluss.{key}"] = value
    return {**properties, **configured_properties(table)}


def configured_properties(table: TableSpec) -> Mapping[str, str]:
    """Return the properties that the configuration wants a lake table to have.

    The version of the format is none of them: Iceberg takes it from the properties of a new table.

    Raises:
        ConfigError: one of them is not for a person to set.
    """
    wanted = {key: value for key, value in table.lake_properties.items() if key != FORMAT_VERSION}
    for key in wanted:
        if key in _RESERVED or key.startswith(("lakeward.", "fluss.")):
            where = f"{table.section}.lake_properties"
            raise ConfigError(where, "properties of Iceberg that a person sets", key, "Lakeward or Iceberg sets it.")
    return wanted


def format_version(table: TableSpec) -> str:
    """Return the version of the format that a new lake table is made in.

    Raises:
        ConfigError: it is one that is not written here.
    """
    found = table.lake_properties.get(FORMAT_VERSION, FORMAT_VERSIONS[0])
    if found not in FORMAT_VERSIONS:
        key = f"{table.section}.lake_properties.{FORMAT_VERSION}"
        raise ConfigError(key, f"one of {', '.join(FORMAT_VERSIONS)}", found)
    return found


def arrow_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema of data files, with Iceberg's field ids.

    Nested fields are nullable in the files even if the table says otherwise: readers accept that, and a source need not
    repeat the nullability of every level in its batches.
    """
    return pa.schema([_arrow_field(field, nullable=field.optional) for field in schema.fields])


def _arrow_field(field: NestedField, *, nullable: bool = True) -> pa.Field:
    metadata = {FIELD_ID: str(field.field_id)}
    return pa.field(field.name, _arrow_type(field.field_type), nullable=nullable, metadata=metadata)


def _arrow_type(kind: IcebergType) -> pa.DataType:
    if isinstance(kind, StructType):
        return pa.struct([_arrow_field(child) for child in kind.fields])
    if isinstance(kind, ListType):
        return pa.list_(_arrow_field(kind.element_field))
    if isinstance(kind, MapType):
        return pa.map_(_arrow_field(kind.key_field, nullable=False), _arrow_field(kind.value_field))
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, FixedType | UUIDType):
        return pa.binary(16 if isinstance(kind, UUIDType) else len(kind))
    return _ARROW[str(kind)]


_ARROW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
}


def bounded_types(schema: Schema) -> dict[int, str]:
    """Return the type names of all primitive fields outside lists and maps, by field id.

    Floating-point fields inside structs are left out: their NaN values are not counted, which would make bounds wrong.
    """
    found: dict[int, str] = {}
    for field in schema.fields:
        _bounded(field, found, top=True)
    return found


def _bounded(field: NestedField, found: dict[int, str], *, top: bool) -> None:
    kind = field.field_type
    if isinstance(kind, StructType):
        for child in kind.fields:
            _bounded(child, found, top=False)
    elif isinstance(kind, PrimitiveType) and (top or not isinstance(kind, FloatType | DoubleType)):
        found[field.field_id] = str(kind)
