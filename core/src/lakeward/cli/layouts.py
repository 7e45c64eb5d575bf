"""The lake layout and the columns of each table, for `config check`, `doctor` and `tables`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.config.tables import table_rules
from lakeward.coordinator.rounds.layout import TableLayout, table_layout
from lakeward.errors import SchemaMismatchError
from lakeward.ports import SchemaCheckedLake

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.cli.checks import Check
    from lakeward.config.loaded import Loaded
    from lakeward.model.tables import TableSpec
    from lakeward.ports import Lake


def table_layouts(loaded: Loaded, tables: Iterable[TableSpec]) -> list[TableLayout]:
    """Resolve the layout of each table that is tiered, or say why it cannot have the one that is configured.

    Args:
        loaded: the configuration.
        tables: as the source describes them.
    """
    gangs = not loaded.settings.spark.dynamic_allocation
    rules = [(table, table_rules(loaded, table.path).settings) for table in tables]
    return [table_layout(table, one, gangs=gangs) for table, one in rules if one.include]


def schema_checks(loaded: Loaded, lake: Lake, tables: Iterable[TableSpec]) -> list[Check]:
    """Return a failed check for each table that is tiered and whose columns the lake cannot hold.

    Args:
        loaded: the configuration.
        lake: the open lake; one that cannot tell finds nothing.
        tables: as the source describes them.
    """
    if not isinstance(lake, SchemaCheckedLake):
        return []
    found: list[Check] = []
    for table in tables:
        if table_rules(loaded, table.path).settings.include:
            try:
                lake.check_schema(table)
            except SchemaMismatchError as unfit:
                found.append((f"columns of {table.path}", False, f"[{unfit.code}] {unfit}"))
    return found


def layout_checks(layouts: Iterable[TableLayout]) -> list[Check]:
    """Describe layouts as checks, a line for each."""
    return [(f"layout of {one.table}", not one.error, one.message) for one in layouts]
