"""`lakeward tables list`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import count as numbers
from typing import TYPE_CHECKING

import click
from msgspec import structs

from lakeward.cli.chosen_tables import included_tables, matching
from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.cli.layouts import table_layouts
from lakeward.cli.open_plugins import all_configured, configured_table, open_records, opened_lake, opened_source
from lakeward.cli.output import Columns
from lakeward.cli.serving import find_services
from lakeward.clock import SystemClock
from lakeward.config.tables import excluded, table_rules
from lakeward.coordinator.rounds.mirroring import why_none
from lakeward.errors import LakewardError
from lakeward.model.patterns import has_wildcards
from lakeward.model.tables import TablePath
from lakeward.observe.condition import OK, STATUSES
from lakeward.observe.control import read_control
from lakeward.observe.format import ago, count, date_time, seconds, size
from lakeward.observe.progress import format_counts, format_exchange, format_lag, format_replay, format_upkeep
from lakeward.observe.table_status import LakeHeads, StatusContext, TableLine, table_status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.config.loaded import Loaded
    from lakeward.coordinator.rounds.layout import TableLayout
    from lakeward.model.status import RoundReport
    from lakeward.model.tables import TableSpec
    from lakeward.observe.services import Server, Services
    from lakeward.ports import Source


_NAMES = (
    *("table", "service", "status", "since", "phase", "tiered#", "end#", "lag", "complete up to#", "promised#"),
    *("last commit", "last round"),
)
_DETAILS = (
    *("last checkpoint", "lake table", "lake files", "last upkeep", "last replay", "lake partition", "exchange"),
    *("cause", "what to do"),
)
IMPOSSIBLE = "impossible"


@click.command("list")
@click.argument("table", metavar="[DB.TABLE]", required=False)
@click.option(
    "--status",
    "statuses",
    type=click.Choice(list(STATUSES)),
    multiple=True,
    help="Show only tables of this status; may be repeated.",
)
@click.option("--watch", is_flag=True, help="Show them again and again, until it is interrupted.")
@click.option(
    "--every",
    type=click.FloatRange(min=0, min_open=True),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="How long `--watch` waits in between.",
)
@click.option("--buckets", is_flag=True, help="Show the offsets of each bucket too.")
@click.option("--wide", is_flag=True, help="Show all columns, empty ones too, and each table in one line.")
@with_common_options
@pass_invocation
def list_tables(
    invocation: Invocation,
    *,
    table: str | None,
    statuses: tuple[str, ...],
    watch: bool,
    every: float,
    buckets: bool,
    wide: bool,
) -> None:
    """Show DB.TABLE, or each table: status, offsets, lag, delivered and promised freshness, last round, lake layout.

    A pattern such as `db.*` means all tables that it matches.

    Reads source and lake; no service needs to run. The status is `ok`, `new` (never tiered), `late` (rows have waited
    for longer than the promised freshness), `retrying`, `suspended`, `paused`, `lake-gone` (it had commits),
    `offsets-back` (another service committed late) or `unreadable`; with its cause, what to do, and since when. Where
    several services share the source, it shows which one tiers the table, and whether the table is bound to it.

    Empty columns are left out. Lines below a table have what has no room beside it: 160 characters where the width of
    the terminal is not known.
    """
    if table is not None:
        TablePath.parse(table)  # a mistake in it is told of, whatever else is wrong
    loaded = invocation.load()
    wanted = _Wanted(table, frozenset(statuses), buckets=buckets, wide=wide)
    if not watch:
        _show(invocation, loaded, wanted)
        return
    with suppress(KeyboardInterrupt):
        _watch(invocation, loaded, wanted, every)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What is to be shown; `table` is a name, a pattern, or None for all; no `statuses` are all."""

    table: str | None
    statuses: frozenset[str]
    buckets: bool
    wide: bool


def _watch(invocation: Invocation, loaded: Loaded, wanted: _Wanted, every_s: float) -> None:
    """Show the tables until somebody interrupts it. What fails after the first look is shown, and tried again."""
    clock = SystemClock()
    for look in numbers():
        if look:
            clock.sleep(every_s)
            click.clear()  # does nothing where this is no terminal
        try:
            _show(invocation, loaded, wanted)
        except LakewardError as error:
            if not look:
                raise
            invocation.output.show({"error": str(error), "code": error.code}, f"[{error.code}] {error}")


