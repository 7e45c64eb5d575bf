"""Says whether a lake table fits a source's table, and whether it is one that can be written here."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, NoReturn

from lakeward.errors import SchemaMismatchError
from lakeward.model.column_ids import COLUMNS_PROPERTY, column_id, read_columns
from lakeward_lake_paimon.bucket_function import DEFAULT, FUNCTION
from lakeward_lake_paimon.kinds import Kind, arrow_type
from lakeward_lake_paimon.layout import computed_fields, partition_names
from lakeward_lake_paimon.partitions import check_partition_names
from lakeward_lake_paimon.table_schema import SYSTEM_COLUMNS, user_field

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakeward.model.tables import TableSpec
    from lakeward_lake_paimon.kinds import Field
    from lakeward_lake_paimon.table_schema import TableSchema

_DEDUPLICATE = "deduplicate"
_PATH = "paimon.path"
_VECTORS = "deletion-vectors.enabled"
_WIDENS = {
    "TINYINT": {"SMALLINT", "INT", "BIGINT"},
    "SMALLINT": {"INT", "BIGINT"},
    "INT": {"BIGINT"},
    "FLOAT": {"DOUBLE"},
    "CHAR": {"STRING", "VARCHAR"},
    "VARCHAR": {"STRING"},
    "STRING": {"CHAR", "VARCHAR"},
    "BINARY": {"BYTES", "VARBINARY"},
    "VARBINARY": {"BYTES"},
    "BYTES": {"BINARY", "VARBINARY"},
}
"""Types of the source whose values fit another type of the lake. A source gives no lengths of text and bytes."""
_NUMBERS = frozenset({"TINYINT", "SMALLINT", "INT", "FLOAT"})
"""Types of the lake that can become one of those that they fit."""

_IN_SPARK = frozenset(
    {"BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "DATE", "STRING"}
)
"""Types that Spark calls as Paimon does."""


def check_kind(schema: TableSchema, spec: TableSpec) -> None:
    """Refuse a table that is of no kind, or of another one than the configuration asks for, if it asks for one.

    Raises:
        SchemaMismatchError: it is.
    """
    missing = [name for name in SYSTEM_COLUMNS if name not in schema.names]
    if missing and len(missing) < len(SYSTEM_COLUMNS):
        refuse(spec, f"the columns {', '.join(SYSTEM_COLUMNS)} or none of them", f"no {', '.join(missing)}")
    found = not missing
    if spec.system_columns not in {None, found}:
        key = f"{spec.section}.system_columns"
        made = f"{'with' if found else 'without'} {', '.join(SYSTEM_COLUMNS)}"
        message = (
            f"{key}: expected {str(found).lower()} or no such key, as the lake table was made {made} and keeps its "
            f"kind, found {str(spec.system_columns).lower()}. For a lake table of the other kind set this one aside "
            "and accept that with `lakeward tables accept`; then `lakeward tables resume`"
        )
        raise SchemaMismatchError(message)


def check_fits(spec: TableSpec, schema: TableSchema) -> None:
    """Check keys, columns and options of a lake table. A column that it lacks is not looked at.

    Raises:
        SchemaMismatchError: they do not fit, or the table is one that cannot be written here.
    """
    for what, wanted, found in (
        ("primary key", spec.primary_key, schema.primary_keys),
        ("partition keys", partition_names(spec), schema.partition_keys),
    ):
        if set(wanted) != set(found):
            refuse(spec, f"{what} {', '.join(wanted) or 'none'}", ", ".join(found) or "none")
    _check_options(spec, schema)
    _check_columns(spec, schema)
    _check_layout(spec, schema)
    check_partition_names(schema)


def check_place(spec: TableSpec, *, placed: bool) -> None:
    """Refuse a table that is to lie elsewhere, unless its catalog knows where tables lie (`placed`).

    Raises:
        SchemaMismatchError: it is; Paimon's own filesystem catalog refuses that as well.
    """
    if (path := spec.properties.get(_PATH)) is not None and not placed:
        refuse(spec, "a table in its place in the warehouse, as the catalog is one of folders", f"{_PATH} = {path}")


def fixed_columns(spec: TableSpec, schema: TableSchema) -> frozenset[str]:
    """Return the columns whose names and types Paimon keeps: those of keys and partitions."""
    bucket_key = (name.strip() for name in schema.options.get("bucket-key", "").split(","))
    fields = (one.column for one in spec.lake_partition)
    return frozenset({*schema.primary_keys, *schema.partition_keys, *bucket_key, *fields} - {""})


def becomes_wider(found: Kind, wanted: Kind) -> bool:
    """Return whether a column of the lake can get the source's type, as that holds more; not what is in a column."""
    if found.root == wanted.root == "DECIMAL":
        return found.scale == wanted.scale and found.digits < wanted.digits
    return found.root in _NUMBERS and wanted.root in _WIDENS[found.root]


