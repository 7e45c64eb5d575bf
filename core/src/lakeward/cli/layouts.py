"""The lake layout of each table, for `config check`, `doctor` and `tables`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.config.tables import table_rules
from lakeward.coordinator.rounds.layout import TableLayout, table_layout

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.cli.checks import Check
    from lakeward.config.loaded import Loaded
    from lakeward.model.tables import TableSpec


def table_layouts(loaded: Loaded, tables: Iterable[TableSpec]) -> list[TableLayout]:
    """Resolve the layout of each table that is tiered, or say why it cannot have the one that is configured.

    Args:
        loaded: the configuration.
        tables: as the source describes them.
    """
    gangs = not loaded.settings.spark.dynamic_allocation
    rules = [(table, table_rules(loaded, table.path).settings) for table in tables]
    return [table_layout(table, one, gangs=gangs) for table, one in rules if one.include]


def layout_checks(layouts: Iterable[TableLayout]) -> list[Check]:
    """Describe layouts as checks, a line for each."""
    return [(f"layout of {one.table}", not one.error, one.message) for one in layouts]
