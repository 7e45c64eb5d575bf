"""Tables as the configuration has them: tiered, or mirrored, into lake tables of which the source is told nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from lakeward.coordinator.rounds.chosen_columns import choose_columns
from lakeward.model.lake_names import LakeNames
from lakeward.model.partitioning import PartitionField

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakeward.model.settings import TableSettings
    from lakeward.model.tables import TablePath, TableSpec
    from lakeward.ports import Source

MIRROR = "mirror"
_log = structlog.get_logger("lakeward.startup")


def as_configured(table: TableSpec, rules: TableSettings) -> TableSpec:
    """Add to a mirrored table its lake partitioning; leave out columns that it is to do without, and the bucket key.

    Only the source knows that key's function.

    If the lake partitioned by another function of the key, its readers would skip existing rows.
    """
    table = replace(table, lake_properties=rules.lake_properties)
    if rules.mode != MIRROR:
        return replace(table, union_read=True)
    fields = tuple(map(PartitionField.parse, rules.lake_partition))
    table = choose_columns(table, rules.columns)
    lake_path = rules.lake_path(table.path)
    return replace(
        table,
        bucket_key=(),
        lake_partition=fields,
        system_columns=rules.system_columns,
        lake_path=None if lake_path == table.path else lake_path,
    )


def configured_tables(
    source: Source, rules: Callable[[TablePath], TableSettings], *, mirrors: bool
) -> Sequence[TableSpec]:
    """Return the tables in mirror mode, and the lake-enabled ones in tier mode. Raises as `Source.tables`.

    `mirrors`: any table may be mirrored; if not, those are not listed that the source does not have for a lake.
    """
    enabled = source.tables()
    if not mirrors:
        return [as_configured(table, rules(table.path)) for table in enabled]
    tiered = {table.table_id for table in enabled}
    found = ((table, rules(table.path)) for table in source.all_tables())
    return [as_configured(table, its) for table, its in found if its.mode == MIRROR or table.table_id in tiered]


def why_none(source: Source) -> str:
    """Return why no table of a source is served, where `configured_tables` found none; empty if there is no table.

    Raises as `Source.tables`.
    """
    tables = source.all_tables()
    if not tables:
        return ""
    pattern = f"{tables[0].path.database}.*"
    return (
        f"no table of the source is lake-enabled, and none is mirrored: to mirror them, set "
        f'mode = "{MIRROR}" in [tables."{pattern}"]'
    )


def lake_tables(source: Source, rules: Callable[[TablePath], TableSettings], *, mirrors: bool) -> list[TablePath]:
    """Return the lake tables of all that is tiered; where nothing is, say in the log why.

    `mirrors` as in `configured_tables`.

    Raises:
        ConfigError: two tables have one lake table.
        SourceError: the tables cannot be listed.
    """
    found = configured_tables(source, rules, mirrors=mirrors)
    if not found and (reason := why_none(source)):
        _log.warning("there is nothing to do", reason=reason)
    tiered = [table for table in found if rules(table.path).include]
    names = LakeNames()
    for table in tiered:
        names.add(table.path, rules(table.path))
    return [table.in_lake.path for table in tiered]
