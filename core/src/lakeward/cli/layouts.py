"""The lake layout and the columns of each table, for `config check`, `doctor` and `tables`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.config.tables import table_rules, table_section
from lakeward.coordinator.rounds.alike_columns import RENAME, alike_message
from lakeward.coordinator.rounds.layout import TableLayout, check_late_rows, table_layout
from lakeward.coordinator.rounds.mirroring import why_none
from lakeward.errors import ConfigError, LakewardError, NewerSourceError, SchemaMismatchError
from lakeward.model.alike_names import alike_names
from lakeward.model.lake_names import LakeNames
from lakeward.model.near_names import did_you_mean
from lakeward.model.patterns import matches
from lakeward.ports import CheckResult, SchemaCheckedLake

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from lakeward.cli.checks import Check
    from lakeward.config.loaded import Loaded
    from lakeward.model.tables import TableSpec
    from lakeward.ports import Lake, Source


def table_layouts(loaded: Loaded, tables: Iterable[TableSpec]) -> list[TableLayout]:
    """Resolve the layout of each table that is tiered, or say why it cannot have the one that is configured.

    A table that the source cannot describe has none.
    """
    gangs = not loaded.settings.spark.dynamic_allocation
    rules = [(table, table_rules(loaded, table.path).settings) for table in tables]
    return [table_layout(table, one, gangs=gangs) for table, one in rules if one.include and not table.unreadable]


def readable_checks(loaded: Loaded, tables: Iterable[TableSpec]) -> list[Check]:
    """Return a failed check for each table that the source cannot describe, or that belongs to another lake."""
    found: list[Check] = []
    for table in tables:
        rules = table_rules(loaded, table.path).settings
        if rules.include:
            try:
                table.check_readable()
                if rules.mode != "mirror":
                    table.check_lake(loaded.settings.lake.type)
            except (NewerSourceError, SchemaMismatchError) as unreadable:
                found.append((f"table {table.path}", False, f"[{unreadable.code}] {unreadable}"))
    return found


def schema_checks(loaded: Loaded, lake: Lake, tables: Iterable[TableSpec]) -> list[Check]:
    """Return a failed check for each table that is tiered and whose columns, or late rows, the lake cannot hold.

    The lake is open; one that cannot tell finds nothing in columns.
    """
    found: list[Check] = []
    for table in tables:
        if table_rules(loaded, table.path).settings.include and not table.unreadable:
            try:
                check_late_rows(table, lake)
                if isinstance(lake, SchemaCheckedLake):
                    lake.check_schema(table.in_lake)
            except SchemaMismatchError as unfit:
                found.append((f"columns of {table.path}", False, f"[{unfit.code}] {unfit}"))
    return found


def lake_name_checks(loaded: Loaded, tables: Iterable[TableSpec]) -> list[Check]:
    """Return a failed check for each table that is tiered whose lake table is that of another one."""
    found: list[Check] = []
    names = LakeNames()
    for table in tables:
        rules = table_rules(loaded, table.path).settings
        if rules.include:
            try:
                names.add(table.path, rules)
            except ConfigError as clash:
                found.append((f"lake table of {table.path}", False, f"[{clash.code}] {clash}"))
    return found


def alike_checks(loaded: Loaded, tables: Iterable[TableSpec]) -> list[Check]:
    """Return a warning for each two columns, or fields, of a table that is tiered whose names differ in case alone."""
    return [
        CheckResult(f"columns of {table.path}", ok=True, message=alike_message(*pair), action=RENAME, warning=True)
        for table in tables
        if table_rules(loaded, table.path).settings.include
        for pair in alike_names(table.schema)
    ]


def pattern_checks(loaded: Loaded, source: Source | None) -> list[Check]:
    """Return a warning for each pattern of the configuration that no table of the source matches.

    A source that is None cannot be asked, which is a warning too where there are patterns.
    """
    patterns = {table_section(pattern): pattern for pattern in loaded.settings.tables}
    patterns |= {f"service.tables: {pattern}": pattern for pattern in loaded.settings.service.tables}
    if not patterns:
        return []
    try:
        paths = None if source is None else [table.path for table in source.all_tables()]
    except LakewardError:
        paths = None
    if paths is None:
        message = f"not checked whether tables match {', '.join(patterns)}: the source cannot be asked"
        return [CheckResult("patterns of tables", ok=True, message=message, warning=True)]
    known = [str(path) for path in paths]
    return [
        CheckResult(
            where,
            ok=True,
            message=f"matches no table of the source. {did_you_mean(pattern, known)}".rstrip(),
            action="correct the pattern, unless such a table will be created",
            warning=True,
        )
        for where, pattern in patterns.items()
        if not any(matches(pattern, path) for path in paths)
    ]


def unserved_checks(source: Source, tables: Collection[TableSpec]) -> list[Check]:
    """Return a warning where no table is tiered or mirrored, though the source has some; `tables` are those that are.

    Raises as `Source.tables`.
    """
    reason = "" if tables else why_none(source)
    return [CheckResult("tables", ok=True, message=reason, warning=True)] if reason else []


def layout_checks(layouts: Iterable[TableLayout]) -> list[Check]:
    """Describe layouts as checks, a line for each."""
    return [(f"layout of {one.table}", not one.error, one.message) for one in layouts]
