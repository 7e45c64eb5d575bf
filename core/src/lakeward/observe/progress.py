"""Progress of a running service: a live table on a terminal, else one line for each finished round.

Start, Spark's page, waiting, stop and end are lines in both.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lakeward.errors import LakeAwayError
from lakeward.model.status import WAITS_FOR_CATALOG
from lakeward.observe.format import catalog_away, clock_time, count, date_time, rate, seconds, size
from lakeward.observe.standard_error import lines_of_standard_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakeward.model.settings import Settings
    from lakeward.model.status import (
        ExchangeReport,
        ReplayReport,
        RoundReport,
        ServiceReport,
        TableReport,
        UpkeepReport,
    )
    from lakeward.model.upkeep import FileCounts
    from lakeward.ports import Clock

_QUIET_OUTCOMES = frozenset({"idle", "running"})
"""Rounds without new rows are frequent: a line for each would hide the others."""
_COLUMNS = ("table", "status", "rows", "lag", "rows/s", "last commit", "splits")
"""The most important first: a narrow terminal shows as many as it has room for."""
_EXCHANGE_COLUMNS = ("exchanged", "skew", "waited", "checkpoint")
"""Shown where the rows of a table are exchanged."""
_TEXTS = 2
"""So many of the columns are texts, which may be shortened. A number is whole, or its column is left out."""
_NAME_LEAST = 12
_GAP = 2


class ProgressDisplay:
    """Shows what a service does. All calls come from one thread at a time."""

    def __init__(self, console: Console, clock: Clock) -> None:
        """Start showing; on a terminal, the live table appears with the first report."""
        self._console = console
        self._clock = clock
        self._live: Live | None = None
        self._service = ""
        self._served = False
        self._commits: dict[str, RoundReport] = {}
        self._messages: dict[str, str] = {}
        self._lake_away = False
        self._rounds = {"committed": 0, "failed": 0}
        self._rows = 0

    @property
    def shown(self) -> bool:
        """Whether anybody sees it."""
        return not self._console.quiet

    def starting(self, service: str, master: str) -> None:
        """Print that the service starts on this Spark master."""
        self._service = service
        self._announce(f"starting, Spark master {master}")

    def spark_started(self, version: str, page: str | None) -> None:
        """Print that Spark runs in this version, and the URL of its UI, None where it has none."""
        self._announce(f"Spark {version} has started" + (f", its page is {page}" if page else ""))

    def status_page(self, url: str) -> None:
        """Print where the status page is."""
        self._announce(f"its status page is {url}")

    def stopping(self, signal: str, limit_s: float) -> None:
        """Print that a signal asked for a stop; running rounds may take `limit_s` seconds to commit."""
        within = f"rounds finish early and commit within {seconds(float(round(limit_s)))}"
        self._announce(f"{signal}, stopping: {within}; a second signal stops at once")

    def ended(self, outcome: str) -> None:
        """Print that the service has ended, and in words what it did."""
        self.close()
        done = f"{count(self._rounds['committed'], 'round')} committed {count(self._rows, 'row')}"
        failed = f", {count(self._rounds['failed'], 'round')} failed" if self._rounds["failed"] else ""
        self._announce(f"{outcome}; {done}{failed}")

    def update(self, report: ServiceReport) -> None:
        """Take the service's newest report."""
        self._service = report.service
        if report.state == "serving" and not self._served:
            self._served = True
            self._announce("serving" if report.tables else "serving, waiting for a table that is due")
        if not self._console.is_terminal:
            self._print_messages(report)
        elif report.tables:
            self._show(report)

    def round_ended(self, report: RoundReport) -> None:
        """Take the end of a round."""
        if report.outcome in self._rounds:
            self._rounds[report.outcome] += 1
        if report.outcome == "committed":
            self._commits[report.table] = report
            self._rows += report.rows
        if report.code == LakeAwayError.code:
            return  # it is said once, of all tables
        bad = report.outcome != "committed"
        if report.outcome not in _QUIET_OUTCOMES and (bad or not self._console.is_terminal):
            self._print(round_line(report))

    @contextmanager
    def standard_error(self) -> Iterator[None]:
        """Print what this process and its children write to standard error above the live table, line by line."""
        if not self._console.is_terminal or self._console.quiet:
            yield
            return
        with lines_of_standard_error(self._print):
            yield

    def close(self) -> None:
        """Stop showing; the last live table stays on the screen. Calling it twice is harmless."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _announce(self, text: str) -> None:
        self._print(f"{clock_time(self._clock.wall_ms())} service {self._service}: {text}")

    def _print(self, line: str) -> None:
        self._console.print(Text.from_ansi(line), highlight=False, soft_wrap=True)

    def _print_messages(self, report: ServiceReport) -> None:
        """Print what is the matter with the catalog or a table, once for each time that it changes."""
        if (report.lake_away is not None) != self._lake_away:
            self._lake_away = not self._lake_away
            self._announce(_away(report) or "catalog answers again")
        now = {table.path: table.message for table in _with_message(report)}
        for path, message in now.items():
            if self._messages.get(path) != message:
                self._print(f"{clock_time(report.written_ms)} {path}: {message}")
        self._messages = now

    def _show(self, report: ServiceReport) -> None:
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        self._live.update(self._picture(report), refresh=True)

    def _picture(self, report: ServiceReport) -> Group:
        messages = [Text(away)] if (away := _away(report)) else []
        messages += [Text(f"{table.path}: {table.message}") for table in _with_message(report)]
        running = [(each.path, each.round.exchange) for each in report.tables if each.round is not None]
        recoveries = [(path, format_recovery(moved)) for path, moved in running if moved is not None]
        messages += [Text(f"{path}: {recovery}") for path, recovery in recoveries if recovery]
        return Group(Text(_title(report), overflow="fold"), self._table(report), *messages)

    def _table(self, report: ServiceReport) -> Table:
        exchanges = any(each.round is not None and each.round.exchange is not None for each in report.tables)
        names = (*_COLUMNS, *_EXCHANGE_COLUMNS) if exchanges else _COLUMNS
        figures = ((each, (*self._figures(each), *_exchanged(each.round))) for each in report.tables)
        rows = [(each.path, each.status, *cells)[: len(names)] for each, cells in figures]
        shown, widths = _fitted(names, rows, self._console.width)
        table = Table(box=None, pad_edge=False)
        for number in shown:
            figure = number >= _TEXTS
            table.add_column(
                names[number],
                justify="right" if figure else "left",
                no_wrap=True,
                overflow="ellipsis",
                width=widths[number],
            )
        for row in rows:
            table.add_row(*(Text(row[number]) for number in shown))
        return table

    def _figures(self, table: TableReport) -> tuple[str, str, str, str, str]:
        running = table.round
        commit = self._commits.get(table.path)
        if commit is None and running is not None and running.outcome == "committed":
            commit = running
        return (
            count(running.rows if running else table.rows),
            format_lag(table.lag_rows, table.lag_s),
            rate(running.rows_per_s) if running else "",
            clock_time(commit.ended_ms) if commit and commit.ended_ms is not None else "",
            f"{running.splits_done}/{running.splits}" if running else "",
        )


def show_progress(settings: Settings, clock: Clock, *, on: bool) -> ProgressDisplay:
    """Print on standard output, if `on`, that a service starts, and return what shows its progress there."""
    display = ProgressDisplay(Console(soft_wrap=True, quiet=not on), clock)
    display.starting(settings.service.name, settings.spark.master)
    return display


def _away(report: ServiceReport) -> str:
    return "" if report.lake_away is None else catalog_away(report.lake_away, report.written_ms)


def _with_message(report: ServiceReport) -> Iterator[TableReport]:
    return (table for table in report.tables if table.message not in {"", WAITS_FOR_CATALOG})


def _exchanged(report: RoundReport | None) -> tuple[str, str, str, str]:
    """Return what a round's exchange has moved, how evenly, how long readers waited, and the kind of checkpoint."""
    if report is None or report.exchange is None:
        return "", "", "", ""
    moved, taken = report.exchange, report.checkpoint
    return size(moved.sent_bytes), f"{moved.skew:.1f}", seconds(moved.credit_wait_s), taken.kind if taken else ""