def _show(invocation: Invocation, loaded: Loaded, wanted: _Wanted) -> None:
    services = find_services(loaded)
    now_ms = SystemClock().wall_ms()
    every, none = _look(loaded, services, now_ms, wanted.table)
    lines = [line for line in every if not wanted.statuses or line.report.shown.status in wanted.statuses]
    shown = (services.ours, *services.others)
    document = {
        "service": services.ours.document(),
        "other_services": [one.document() for one in services.others],
        "tables": [_table_document(line) for line in lines],
    }
    parts: list[str | Columns] = [f"service {one.name}: {one.message}" for one in shown]
    if lines:
        parts.append(_overview(lines, now_ms, services=services.several, wide=wanted.wide))
    elif every:
        parts.append(f"None of {count(len(every), 'table')} is {' or '.join(sorted(wanted.statuses))}.")
    else:
        parts.append(f"The source has no table to tier{f': {none}' if none else ''}.")
    if wanted.buckets and lines:
        parts += ["", _buckets(lines)]
    invocation.output.show(document, *parts)


def _table_document(line: TableLine) -> dict[str, object]:
    """Return a table as JSON has it: its line, its report and its condition side by side."""
    report = line.report
    fields = structs.asdict(report) | structs.asdict(report.shown) | structs.asdict(line)
    for nested in ("report", "condition", "round"):
        del fields[nested]
    return fields | {"phase": report.status, "last_round": report.round}


def _look(loaded: Loaded, services: Services, now_ms: int, text: str | None) -> tuple[list[TableLine], str]:
    """Return the tables, and why there is none, if that is known."""
    with opened_source(loaded) as source, opened_lake(loaded) as lake:
        tables = _tables(loaded, source, text)
        none = "" if tables or all_configured(loaded, source) else why_none(source)
        layouts = {layout.table: layout for layout in table_layouts(loaded, tables)}
        served: dict[tuple[str, bool], tuple[Server, list[TableSpec]]] = {}
        for table in tables:
            server = services.of(table.path)
            served.setdefault((server.name, server.bound), (server, []))[1].append(table)
        heads = LakeHeads(lake)
        lines = [
            structs.replace(line, service=server.name, bound=server.bound)
            for server, theirs in served.values()
            for line in table_status(source, heads, theirs, _context(loaded, server, now_ms))
        ]
    lines.sort(key=lambda line: line.report.path)
    return [_with_layout(line, layouts.get(line.report.path)) for line in lines], none


def _tables(loaded: Loaded, source: Source, text: str | None) -> Sequence[TableSpec]:
    """Return all tables that are tiered, those that a pattern matches, or the one that is named."""
    if text is not None and not has_wildcards(text):
        path = TablePath.parse(text)
        if not table_rules(loaded, path).settings.include:
            raise excluded(path)
        return [configured_table(loaded, source, path)]
    every = included_tables(loaded, source)
    chosen = None if text is None else matching(text, [table.path for table in every])
    return every if chosen is None else [table for table in every if table.path in chosen]


def _context(loaded: Loaded, server: Server, now_ms: int) -> StatusContext:
    """Return what is known of the tables of one service."""
    seen = server.seen
    return StatusContext(
        seen.running,
        {table.path: table for table in seen.report.tables} if seen.report else {},
        read_control(loaded.settings.checkpoint.address, seen.name).paused,
        now_ms,
        {record.table_id: record for record in open_records(loaded, seen.name).list()},
        lambda path: table_rules(loaded, path).settings.freshness_s,
        server.name if server.bound else "",
    )


def _with_layout(line: TableLine, layout: TableLayout | None) -> TableLine:
    if layout is None:
        return line
    if not layout.error:
        return structs.replace(line, lake_partition=layout.lake_partition, exchange=layout.exchange)
    report, condition = line.report, line.report.shown
    if layout.error.rstrip(".") not in condition.message:  # else a service has tried it
        message = f"{condition.message} Its layout is impossible: {layout.error}"
        report = structs.replace(report, condition=structs.replace(condition, message=message))
    return structs.replace(line, report=report, lake_partition=layout.lake_partition, exchange=IMPOSSIBLE)


