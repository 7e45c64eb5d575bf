"""Decides the one status of a table that an operator sees, with its cause, what to do, and since when.

`lakeward tables`, the status file and whatever shows them take the same answer: nothing else decides a status.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from lakeward.errors import RowError
from lakeward.model.status import WAITS_FOR_CATALOG, TableCondition
from lakeward.observe.format import count, date_time, seconds

if TYPE_CHECKING:
    from collections.abc import Collection

    from lakeward.model.status import ServiceReport, TableReport

OK = "ok"
LATE = "late"
NEW = "new"
RETRYING = "retrying"
SUSPENDED = "suspended"
PAUSED = "paused"
LAKE_GONE = "lake-gone"
OFFSETS_BACK = "offsets-back"
UNREADABLE = "unreadable"
STATUSES = {
    OK: "the lake has everything, or nothing has waited for longer than the promised freshness",
    NEW: "never tiered, and nothing has waited for longer than the promised freshness",
    LATE: "rows have waited for longer than the promised freshness",
    RETRYING: "its last round failed, or the one that runs does; the service tries again by itself",
    SUSPENDED: "it cannot be tiered as it is, and waits for a person",
    PAUSED: "a person paused it",
    LAKE_GONE: "the lake no longer has the table's commits",
    OFFSETS_BACK: "another tiering service committed late, behind our offsets",
    UNREADABLE: "source or lake could not be read",
}
"""Every status, and what it means. If several are true, the one that needs a person comes first."""

_BACKOFF = frozenset({"backoff", "failed"})
_WITHOUT_LAG = {
    "waiting": "It waits for a round.",
    **dict.fromkeys(("opening", "leasing", "running", "settling", "committing"), "A round of it has begun."),
}
"""What is said of a table whose lag nobody knows yet, by its phase."""


class Circumstances(msgspec.Struct, frozen=True):
    """What counts for a table's condition besides its report. `now_ms` is milliseconds since 1970."""

    now_ms: int
    running: bool
    """Whether the service still runs that made the report."""
    asked: bool = False
    """Source and lake were asked just now; else the report has what its last round found."""
    paused: bool = False
    before: TableCondition | None = None
    """The condition that was known last."""
    wrong: str = ""
    """LAKE_GONE, OFFSETS_BACK or UNREADABLE where that was found."""
    why: str = ""
    """The cause of it."""
    bound_to: str = ""
    """The service that alone tiers the table, empty where any may."""
    offered_every_s: float | None = None
    """How often the source hands the table out, in seconds; None where that is unknown."""


def table_condition(table: TableReport, at: Circumstances) -> TableCondition:
    """Return the condition of a table, by all that is known of it."""
    found = _found(_as_it_counts(table, at), at)
    if at.before is not None and at.before.status == found.status and at.before.since_ms is not None:
        return TableCondition(found.status, found.message, found.action, at.before.since_ms)
    return found


class ConditionTracker:
    """Adds conditions to the reports of a running service, and remembers since when they are so."""

    def __init__(self, last: ServiceReport | None) -> None:
        """Start from the report of the last start, as the status file has it, None where there is none."""
        tables = () if last is None else last.tables
        self._known = {table.path: table.condition for table in tables if table.condition is not None}

    def describe(self, report: ServiceReport, paused: Collection[str]) -> ServiceReport:
        """Return a report of the service that runs, whose tables have their conditions.

        `paused` are tables by name, as a person asked.
        """
        tables = tuple(self._describe(table, report, paused) for table in report.tables)
        self._known |= {table.path: table.condition for table in tables if table.condition is not None}
        return structs.replace(report, tables=tables)

    def _describe(self, table: TableReport, report: ServiceReport, paused: Collection[str]) -> TableReport:
        now_ms, before = report.written_ms, self._known.get(table.path)
        running, halted = report.state != "stopped", table.path in paused
        condition = table_condition(table, Circumstances(now_ms, running, paused=halted, before=before))
        if condition.since_ms is None:
            condition = TableCondition(condition.status, condition.message, condition.action, now_ms)
        return structs.replace(table, condition=condition)


