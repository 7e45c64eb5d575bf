"""`lakeward tables list`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.cli.opening import open_records, opened_lake, opened_source
from lakeward.cli.output import Columns
from lakeward.cli.service_line import ServiceSeen, see_service
from lakeward.clock import SystemClock
from lakeward.config.tables import table_rules
from lakeward.observe.control import read_control
from lakeward.observe.files import is_local
from lakeward.observe.progress import lag_words
from lakeward.observe.survey import Surroundings, TableStanding, survey
from lakeward.observe.words import count, date_time, seconds, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.config.loader import Loaded
    from lakeward.model.status import RoundReport


@click.command("list")
@click.option("--buckets", is_flag=True, help="Show the offsets of each bucket too.")
@with_common_options
@pass_invocation
def listing(invocation: Invocation, *, buckets: bool) -> None:
    """Show each table: status, tiered and end offsets, lag in rows and seconds, last round.

    Looks at source and lake, and works with no service running. Status words without one: `idle` (the lake has
    everything), `behind`, `new` (never tiered), `paused`, `lake-gone` (it held commits), `offsets-back` (another
    service committed late), `unreadable`.
    """
    loaded = invocation.load()
    service = see_service(loaded)
    standings = _look(loaded, service)
    document = {"service": service.document(), "tables": standings}
    parts: list[str | Columns] = [f"service {service.name}: {service.sentence}"]
    parts.append(_overview(standings) if standings else "The source has no table to tier.")
    if buckets and standings:
        parts += ["", _buckets(standings)]
    invocation.output.show(document, *parts)


def _look(loaded: Loaded, service: ServiceSeen) -> list[TableStanding]:
    root = loaded.settings.checkpoint.root
    reports = {table.path: table for table in service.report.tables} if service.report else {}
    paused = read_control(root, service.name).paused if is_local(root) else frozenset[str]()
    committed = {record.table_id: record for record in open_records(loaded).list()}
    around = Surroundings(service.running, reports, paused, SystemClock().wall_ms(), committed)
    with opened_source(loaded) as source, opened_lake(loaded) as lake:
        tables = [table for table in source.tables() if table_rules(loaded, table.path).settings.include]
        return survey(source, lake, tables, around)


def _overview(standings: Sequence[TableStanding]) -> Columns:
    names = ("table", "status", "tiered#", "end#", "lag", "last commit", "last round", "last checkpoint", "")
    rows = [
        (
            standing.path,
            standing.word,
            count(standing.tiered),
            count(standing.end),
            lag_words(standing.lag_rows, standing.lag_s),
            "never" if standing.committed_ms is None else date_time(standing.committed_ms),
            _round(standing.last_round),
            _checkpoint(standing.last_round),
            standing.sentence,
        )
        for standing in standings
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
    whole = f"{taken}, took {seconds(seen.seconds)}, {size(seen.size_bytes)}"
    return f"{whole}; {aborted}" if aborted else whole


def _buckets(standings: Sequence[TableStanding]) -> Columns:
    rows = [
        (
            standing.path,
            offsets.bucket,
            "never" if offsets.tiered is None else count(offsets.tiered),
            count(offsets.end),
        )
        for standing in standings
        for offsets in standing.buckets
    ]
    return Columns(("table", "bucket", "tiered#", "end#"), rows)