def check_bucket_function(spec: TableSpec, schema: TableSchema) -> None:
    """Refuse a table whose late rows need their bucket computed by a function that is not known here.

    Raises:
        SchemaMismatchError: they do, as partitions have several counts of buckets.
    """
    if (function := schema.options.get(FUNCTION, DEFAULT)) != DEFAULT:
        refuse(spec, f"{FUNCTION} = {DEFAULT}, as its partitions have several counts of buckets", function)


def missing_fields(schema: TableSchema, spec: TableSpec) -> list[Field]:
    """Return the source's columns that the lake table lacks; their ids are provisional.

    Raises:
        SchemaMismatchError: one of them cannot be added.
    """
    ids = count(0)
    fields = [user_field(spec, column, ids) for column in spec.schema]
    there = set(schema.names)
    missing = [field for field in fields if field.name not in there]
    for field in missing:
        if not field.kind.nullable:
            expected = f"column {field.name!r}, which is not nullable"
            refuse(spec, expected, "none (only nullable columns can be added)")
    return missing


def check_lost(spec: TableSpec, missing: Iterable[Field], schema: TableSchema, earlier: Sequence[TableSchema]) -> None:
    """Refuse missing columns that the lake table once had: added again, rows of before would have nulls in them.

    Raises:
        SchemaMismatchError: somebody has dropped or renamed one.
    """
    now = {field.id: field.name for field in schema.fields}
    known = read_columns(schema.options.get(COLUMNS_PROPERTY), str(spec.path))
    numbers = {one.name: column_id(one) for one in spec.schema}
    for column in missing:
        # Not those that are other columns of the source, which has renamed or dropped them.
        own = numbers.get(column.name)
        taken = {one.field_id for number, one in known.items() if own is not None and number != own}
        named = [field.id for one in earlier for field in one.fields if field.name == column.name]
        ids = [number for number in named if number not in taken]
        if not ids:
            continue
        kind = replace(column.kind, nullable=True)
        add = f"ALTER TABLE {spec.path} ADD COLUMN `{column.name}` {kind}"
        said = f" (in Spark: {add})" if kind.root in _IN_SPARK else ""
        added = f"add a nullable column {column.name!r} of type {kind} for the new rows{said}"
        expected = f"column {column.name!r}"
        if (other := now.get(ids[-1])) is None:
            refuse(spec, expected, f"field {ids[-1]} dropped by somebody else. A{added[1:]}")
        undo = f"ALTER TABLE {spec.path} RENAME COLUMN `{other}` TO `{column.name}`"
        back = f"Rename {other!r} back to {column.name!r} (in Spark: {undo})"
        back = f"{back}, or {added}; those of before then stay in {other!r}"
        refuse(spec, expected, f"field {ids[-1]} renamed to {other!r} by somebody else. {back}")


def _check_options(spec: TableSpec, schema: TableSchema) -> None:
    options = schema.options
    buckets = schema.bucket
    if (vectors := options.get(_VECTORS, "false")).lower() != "false":
        # Readers skip level 0 of such a key table: a round's rows would be there once another engine has compacted.
        what = f"or leave it to Fluss's own tiering service, with {spec.section}.include = false here"
        refuse(
            spec, f"the table option {_VECTORS} = false", f"{vectors}. Make the table anew without that option, {what}"
        )
    if options.get("file.format", "parquet") != "parquet":
        refuse(spec, "the table option file.format = parquet", options["file.format"])
    if options.get("branch", "main") != "main" or options.get("data-evolution.enabled") == "true":
        refuse(spec, "a table of Paimon's classic kind", "a branch, or data-evolution.enabled = true")
    wanted = -1 if spec.lake_partition else spec.buckets
    if not spec.has_primary_key:
        if buckets > 0 and buckets != spec.buckets:
            refuse(spec, f"{spec.buckets} buckets, as the source's table has", str(buckets))
        return
    if buckets != wanted:
        refuse(spec, f"{wanted} buckets", str(buckets))
    engine = options.get("merge-engine", _DEDUPLICATE)
    if engine != _DEDUPLICATE:
        refuse(spec, f"the table option merge-engine = {_DEDUPLICATE}", engine)
    for name in ("sequence.field", "rowkind.field"):
        if name in options:
            refuse(spec, f"no table option {name}: the last change of a row counts", options[name])


