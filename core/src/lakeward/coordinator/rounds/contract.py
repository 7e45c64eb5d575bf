"""What a table's `schema` contract lets of its source's columns into the lake table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward.errors import SchemaMismatchError
from lakeward.model.settings import DISCARD_ROW

if TYPE_CHECKING:
    from lakeward.model.results import LakeHead
    from lakeward.model.settings import TableSettings
    from lakeward.model.tables import TableSpec

EVOLVE, FREEZE = "evolve", "freeze"


def under_contract(table: TableSpec, rules: TableSettings, head: LakeHead | None) -> TableSpec:
    """Return a table with the columns that its contract lets into the lake table.

    `head` is that of the lake table before it is opened; None, or one of another table id: it is made anew, with all
    columns. A lake that does not say which columns a table has lets all in.

    Raises:
        SchemaMismatchError: the columns are frozen, and the source has new ones.
    """
    types = rules.schema.get("types", EVOLVE)
    table = replace(table, may_widen=types == EVOLVE, keeps_types=types == DISCARD_ROW)
    contract = rules.schema.get("columns", EVOLVE)
    if contract == EVOLVE or head is None or head.columns is None or head.table_id not in {None, table.table_id}:
        return table
    new = tuple(name for name in table.schema.names if name not in head.columns)
    if not new:
        return table
    if contract == FREEZE:
        key = f"{table.section}.schema.columns"
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
