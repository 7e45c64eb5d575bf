"""What the status page says of a service as a whole: what needs a person, five figures, tables, rounds, problems."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import quote

from lakeward.observe.extend import ago, clock_time, condition, count, date_time, seconds
from lakeward_page.other_services import OthersSeen
from lakeward_page.table_list import Query, TableList, table_list, urgency
from lakeward_page.tables_view import Badge, RunningRound, TableRow, running_rounds, table_row
from lakeward_page.troubles import Trouble, headline, troubles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakeward.model.status import ServiceReport, TableReport
    from lakeward.observe.extend import LiveStatus
    from lakeward_page.other_services import OtherService
    from lakeward_page.recent_problems import Problem

_STATES = {"starting": "busy", "serving": "good", "stopping": "busy", "stopped": "rest"}
_UNKNOWN = "\u2013"
_TROUBLES_SHOWN = 20
_NAMES_SHOWN = 10
_NOBODY = OthersSeen()
_ALL = Query()


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of the summary: what it counts, its value, and a remark."""

    name: str
    value: str
    remark: str = ""


@dataclass(frozen=True, slots=True)
class ProblemRow:
    """One line of the log."""

    at: str
    level: Badge
    logger: str
    text: str


@dataclass(frozen=True, slots=True)
class OtherRow:
    """Another service of the state root. `message` is empty while it lives."""

    name: str
    address: str
    state: Badge
    message: str
    seen: str
    tables: str
    binds: str


@dataclass(frozen=True, slots=True)
class Frame:
    """What stands above and below the content of each page."""

    service: str
    state: Badge
    written: str
    facts: tuple[tuple[str, str], ...]
    spark_ui: str


@dataclass(frozen=True, slots=True)
class StatusView:
    """Everything that the template of the first page needs."""

    missing: tuple[str, ...]
    figures: tuple[Figure, ...]
    headline: str
    """What needs a person, in one line; empty where nothing does."""
    troubles: tuple[Trouble, ...]
    more_troubles: int
    tables: TableList
    rounds: tuple[RunningRound, ...]
    problems: tuple[ProblemRow, ...] | None
    """None where nobody knows them."""
    others: tuple[OtherRow, ...]
    others_trouble: str


def service_address(name: str) -> str:
    """Return the path of another service's page."""
    return f"/services/{quote(name, safe='')}"


def masked_others(others: OthersSeen, mask: Callable[[str], str]) -> OthersSeen:
    """Return what was read of other services, without secrets: `mask` hides those of a text."""
    return replace(others, trouble=mask(others.trouble)) if others.trouble else others


def frame(service: str, live: LiveStatus, report: ServiceReport | None) -> Frame:
    """Describe a service in its page's frame; `report` is its newest one."""
    trouble = live.trouble()
    return Frame(
        service=service,
        state=Badge("does not answer" if trouble else live.state, "bad" if trouble else _STATES[live.state]),
        written=clock_time(live.wall_ms),
        facts=() if report is None else tuple(_facts(report, live.wall_ms)),
        spark_ui="" if report is None else report.spark_ui or "",
    )


def status_view(
    live: LiveStatus,
    report: ServiceReport | None,
    problems: Sequence[Problem],
    others: OthersSeen = _NOBODY,
    *,
    query: Query = _ALL,
) -> StatusView:
    """Describe a service; `query` says which of its tables are listed.

    `live` is what its process knows of it. `report` (its newest one), `problems` (the newest lines of the log) and
    `others` (the other services of the state root) are without secrets.
    """
    shown = _described(report, live.trouble(), live.wall_ms, query)
    return replace(
        shown,
        missing=live.missing() if report is None or report.state == "starting" else (),
        problems=tuple(_problem(one) for one in problems),
        others=tuple(_other(one, live.wall_ms) for one in others.services),
        others_trouble=others.trouble,
    )


def other_frame(one: OtherService, now_ms: int) -> Frame:
    """Describe another service of the state root in the frame of its page."""
    row = _other(one, now_ms)
    return Frame(one.name, row.state, clock_time(now_ms), tuple(_facts(one.report, now_ms)), one.report.spark_ui or "")


def other_view(one: OtherService, now_ms: int, query: Query) -> StatusView:
    """Describe another service by what it reported last: nobody here knows its log."""
    silent = "" if one.running or one.state == "stopped" else f"{one.message} This is what it reported last."
    return _described(one.report, silent, now_ms, query)