def _fitted(names: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> tuple[list[int], list[int]]:
    """Return the numbers of the columns that fit, and the width of each column."""
    widths = [max(len(name), *(len(row[number]) for row in rows)) for number, name in enumerate(names)]
    shown = list(range(len(names)))
    least = [min(one, _NAME_LEAST) if number < _TEXTS else one for number, one in enumerate(widths)]
    while len(shown) > 1 and sum(least[number] for number in shown) + _GAP * (len(shown) - 1) > width:
        # The status is the last to go: beside a name, a count of rows says more.
        shown.remove(shown[-1] if len(shown) > _TEXTS + 2 else 1 if 1 in shown else shown[-1])
    room = width - sum(least[number] for number in shown) - _GAP * (len(shown) - 1)
    for number in (one for one in (1, 0) if one in shown):
        widths[number], room = _grown(least[number], widths[number], room)
    return shown, widths


def _grown(least: int, wanted: int, room: int) -> tuple[int, int]:
    more = max(0, min(wanted - least, room))
    return least + more, room - more


def round_line(report: RoundReport) -> str:
    """Write a finished round as one line.

    It is `12:03:07 nyc.flights committed 12,345 rows in 1.8 s (6,858 rows/s), 4 files, lag 0 rows`, or the outcome and
    its reason.
    """
    ended = report.started_ms if report.ended_ms is None else report.ended_ms
    head = f"{clock_time(ended)} {report.table} {report.outcome}"
    if report.outcome != "committed":
        return f"{head}: {report.reason}" if report.reason else head
    parts = [
        f"{head} {count(report.rows, 'row')} in {seconds(report.took_s)} ({rate(report.rows_per_s)} rows/s)",
        count(report.files, "file"),
    ]
    if report.exchange is not None:
        parts.append(f"exchanged {format_exchange(report.exchange)}")
    if report.lag_rows is not None:
        parts.append(f"lag {count(report.lag_rows, 'row')}")
    return ", ".join(parts)


def format_lag(rows: int | None, lag_s: float | None) -> str:
    """Write a lag: `none`, `1,200 rows, 3.1 s`, or `?` where it is unknown."""
    if rows is None:
        return "?"
    if rows == 0:
        return "none"
    return count(rows, "row") + (f", {seconds(lag_s)}" if lag_s is not None else "")


def format_upkeep(report: UpkeepReport) -> str:
    """Write what a table's newest job of upkeep has done: `compaction committed, 12 files of 3.0 MiB became ...`."""
    said = f"{report.what} {report.state}, {count(report.files, 'file')} of {size(report.size_bytes)}"
    if report.state == "committed":
        said += f" became {report.files_after} of {size(report.size_bytes_after)}"
    if report.ended_ms is not None:
        said += f", {date_time(report.ended_ms)}"
    return f"{said}: {report.reason}" if report.reason else said


def format_counts(counts: FileCounts) -> str:
    """Write what files a lake table has: `12 files of 3.0 MiB, 9 small, 2 delete files with 30 rows`."""
    said = f"{count(counts.data_files, 'file')} of {size(counts.size_bytes)}, {count(counts.small_files)} small"
    if counts.delete_files:
        said += f", {count(counts.delete_files, 'delete file')} with {count(counts.deleted_rows, 'row')}"
    return said


def format_replay(replay: ReplayReport) -> str:
    """Write what a replay of dead letters did: `3 rows put in, 2 stay`, or why it failed."""
    return replay.reason or f"{count(replay.put_in, 'row')} put in, {count(replay.stay)} stay"


def format_exchange(moved: ExchangeReport) -> str:
    """Write what an exchange moved: `13 MiB, skew 1.3, waited 0.4 s`.

    What is queued, and how far a recovery is, is added while there is something.
    """
    queued = f", {size(moved.queued_bytes)} queued" if moved.queued_bytes else ""
    recovery = f", {found}" if (found := format_recovery(moved)) else ""
    return f"{size(moved.sent_bytes)}{queued}, skew {moved.skew:.1f}, waited {seconds(moved.credit_wait_s)}{recovery}"


def format_recovery(moved: ExchangeReport) -> str:
    """Write how far a recovery is: `recovering: 12 MiB of 40 MiB written, 28 MiB spilled`; empty where none runs."""
    match moved.recovery:
        case "not_ready":
            return f"recovering: reading back, {size(moved.spill_bytes)} spilled"
        case "draining":
            done, all_ = size(moved.recovered_bytes), size(moved.recovery_bytes)
            return f"recovering: {done} of {all_} written, {size(moved.spill_bytes)} spilled"
        case _:
            return ""


def _title(report: ServiceReport) -> str:
    lease = f", {count(report.leased, 'snapshot')} leased" if report.lease_id else ""
    ui = f", Spark UI {report.spark_ui}" if report.spark_ui else ""
    return f"service {report.service}: {report.state}{lease}{ui}"