def _check_layout(spec: TableSpec, schema: TableSchema) -> None:
    """Check that the columns of a partitioning hold what it says: their comments say it."""
    ids = count(0)
    fields = [user_field(spec, column, ids) for column in spec.schema]
    found = {field.name: field for field in schema.fields}
    for wanted in computed_fields(spec, fields, ids):
        if wanted.name in found and found[wanted.name].description != wanted.description:
            refuse(spec, f"column {wanted.name!r}: {wanted.description}", str(found[wanted.name].description))


def _check_columns(spec: TableSpec, schema: TableSchema) -> None:
    by_name = {field.name: field for field in schema.fields}
    ids = count(0)
    for column in spec.schema:
        wanted = user_field(spec, column, ids)
        found = by_name.pop(column.name, None)
        if found is None:
            continue
        if not _holds(wanted.kind, found.kind) and not (spec.keeps_types and _holds(found.kind, wanted.kind)):
            if column.name in fixed_columns(spec, schema) and becomes_wider(found.kind, wanted.kind):
                where = f"{found.kind} in a key or a partitioning, where Paimon keeps types. For a new lake table set"
                undo = "this one aside and accept that with `lakeward tables accept`; then `lakeward tables resume`"
                refuse(spec, f"column {column.name!r}: type {wanted.kind}", f"{where} {undo}")
            rename = f"ALTER TABLE {spec.path} RENAME COLUMN `{found.name}` TO `{found.name}_before`"
            undo = f". Rename or drop that one (in Spark: {rename}), then `lakeward tables resume`"
            refuse(
                spec,
                f"column {column.name!r}: type {wanted.kind}",
                f"{found.kind}{undo if found.kind.nullable else ''}",
            )
        if not found.kind.nullable and wanted.kind.nullable:
            undo = f"ALTER TABLE {spec.path} ALTER COLUMN `{found.name}` DROP NOT NULL"
            refuse(
                spec, f"column {column.name!r}, which is nullable", f"one that is not. Make it so (in Spark: {undo})"
            )
    for extra in by_name.values():
        if extra.name not in SYSTEM_COLUMNS and not extra.kind.nullable:
            undo = f"ALTER TABLE {spec.path} ALTER COLUMN `{extra.name}` DROP NOT NULL"
            there = f"column {extra.name!r}. Make it nullable (in Spark: {undo}), then `lakeward tables resume`"
            refuse(spec, "no further column that is not nullable", there)


def _holds(wanted: Kind, found: Kind) -> bool:
    """Return whether values of a source's type can be in a column of the lake's; the source has times in one unit."""
    if wanted.root != found.root:
        return found.root in _WIDENS.get(wanted.root, ())
    if wanted.fields or found.fields:
        names = [one.name for one in wanted.fields] == [one.name for one in found.fields]
        pairs = zip(wanted.fields, found.fields, strict=False)
        return names and all(_holds(one.kind, other.kind) for one, other in pairs)
    if wanted.children:
        return all(_holds(one, other) for one, other in zip(wanted.children, found.children, strict=True))
    if wanted.root == "DECIMAL":
        return wanted.scale == found.scale and wanted.digits <= found.digits
    return wanted.is_timestamp or wanted.is_text or wanted.is_bytes or arrow_type(wanted) == arrow_type(found)


def refuse(spec: TableSpec, expected: str, found: str) -> NoReturn:
    """Raise the error of a lake table that does not fit."""
    message = f"{spec.path}: the lake table does not fit: expected {expected}, found {found}"
    raise SchemaMismatchError(message)