def _described(report: ServiceReport | None, trouble: str, now_ms: int, query: Query) -> StatusView:
    """Describe what a report says; the rest of the view is empty."""
    tables = () if report is None else report.tables
    rows = sorted((table_row(table, now_ms) for table in tables), key=urgency)
    found = tuple(troubles(trouble, report, rows, now_ms, query.at))
    return StatusView(
        missing=(),
        figures=() if report is None else tuple(_figures(report, rows, now_ms)),
        headline="" if report is None else headline(rows, len(report.running)),
        troubles=found[:_TROUBLES_SHOWN],
        more_troubles=max(0, len(found) - _TROUBLES_SHOWN),
        tables=table_list(rows, query),
        rounds=() if report is None else running_rounds(report),
        problems=None,
        others=(),
        others_trouble="",
    )


def _facts(report: ServiceReport, now_ms: int) -> Iterator[tuple[str, str]]:
    if report.started_ms:
        running = seconds(max(0.0, (now_ms - report.started_ms) / 1000))
        yield "Started", f"{date_time(report.started_ms)}, {running} ago"
    yield "Process", f"{report.pid} on {report.host}" if report.host else str(report.pid)
    yield "Incarnation", report.incarnation


def _figures(report: ServiceReport, rows: Sequence[TableRow], now_ms: int) -> Iterator[Figure]:
    late = sum(row.status.text == condition.LATE for row in rows)
    wrong = sum(row.status.kind in {"bad", "warn"} for row in rows) - late
    yield Figure("Tables that are well", f"{len(rows) - late - wrong:,} of {len(rows):,}", _not_well(late, wrong))
    waiting = sum(table.queue_position is not None for table in report.tables)
    yield Figure(
        "Rounds running", count(len(report.running)), "1 table waits" if waiting == 1 else f"{waiting:,} tables wait"
    )
    yield _held(report.tables)
    yield Figure("Snapshots leased", count(report.leased), _lease(report, now_ms))
    files = [table.lake_files for table in report.tables if table.lake_files is not None]
    yield Figure("Files in the lake", count(sum(files)) if files else _UNKNOWN, _in_tables(len(files)))


def _held(tables: Sequence[TableReport]) -> Figure:
    """Count the rows that the source keeps until the lake has them; a table that is paused waits for nobody."""
    tables = [table for table in tables if table.shown.status != condition.PAUSED]
    waiting = [table for table in tables if table.lag_rows]
    held = [table.lag_rows or 0 for table in waiting]
    unknown = sum(table.lag_rows is None for table in tables)
    oldest_s = max((table.lag_s for table in waiting if table.lag_s), default=None)
    remarks = [_in_tables(len(held))] if held else []
    remarks += [] if oldest_s is None else [f"the oldest waits for {seconds(oldest_s)}"]
    remarks += [f"not known of {count(unknown, 'table')}"] if unknown else []
    rows = count(sum(held), "row") if held or not unknown else _UNKNOWN
    return Figure("Held in the source's log for the lake", rows, ", ".join(remarks) or "the lake has everything")


def _in_tables(tables: int) -> str:
    return f"in {count(tables, 'table')}" if tables else "no round has ended yet"


def _not_well(late: int, wrong: int) -> str:
    if not late and not wrong:
        return "none is late, none fails"
    return ", ".join(f"{number:,} {what}" for number, what in ((late, "late"), (wrong, "with an error")) if number)


def _lease(report: ServiceReport, now_ms: int) -> str:
    if not report.leased:
        return "no lease is needed now"
    if report.lease_expires_ms is None:
        return "no expiry is known"
    left_s = (report.lease_expires_ms - now_ms) / 1000
    ends = f"the lease ends in {seconds(left_s)} unless renewed" if left_s > 0 else "the lease has ended"
    return f"{ends}; {count(report.releasing, 'release')} to come" if report.releasing else ends


def _other(one: OtherService, now_ms: int) -> OtherRow:
    left = count(len(one.tables) - _NAMES_SHOWN)
    names = (*one.tables[:_NAMES_SHOWN], *((f"{left} more",) if len(one.tables) > _NAMES_SHOWN else ()))
    binds = [f"binds {', '.join(one.patterns)}"] if one.patterns else []
    binds += [] if one.shared else ["leaves the others alone"]
    stopped = one.state == "stopped"
    kind = _STATES.get(one.state, "rest") if one.running else "rest" if stopped else "warn"
    return OtherRow(
        name=one.name,
        address=service_address(one.name),
        state=Badge(one.state if one.running or stopped else "silent", kind),
        message="" if one.running else one.message,
        seen=ago(one.written_ms, now_ms),
        tables=", ".join(names) or _UNKNOWN,
        binds="; ".join(binds),
    )


def _problem(one: Problem) -> ProblemRow:
    times = f" ({one.times:,} times)" if one.times > 1 else ""
    level = Badge(one.level, "warn" if one.level == "warning" else "bad")
    return ProblemRow(date_time(one.at_ms), level, one.logger, one.text + times)
