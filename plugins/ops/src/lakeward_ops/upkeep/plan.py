"""`lakeward upkeep plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakeward.cli.chosen_tables import chosen_tables
from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.cli.open_plugins import opened_lake, opened_source
from lakeward.cli.output import Columns
from lakeward.cli.serving import find_services
from lakeward.config.tables import lake_path
from lakeward.errors import UsageError
from lakeward.model.identity import UPKEEP, RoundId
from lakeward.observe.format import count, size
from lakeward.observe.progress import format_upkeep
from lakeward.ports import CountedLake, Lake, UpkeepLake
from lakeward_ops.upkeep.due import DueUpkeep

if TYPE_CHECKING:
    from lakeward.model.tables import TablePath
    from lakeward.observe.services import Services

_MOST = 1000
"""Tasks that are planned: a service plans as many as slots are free, and plans again."""


@click.command("plan")
@click.argument("table", metavar="DB.TABLE")
@with_common_options
@pass_invocation
def plan(invocation: Invocation, *, table: str) -> None:
    """Show what upkeep of DB.TABLE, such as a compaction, is due now. Nothing is changed.

    A pattern such as `db.*` means all tables that it matches. A service does what is due in slots that no round needs.
    """
    loaded = invocation.load()
    services = find_services(loaded)
    with opened_source(loaded) as source:
        paths = chosen_tables(loaded, source, table)
    with opened_lake(loaded) as lake:
        if not isinstance(lake, UpkeepLake):
            message = f"lake {loaded.settings.lake.type!r}: it has no upkeep but the expiry of snapshots"
            raise UsageError(message)
        found = [_due(lake, services, path, lake_path(loaded, path)) for path in paths]
    invocation.output.show({"tables": found}, _columns(found))


def _due(lake: Lake, services: Services, path: TablePath, in_lake: TablePath) -> DueUpkeep:
    report = services.of(path).seen.report
    known = () if report is None else report.tables
    last = next((one.upkeep for one in known if one.path == str(path)), None)
    head = lake.head(in_lake)
    if head is None or head.stamp is None or head.table_id is None:
        return DueUpkeep(str(path), "nothing: no service has tiered it yet", last=last)
    assert isinstance(lake, UpkeepLake)  # noqa: S101 - checked before
    # Counted first, as by a service: the lake may know the files still when it plans.
    counts = lake.count_files(in_lake) if isinstance(lake, CountedLake) else None
    planned = lake.plan_upkeep(in_lake, RoundId(head.stamp, head.table_id, UPKEEP, 0), _MOST)
    if planned is None or not planned.tasks:
        return DueUpkeep(str(path), "nothing", counts=counts, last=last)
    files, size_bytes = sum(one.files for one in planned.tasks), sum(one.size_bytes for one in planned.tasks)
    return DueUpkeep(str(path), planned.what, len(planned.tasks), files, size_bytes, counts, last)


def _columns(found: list[DueUpkeep]) -> Columns:
    names = ("table", "next upkeep", "tasks#", "files#", "bytes#")
    lake = ("lake files#", "small#", "delete files#", "deleted rows#", "last upkeep")
    return Columns((*names, *lake), [_row(one) for one in found])


def _row(one: DueUpkeep) -> tuple[object, ...]:
    due = (count(one.tasks), count(one.files), size(one.size_bytes)) if one.tasks else ("", "", "")
    counts, last = one.counts, "" if one.last is None else format_upkeep(one.last)
    if counts is None:
        return (one.table, one.next, *due, "?", "?", "?", "?", last)
    numbers = (counts.data_files, counts.small_files, counts.delete_files, counts.deleted_rows)
    return (one.table, one.next, *due, *map(count, numbers), last)