def _overview(lines: Sequence[TableLine], now_ms: int, *, services: bool, wide: bool) -> Columns:
    rows = [_row(line, now_ms, services=services, wide=wide) for line in lines]
    if wide:
        return Columns((*_NAMES, *_DETAILS), rows)
    used = [at for at in range(len(_NAMES) + len(_DETAILS)) if any(row[at] for row in rows)]
    names = [(*_NAMES, *_DETAILS)[at] for at in used]
    details = sum(at >= len(_NAMES) for at in used)
    return Columns(names, [[row[at] for at in used] for row in rows], details)


def _row(line: TableLine, now_ms: int, *, services: bool, wide: bool) -> tuple[str, ...]:
    report, condition = line.report, line.report.shown
    return (
        report.path,
        (f"{line.service} (bound)" if line.bound else line.service) if services else "",
        condition.status,
        "" if condition.since_ms is None else date_time(condition.since_ms),
        report.status,
        count(line.tiered),
        count(line.end),
        format_lag(report.lag_rows, report.lag_s),
        ago(report.complete_ms, now_ms),
        "" if report.freshness_s is None else seconds(report.freshness_s),
        "never" if report.committed_ms is None else date_time(report.committed_ms),
        _round(report.round),
        _checkpoint(report.round),
        report.lake_table,
        # Nobody has to know of files as long as no upkeep had anything to do with them.
        "" if report.counts is None or (report.upkeep is None and not wide) else format_counts(report.counts),
        "" if report.upkeep is None else format_upkeep(report.upkeep),
        "" if report.replay is None else f"{date_time(report.replay.at_ms)}: {format_replay(report.replay)}",
        *_layout(line),
        # Of a table that is well there is nothing to explain.
        condition.message if wide or condition.status != OK or line.exchange == IMPOSSIBLE else "",
        condition.action,
    )


def _layout(line: TableLine) -> tuple[str, str]:
    """Return a table's layout and route, and what its last round exchanged; empty where it has the source's layout."""
    if not line.lake_partition:
        return "", ""
    moved = line.report.round.exchange if line.report.round is not None else None
    return ", ".join(line.lake_partition), line.exchange + (f": {format_exchange(moved)}" if moved is not None else "")


def _round(report: RoundReport | None) -> str:
    if report is None:
        return ""
    taken = "" if report.ended_ms is None else f" in {seconds(report.took_s)}"
    counts = (("dropped", report.dropped), ("dead letters", report.dead_letters))
    bad = ", ".join(f"{count(number)} {what}" for what, number in counts if number)
    return f"{report.outcome}, {count(report.rows, 'row')}{f' ({bad})' if bad else ''}{taken}"


def _checkpoint(report: RoundReport | None) -> str:
    seen = report.checkpoint if report is not None else None
    if seen is None:
        return ""
    aborted = f"{seen.aborted} aborted, the last: {seen.reason}" if seen.aborted else ""
    if not seen.name:
        return aborted
    taken = f"{seen.name.rpartition('/')[2]}, {date_time(seen.completed_ms)}"
    completed = f"{taken}, took {seconds(seen.seconds)}, {size(seen.size_bytes)}"
    if seen.kind:
        held = f"{size(seen.channel_bytes)} in channels, {size(seen.open_row_bytes)} in open files"
        completed += f" besides {held}; {seen.kind}, blocked for {seconds(seen.blocked_s)}"
    return f"{completed}; {aborted}" if aborted else completed


def _buckets(lines: Sequence[TableLine]) -> Columns:
    rows = [
        (
            line.report.path,
            offsets.bucket,
            "never" if offsets.tiered is None else count(offsets.tiered),
            count(offsets.end),
        )
        for line in lines
        for offsets in line.buckets
    ]
    return Columns(("table", "bucket", "tiered#", "end#"), rows)
