"""Finds columns of the source that somebody else renamed or dropped in the lake table.

A column that the lake table lacks is new in the source, unless an earlier schema of the lake table had it. Iceberg
keeps those schemas in the table's metadata, each field with an id that a rename leaves as it is. Where the source has
ids of columns, a property of the table says which field each of them is (`lakeward.model.column_ids`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.types import DecimalType

from lakeward.errors import SchemaMismatchError
from lakeward.model.column_ids import COLUMNS_PROPERTY, column_id, plan_columns, read_columns
from lakeward_lake_iceberg.schema import SYSTEM_COLUMNS

_OF_SPARK = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
    "string": "string",
    "binary": "binary",
}
"""What Spark calls the types of Iceberg."""

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.types import NestedField

    from lakeward.model.column_ids import ColumnPlan, KnownColumn
    from lakeward.model.tables import TableSpec


def known_columns(table: Table) -> dict[int, KnownColumn]:
    """Return the columns that the table follows by the source's ids.

    Raises:
        SchemaMismatchError: what says so is damaged.
    """
    return read_columns(table.metadata.properties.get(COLUMNS_PROPERTY), ".".join(table.name()))


def field_names(table: Table) -> dict[int, str]:
    """Return the names of the lake table's columns by their ids."""
    return {field.field_id: field.name for field in table.schema().fields}


def column_plan(table: Table, spec: TableSpec) -> ColumnPlan:
    """Return how the columns of the source are to be called in the lake table; raises as `plan_columns`."""
    return plan_columns(spec, known_columns(table), field_names(table))


def check_columns(table: Table, spec: TableSpec, wanted: Schema, *, may_add: bool) -> None:
    """Refuse a lake table that has lost a column of the source.

    `wanted` is the schema that the source's table has in the lake. With `may_add`, a column that the lake table never
    had will be added to it; else each one has to be there.

    Raises:
        SchemaMismatchError: names each column, what became of it, and what to do.
    """
    present = {field.name for field in table.schema().fields}
    lost = [_explain(table, spec, field, may_add=may_add) for field in wanted.fields if field.name not in present]
    said = [text for text in lost if text]
    if said:
        message = f"{spec.path}: the lake table does not fit: {'; '.join(said)}"
        raise SchemaMismatchError(message)


def _explain(table: Table, spec: TableSpec, wanted: NestedField, *, may_add: bool) -> str:
    """Return what became of a column that the lake table lacks, "" where it never had it and may get it."""
    name = wanted.name
    ids = _earlier_ids(table, spec, name)
    if not ids:
        return "" if may_add else f"expected column {name!r}, found none: it went away after the round had begun"
    present = {field.field_id: field.name for field in table.schema().fields}
    renamed = next((one for one in ids if one in present), None)
    kind = f"a nullable column {name!r} of type {wanted.field_type}"
    add = f"for the new rows{_added(spec, wanted)}" if _may_be_added(table, spec, name) else ""
    if renamed is not None:
        now = present[renamed]
        other = f", or add {kind} {add}; those of before then stay in {now!r}" if add else ""
        back = f"ALTER TABLE {spec.path} RENAME COLUMN `{now}` TO `{name}`"
        return (
            f"expected column {name!r}, found field {renamed} renamed to {now!r} by somebody else. Rename {now!r} back "
            f"to {name!r} (in Spark: {back}){other}"
        )
    other = f"Add {kind} {add}" if add else "Make the earlier schema that has it the current one again"
    return f"expected column {name!r}, found field {ids[0]} dropped by somebody else. {other}"


def _added(spec: TableSpec, wanted: NestedField) -> str:
    """Return the statement that adds a column, in brackets; "" for a type that Spark has not, or writes at length."""
    text = str(wanted.field_type)
    kind = text if isinstance(wanted.field_type, DecimalType) else _OF_SPARK.get(text)
    return "" if kind is None else f" (in Spark: ALTER TABLE {spec.path} ADD COLUMN `{wanted.name}` {kind})"


def _earlier_ids(table: Table, spec: TableSpec, name: str) -> list[int]:
    """Return the ids of the fields that had this name in earlier schemas, the latest first.

    Those that are other columns of the source, which has renamed or dropped them, are left out.
    """
    own = next((column_id(field) for field in spec.schema if field.name == name), None)
    taken = {one.field_id for number, one in known_columns(table).items() if own is not None and number != own}
    schemas = sorted(table.metadata.schemas, key=lambda schema: schema.schema_id, reverse=True)
    found = [field.field_id for schema in schemas for field in schema.fields if field.name == name]
    return [one for one in dict.fromkeys(found) if one not in taken]


def _may_be_added(table: Table, spec: TableSpec, name: str) -> bool:
    """Return whether rows of before can do without a value in the column, and Iceberg allows the name."""
    taken = {field.name for one in table.metadata.partition_specs for field in one.fields}
    return name not in SYSTEM_COLUMNS and name not in spec.primary_key and name not in taken
