"""Finds columns of the source that somebody else renamed or dropped in the lake table.

A column that the lake table lacks is new in the source, unless an earlier schema of the lake table had it. Iceberg
keeps those schemas in the table's metadata, each field with an id that a rename leaves as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.errors import SchemaMismatchError
from lakeward_lake_iceberg.schema import SYSTEM_COLUMNS

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.types import NestedField

    from lakeward.model.tables import TableSpec


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
    ids = _earlier_ids(table, name)
    if not ids:
        return "" if may_add else f"expected column {name!r}, found none: it went away after the round had begun"
    present = {field.field_id: field.name for field in table.schema().fields}
    renamed = next((one for one in ids if one in present), None)
    again = _may_be_added(table, spec, name)
    kind = f"a nullable column {name!r} of type {wanted.field_type}"
    if renamed is not None:
        now = present[renamed]
        other = f", or add {kind} for the new rows; those of before then stay in {now!r}" if again else ""
        return (
            f"expected column {name!r}, found field {renamed} renamed to {now!r} by somebody else. Rename {now!r} back "
            f"to {name!r}{other}"
        )
    other = f"Add {kind} for the new rows" if again else "Make the earlier schema that has it the current one again"
    return f"expected column {name!r}, found field {ids[0]} dropped by somebody else. {other}"


def _earlier_ids(table: Table, name: str) -> list[int]:
    """Return the ids of the fields that had this name in earlier schemas, the latest first."""
    schemas = sorted(table.metadata.schemas, key=lambda schema: schema.schema_id, reverse=True)
    found = [field.field_id for schema in schemas for field in schema.fields if field.name == name]
    return list(dict.fromkeys(found))


def _may_be_added(table: Table, spec: TableSpec, name: str) -> bool:
    """Return whether rows of before can do without a value in the column, and Iceberg allows the name."""
    taken = {field.name for one in table.metadata.partition_specs for field in one.fields}
    return name not in SYSTEM_COLUMNS and name not in spec.primary_key and name not in taken