def _as_it_counts(table: TableReport, at: Circumstances) -> TableReport:
    """Leave out of a report what does not count. It is copied only then: it is made twice a second for each table."""
    if table.due_ms is not None and not at.running:
        table = structs.replace(table, due_ms=None)
    overdue = table.status == "waiting" and table.due_ms is not None and table.due_ms < at.now_ms
    if overdue and table.lag_rows == 0 and not at.asked:
        # No round has looked since the table was due: that nothing waits is what the last round found.
        table = structs.replace(table, lag_rows=None)
    return table


def _found(table: TableReport, at: Circumstances) -> TableCondition:
    if at.wrong in {LAKE_GONE, OFFSETS_BACK}:
        return _needs_accept(table, at)
    if at.paused or (at.running and table.status == PAUSED):
        return _paused(table, at)
    if table.status == SUSPENDED and (at.running or table.lag_rows != 0):
        return _suspended(table, at)
    if _is_failing(table, at):
        return _retrying(table, at)
    if at.wrong:
        action = "Look whether source and lake can be reached: `lakeward doctor`."
        return TableCondition(UNREADABLE, at.why, action)
    return _served(table, at)


def _needs_accept(table: TableReport, at: Circumstances) -> TableCondition:
    undo = "Restore the lake table" if at.wrong == LAKE_GONE else "Roll the lake table back"
    return TableCondition(at.wrong, at.why, f"{undo}, or run `lakeward tables accept {table.path}`.")


def _paused(table: TableReport, at: Circumstances) -> TableCondition:
    waits = "" if table.lag_rows is None else f"; {_waits(table)}"
    message = _with_loss(table, at, f"Paused by `lakeward tables pause`{waits}.")
    return TableCondition(PAUSED, message, f"To tier it again: `lakeward tables resume {table.path}`.")


def _suspended(table: TableReport, at: Circumstances) -> TableCondition:
    start = f"start service {at.bound_to!r}" if at.bound_to else "start the service"
    resume = f"`lakeward tables resume {table.path}`" if at.running else start
    cause = _with_loss(table, at, _with_lag(table, at, table.message))
    # A row that was read can be left out; a batch that cannot be decoded cannot, and has the same code.
    row = ", or set `on_bad_row` where a row does not fit the lake table" if table.code == RowError.code else ""
    do = f"Remove the cause{row}"
    return TableCondition(SUSPENDED, cause, f"{do}, then {resume}.", table.failing_since_ms)


def _is_failing(table: TableReport, at: Circumstances) -> bool:
    """Return whether the last round failed. A failure counts until a round has succeeded, also while one runs."""
    if at.running:
        return table.status == "backoff" or table.failing_since_ms is not None
    return table.status in _BACKOFF and bool(table.message) and table.lag_rows != 0


def _retrying(table: TableReport, at: Circumstances) -> TableCondition:
    said = table.status in _BACKOFF or table.message == WAITS_FOR_CATALOG
    cause = table.message if said else table.failure or table.message
    action = "Nothing, unless it stays so; then the log has the details." if at.running else _start(at)
    return TableCondition(RETRYING, _with_lag(table, at, cause), action, table.failing_since_ms)


def _served(table: TableReport, at: Circumstances) -> TableCondition:
    message = (table.message if at.running else "") or _lag_message(table, at)
    late_ms = _late_since(table, at)
    rows_wait = bool(table.lag_rows)
    if late_ms is not None:
        return TableCondition(LATE, message, _hurry(table, at) if at.running else _start(at), late_ms)
    action = "" if at.running or not rows_wait else _start(at)
    if table.never_tiered and table.lag_rows != 0:
        return TableCondition(NEW, message, action, _oldest_ms(table, at))
    # In a running service the tracker says since when.
    return TableCondition(OK, message, action, table.committed_ms if at.asked else None)


