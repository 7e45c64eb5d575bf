"""Progress of a running service: a live table on a terminal, else one line for each finished round."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.live import Live
from rich.table import Table
from rich.text import Text

from lakeward.observe.format import clock_time, count, rate, seconds

if TYPE_CHECKING:
    from rich.console import Console

    from lakeward.model.status import RoundReport, ServiceReport, TableReport

_QUIET_OUTCOMES = frozenset({"idle", "running"})
"""Rounds without new rows are frequent: a line for each would hide the others."""


class ProgressDisplay:
    """Shows what a service does. All calls come from one thread."""

    def __init__(self, console: Console) -> None:
        """Start showing.

        Args:
            console: where it prints; on a terminal, the live table appears with the first report.
        """
        self._console = console
        self._live: Live | None = None
        self._lag: dict[str, int] = {}
        self._commits: dict[str, RoundReport] = {}

    def update(self, report: ServiceReport) -> None:
        """Take the service's newest report."""
        self._lag = {table.path: table.lag_rows for table in report.tables if table.lag_rows is not None}
        if not self._console.is_terminal or not report.tables:
            return
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        self._live.update(self._table(report), refresh=True)

    def round_ended(self, table: str, report: RoundReport) -> None:
        """Take the end of a round.

        Args:
            table: `db.table`.
            report: the round, with its outcome.
        """
        if report.outcome == "committed":
            self._commits[table] = report
        bad = report.outcome != "committed"
        if report.outcome not in _QUIET_OUTCOMES and (bad or not self._console.is_terminal):
            line = round_line(table, report, self._lag.get(table))
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Stop showing; the last live table stays on the screen. Calling it twice is harmless."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _table(self, report: ServiceReport) -> Table:
        table = Table(box=None, pad_edge=False, title=_title(report), title_justify="left", title_style="")
        for name in ("table", "status"):
            table.add_column(name, no_wrap=True, overflow="ellipsis")
        for name in ("rows", "rows/s", "splits", "lag", "last commit"):
            table.add_column(name, justify="right", no_wrap=True)
        for each in report.tables:
            table.add_row(each.path, Text(_status(each)), *self._figures(each))
        return table

    def _figures(self, table: TableReport) -> tuple[str, str, str, str, str]:
        running = table.round
        commit = self._commits.get(table.path)
        if commit is None and running is not None and running.outcome == "committed":
            commit = running
        return (
            count(running.rows if running else table.rows),
            rate(running.rows_per_s) if running else "",
            f"{running.splits_done}/{running.splits}" if running else "",
            format_lag(table.lag_rows, table.lag_s),
            clock_time(commit.ended_ms) if commit and commit.ended_ms is not None else "",
        )


def round_line(table: str, report: RoundReport, lag_rows: int | None) -> str:
    """Write a finished round as one line.

    Args:
        table: `db.table`.
        report: the round.
        lag_rows: rows that the lake table still lacks, None where unknown.

    Returns:
        `12:03:07 nyc.flights committed 12,345 rows in 1.8 s (6,858 rows/s), 4 files, lag 0 rows`, or the outcome and
        its reason.
    """
    ended = report.started_ms if report.ended_ms is None else report.ended_ms
    head = f"{clock_time(ended)} {table} {report.outcome}"
    if report.outcome != "committed":
        return f"{head}: {report.reason}" if report.reason else head
    taken = seconds((ended - report.started_ms) / 1000)
    parts = [
        f"{head} {count(report.rows, 'row')} in {taken} ({rate(report.rows_per_s)} rows/s)",
        count(report.files, "file"),
    ]
    if lag_rows is not None:
        parts.append(f"lag {count(lag_rows, 'row')}")
    return ", ".join(parts)


def format_lag(rows: int | None, lag_s: float | None) -> str:
    """Write a lag: `none`, `1,200 rows, 3.1 s`, or `?` where it is unknown."""
    if rows is None:
        return "?"
    if rows == 0:
        return "none"
    return count(rows, "row") + (f", {seconds(lag_s)}" if lag_s is not None else "")


def _title(report: ServiceReport) -> str:
    lease = f", {count(report.leased, 'snapshot')} leased" if report.lease_id else ""
    ui = f", Spark UI {report.spark_ui}" if report.spark_ui else ""
    return f"service {report.service}: {report.state}{lease}{ui}"


def _status(table: TableReport) -> str:
    return f"{table.status}: {table.message}" if table.message else table.status
