"""What a table's `schema` contract lets of its source's columns into the lake table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward.errors import SchemaMismatchError
from lakeward.model.column_ids import column_id
from lakeward.model.settings import DISCARD_ROW

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.model.results import LakeHead
    from lakeward.model.settings import TableSettings
    from lakeward.model.tables import TableSpec

EVOLVE, FREEZE = "evolve", "freeze"


def under_contract(table: TableSpec, rules: TableSettings, head: LakeHead | None) -> TableSpec:
    """Return a table with the columns that its contract lets into the lake table.

    `head` is that of the lake table before it is opened; None, or one of another table id: it is made anew, with all
    columns. A lake that does not say which columns a table has lets all in.

    Raises:
        SchemaMismatchError: the columns are frozen, and the source has new ones, or has renamed some.
    """
    types = rules.schema.get("types", EVOLVE)
    table = replace(table, may_widen=types == EVOLVE, keeps_types=types == DISCARD_ROW)
    contract = rules.schema.get("columns", EVOLVE)
    if contract == EVOLVE or head is None or head.columns is None or head.table_id not in {None, table.table_id}:
        return table
    ids = {field.name: column_id(field) for field in table.schema}
    new = tuple(name for name, number in ids.items() if name not in head.columns and number not in head.by_id)
    key = f"{table.section}.schema.columns"
    if contract == FREEZE:
        _refuse_renames(table, ids, head, key)
    if not new:
        return table
    if contract == FREEZE:
        shown = ", ".join(new)
        message = (
            f"{table.path}: expected no columns but those of the lake table, as {key} = {FREEZE!r}, found {shown}. "
            f"Let new columns in ({EVOLVE!r}) or leave them out ('discard_value', {DISCARD_ROW!r}), then "
            "`lakeward tables resume`"
        )
        raise SchemaMismatchError(message)
    kept = pa.schema([field for field in table.schema if field.name not in new], table.schema.metadata)
    if contract == DISCARD_ROW:
        return replace(table, schema=kept, read_schema=table.schema)
    return replace(table, schema=kept, left_out=(*table.left_out, *new))


def _refuse_renames(table: TableSpec, ids: Mapping[str, int | None], head: LakeHead, key: str) -> None:
    by_name = {name: head.by_id.get(number) for name, number in ids.items() if number is not None}
    known = {name: one.source_name for name, one in by_name.items() if one is not None}
    renamed = [f"{before} renamed to {name}" for name, before in known.items() if name != before]
    if renamed:
        message = (
            f"{table.path}: expected the columns to keep their names, as {key} = {FREEZE!r}, found "
            f"{', '.join(renamed)}. Rename back in the source, or let the lake table follow ({EVOLVE!r}), then "
            "`lakeward tables resume`"
        )
        raise SchemaMismatchError(message)