def _hurry(table: TableReport, at: Circumstances) -> str:
    """Say what makes a table that is late less so."""
    offered_s, promised_s = at.offered_every_s, table.freshness_s
    if offered_s is not None and promised_s is not None and offered_s > promised_s:
        every = seconds(offered_s)
        return f"The source offers it every {every} at most: shorten its freshness there, or promise no less than that."
    return "If it stays late: more slots, fewer tables, or a longer freshness."


def _late_since(table: TableReport, at: Circumstances) -> int | None:
    """Return when the promised freshness was missed, None where it is kept or nobody knows.

    Rows are as old as promised when the source hands their table out, in each turn. So a table in hand is late once it
    has missed its deadline, or once its oldest row is older than two promises; it stays so until the promise is kept.
    """
    if table.lag_rows == 0:
        return None
    was_late = at.before is not None and at.before.status == LATE
    promises = 1 if table.due_ms is None or was_late else 2
    missed = [table.due_ms] if table.due_ms is not None and table.due_ms < at.now_ms else []
    if table.freshness_s is not None and table.lag_s is not None:
        over_s = table.lag_s - table.freshness_s * promises
        missed += [at.now_ms - round(over_s * 1000)] if over_s > 0 else []
    return min(missed, default=None)


def _with_loss(table: TableReport, at: Circumstances, cause: str) -> str:
    """Add from when on the source deletes rows that the lake lacks: so much time there is to remove a cause."""
    oldest_ms = _oldest_ms(table, at) if table.lag_rows else table.complete_ms
    if table.unread_kept_s is None or oldest_ms is None or table.lag_rows == 0:
        return cause
    from_ms = oldest_ms + round(table.unread_kept_s * 1000)
    verb = "has deleted unread rows since" if from_ms <= at.now_ms else "deletes unread rows from"
    end = "" if from_ms <= at.now_ms else " on"
    return f"{cause.rstrip('.')}. The source {verb} {date_time(from_ms)}{end}."


def _oldest_ms(table: TableReport, at: Circumstances) -> int | None:
    return None if table.lag_s is None else at.now_ms - round(table.lag_s * 1000)


def _with_lag(table: TableReport, at: Circumstances, cause: str) -> str:
    """Add to a cause what waits meanwhile, where no service runs that would shorten it."""
    if at.running or not table.lag_rows:
        return cause
    return f"{cause.rstrip('.')}. {_lag_message(table, at)}"


def _lag_message(table: TableReport, at: Circumstances) -> str:
    if table.lag_rows is None:
        return _without_lag(table, at)
    if not table.lag_rows:
        return "Nothing to tier yet." if table.never_tiered else "The lake has everything."
    message = f"{'Never tiered; ' if table.never_tiered else ''}{_waits(table)}."
    return message[:1].upper() + message[1:] + _absent(at)


def _without_lag(table: TableReport, at: Circumstances) -> str:
    if table.never_tiered:
        return "No round has been started yet."
    if at.running and table.status in _WITHOUT_LAG:
        return _WITHOUT_LAG[table.status]
    return "It is tiered."


def _absent(at: Circumstances) -> str:
    if at.running:
        return ""
    bound = f" Service {at.bound_to!r}, which it is bound to, is not running."
    return bound if at.bound_to else " No service is running."


def _start(at: Circumstances) -> str:
    if at.bound_to:
        return f"Start service {at.bound_to!r}, which alone tiers it."
    return "Start the service: `lakeward run`."


def _waits(table: TableReport) -> str:
    if not table.lag_rows:
        return "nothing waits"
    verb = "waits" if table.lag_rows == 1 else "wait"
    oldest = "" if table.lag_s is None else f", the oldest for {seconds(table.lag_s)}"
    return f"{count(table.lag_rows, 'row')} {verb}{oldest}"
