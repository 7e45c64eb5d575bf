"""The page of one table: how it is, its last day as small charts, its buckets, its rounds, and what can be done."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.observe.extend import ago, count, date_time, format_counts, format_replay, seconds
from lakeward_page.round_page import RoundRow, newest_rounds
from lakeward_page.sparkline import Sparkline, sparkline
from lakeward_page.tables_view import RunningRound, TableRow, format_checkpoint, running_rounds, table_row

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakeward.model.status import RoundReport, ServiceReport, TableReport
    from lakeward.observe.extend import LiveStatus

DAY_MS = 86_400_000
ROUNDS_SHOWN = 20
HOT = 2.0
"""A bucket that got so many times the rows of the mean is marked."""


@dataclass(frozen=True, slots=True)
class BucketRow:
    """One bucket: its offset after the last round, and how many rows went from it into the lake since the first one."""

    bucket: str
    offset: str
    rows: str
    share: str
    hot: bool


@dataclass(frozen=True, slots=True)
class TableView:
    """Everything that the template of a table needs."""

    row: TableRow
    facts: tuple[tuple[str, str], ...]
    running: RunningRound | None
    charts: tuple[Sparkline, ...]
    charts_of: str
    buckets: tuple[BucketRow, ...]
    rounds: tuple[RoundRow, ...]
    kept: int
    commands: tuple[tuple[str, str], ...]


def table_view(report: ServiceReport | None, path: str, live: LiveStatus) -> TableView | None:
    """Describe a table of a report, None if it has no such table."""
    table = None if report is None else next((one for one in report.tables if one.path == path), None)
    if table is None or report is None:
        return None
    now_ms = live.wall_ms
    ended = live.rounds_of(table.table_id)
    today = [one for one in ended if (one.ended_ms or 0) > now_ms - DAY_MS]
    row = table_row(table, now_ms)
    return TableView(
        row=row,
        facts=tuple(_facts(row, report, now_ms)),
        running=next((one for one in running_rounds(report) if one.path == path), None),
        charts=tuple(found for found in _charts(today) if found is not None),
        charts_of=f"{count(len(today), 'round')} since {date_time(today[0].started_ms)}" if today else "",
        buckets=tuple(_buckets(today)),
        rounds=newest_rounds(ended, ROUNDS_SHOWN),
        kept=len(ended),
        commands=tuple(_commands(row)),
    )


def _facts(row: TableRow, report: ServiceReport, now_ms: int) -> Iterator[tuple[str, str]]:
    table = row.report
    yield "Complete up to", row.delivered or "\u2013"
    yield "Promised", "\u2013" if table.freshness_s is None else seconds(table.freshness_s)
    yield "Lag", _lag(row)
    yield "Last commit", "\u2013" if table.committed_ms is None else ago(table.committed_ms, now_ms)
    if table.queue_position is not None:
        yield "Place in the queue", f"{table.queue_position:,}."
    yield from _lake_facts(row)
    if table.unread_kept_s is not None:
        yield "The source keeps unread rows for", seconds(table.unread_kept_s)
    ended = ", ".join(f"{number:,} {outcome}" for outcome, number in sorted(table.ended.items()))
    yield "Rounds since the start", ended or count(table.rounds)
    yield "Rows tiered since the start", count(table.rows)
    yield from _bad_rows(table, now_ms)
    if table.failing_since_ms is not None:
        yield "Fails since", f"{date_time(table.failing_since_ms)}: {table.failure}"
    yield from _held(table, report, now_ms)
    yield "Table id", str(table.table_id)


def _held(table: TableReport, report: ServiceReport, now_ms: int) -> Iterator[tuple[str, str]]:
    """Yield what is leased, and the newest checkpoint of the last round; a running one shows its own."""
    if table.leased:
        until = report.lease_expires_ms
        yield "Snapshots leased", count(table.leased) + ("" if until is None else f", until {date_time(until)}")
    last = table.round
    if last is not None and last.ended_ms is not None and last.checkpoint is not None and last.checkpoint.name:
        yield "Last checkpoint", format_checkpoint(last.checkpoint, now_ms)


def _lake_facts(row: TableRow) -> Iterator[tuple[str, str]]:
    table = row.report
    if table.lake_table:
        yield "Lake table", table.lake_table
    if table.lake_files is not None:
        yield "Files in the lake", count(table.lake_files)
    if table.counts is not None:
        yield "When upkeep was planned", format_counts(table.counts)
    if table.upkeep is not None:
        yield "Upkeep", row.upkeep
    if table.layout:
        yield "Layout", table.layout


def _bad_rows(table: TableReport, now_ms: int) -> Iterator[tuple[str, str]]:
    for what, rows in (("Dead letters", table.dead_letters), ("Rows dropped", table.dropped)):
        if rows:
            yield f"{what} since the start", f"{count(rows)}: they do not fit the lake table"
    if table.replay is not None:
        yield "Dead letters replayed", f"{ago(table.replay.at_ms, now_ms)}: {format_replay(table.replay)}"


def _lag(row: TableRow) -> str:
    table = row.report
    if table.lag_rows is None:
        return "not known"
    rows = count(table.lag_rows, "row")
    return rows if not table.lag_s else f"{rows}, the oldest for {seconds(table.lag_s)}"


def _charts(rounds: Sequence[RoundReport]) -> Iterator[Sparkline | None]:
    """Draw the last day; `rounds` are the oldest first."""
    ended = [(one.ended_ms or 0, one) for one in rounds]
    yield sparkline("Rows of a round", [(at_ms, one.rows) for at_ms, one in ended], count)
    yield sparkline("Time of a round", [(at_ms, one.took_s) for at_ms, one in ended], seconds)
    lags = [(at_ms, float(one.lag_rows)) for at_ms, one in ended if one.lag_rows is not None]
    yield sparkline("Rows left after it", lags, count)
    ages = [(at_ms, max(0, at_ms - one.complete_ms) / 1000) for at_ms, one in ended if one.complete_ms is not None]
    yield sparkline("Age of what is complete", ages, seconds)


def _buckets(rounds: Sequence[RoundReport]) -> Iterator[BucketRow]:
    """Yield the buckets, the busiest first; nothing of a table whose rounds say no offsets."""
    known = [one.offsets for one in rounds if one.offsets]
    if not known:
        return
    first, last = known[0], known[-1]
    moved = {bucket: max(0, offset - first.get(bucket, 0)) for bucket, offset in last.items()}
    total = sum(moved.values())
    mean = total / len(moved)
    for bucket, rows in sorted(moved.items(), key=lambda one: -one[1]):
        share = f"{100 * rows / total:.0f} %" if total else "\u2013"
        yield BucketRow(bucket, count(last[bucket]), count(rows), share, len(moved) > 1 and rows > HOT * mean)


def _commands(row: TableRow) -> Iterator[tuple[str, str]]:
    path = shlex.quote(row.report.path)
    yield "Offsets and lag by bucket", f"lakeward tables {path}"
    if row.status.text == "paused":
        yield "Go on", f"lakeward tables resume {path}"
    else:
        yield "Pause", f"lakeward tables pause {path}"
    yield "Tier now", f"lakeward tables tier-now {path}"
    yield "Compare with the source", f"lakeward verify {path}"
    yield "Query the lake table", f"lakeward query {path}"
    yield "All rounds that are kept", f"lakeward rounds list {path}"
