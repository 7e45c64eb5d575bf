"""`lakeward tables list`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.cli.open_plugins import open_records, opened_lake, opened_source
from lakeward.cli.output import Columns
from lakeward.cli.service_line import ServiceSeen, see_service
from lakeward.clock import SystemClock
from lakeward.config.tables import table_rules
from lakeward.observe.control import read_control
from lakeward.observe.format import count, date_time, seconds, size
from lakeward.observe.progress import format_lag
from lakeward.observe.table_status import StatusContext, TableLine, table_status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.config.loaded import Loaded
    from lakeward.model.status import RoundReport


@click.command("list")
@click.option("--buckets", is_flag=True, help="Show the offsets of each bucket too.")
@with_common_options
@pass_invocation
def list_tables(invocation: Invocation, *, buckets: bool) -> None:
    """Show each table: status, tiered and end offsets, lag in rows and seconds, last round.

    Reads source and lake; no service needs to run. Without one, the status is `idle` (the lake has
    everything), `behind`, `new` (never tiered), `paused`, `lake-gone` (it had commits), `offsets-back` (another
    service committed late) or `unreadable`.
    """
    loaded = invocation.load()
    service = see_service(loaded)
    lines = _look(loaded, service)
    document = {"service": service.document(), "tables": lines}
    parts: list[str | Columns] = [f"service {service.name}: {service.message}"]
    parts.append(_overview(lines) if lines else "The source has no table to tier.")
    if buckets and lines:
        parts += ["", _buckets(lines)]
    invocation.output.show(document, *parts)


def _look(loaded: Loaded, service: ServiceSeen) -> list[TableLine]:
    reports = {table.path: table for table in service.report.tables} if service.report else {}
    paused = read_control(loaded.settings.checkpoint.address, service.name).paused
    committed = {record.table_id: record for record in open_records(loaded).list()}
    context = StatusContext(service.running, reports, paused, SystemClock().wall_ms(), committed)
    with opened_source(loaded) as source, opened_lake(loaded) as lake:
        tables = [table for table in source.tables() if table_rules(loaded, table.path).settings.include]
        return table_status(source, lake, tables, context)


def _overview(lines: Sequence[TableLine]) -> Columns:
    names = ("table", "status", "tiered#", "end#", "lag", "last commit", "last round", "last checkpoint", "")
    rows = [
        (
            line.path,
            line.status,
            count(line.tiered),
            count(line.end),
            format_lag(line.lag_rows, line.lag_s),
            "never" if line.committed_ms is None else date_time(line.committed_ms),
            _round(line.last_round),
            _checkpoint(line.last_round),
            line.message,
        )
        for line in lines
    ]
    return Columns(names, rows)


def _round(report: RoundReport | None) -> str:
    if report is None:
        return ""
    taken = "" if report.ended_ms is None else f" in {seconds((report.ended_ms - report.started_ms) / 1000)}"
    return f"{report.outcome}, {count(report.rows, 'row')}{taken}"


def _checkpoint(report: RoundReport | None) -> str:
    seen = report.checkpoint if report is not None else None
    if seen is None:
        return ""
    aborted = f"{seen.aborted} aborted, the last: {seen.reason}" if seen.aborted else ""
    if not seen.name:
        return aborted
    taken = f"{seen.name.rpartition('/')[2]}, {date_time(seen.completed_ms)}"
    completed = f"{taken}, took {seconds(seen.seconds)}, {size(seen.size_bytes)}"
    return f"{completed}; {aborted}" if aborted else completed


def _buckets(lines: Sequence[TableLine]) -> Columns:
    rows = [
        (
            line.path,
            offsets.bucket,
            "never" if offsets.tiered is None else count(offsets.tiered),
            count(offsets.end),
        )
        for line in lines
        for offsets in line.buckets
    ]
    return Columns(("table", "bucket", "tiered#", "end#"), rows)
