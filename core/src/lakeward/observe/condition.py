"""Decides the one status of a table that an operator sees, with its cause, what to do, and since when.

`lakeward tables`, the status file and whatever shows them take the same answer: nothing else decides a status.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakeward.model.status import TableCondition
from lakeward.observe.format import count, seconds

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


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What is known of a table. Times are milliseconds since 1970; None is unknown.

    `phase`, `reason`, `failure`, `failing_since_ms` and `due_ms` are as the service reported them last, `running` says
    whether it still runs. `wrong` is LAKE_GONE, OFFSETS_BACK or UNREADABLE where that was found, and `why` the cause.
    `lag_rows` is None where the source was not asked. `before` is the condition that was known last.
    """

    path: str
    now_ms: int
    running: bool
    paused: bool = False
    phase: str = ""
    reason: str = ""
    failure: str = ""
    failing_since_ms: int | None = None
    due_ms: int | None = None
    wrong: str = ""
    why: str = ""
    never_tiered: bool = False
    committed_ms: int | None = None
    lag_rows: int | None = None
    lag_s: float | None = None
    freshness_s: float | None = None
    before: TableCondition | None = None
    bound_to: str = ""
    """The service that alone tiers the table, empty where any may."""
    offered_every_s: float | None = None
    """How often the source hands the table out, in seconds; None where that is unknown."""


def table_condition(known: TableFacts) -> TableCondition:
    """Return the condition of a table, by all that is known of it."""
    found = _found(known)
    if known.before is not None and known.before.status == found.status and known.before.since_ms is not None:
        return TableCondition(found.status, found.message, found.action, known.before.since_ms)
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
        return replace(report, tables=tables)

    def _describe(self, table: TableReport, report: ServiceReport, paused: Collection[str]) -> TableReport:
        now_ms, running = report.written_ms, report.state != "stopped"
        due_ms = table.due_ms if running else None
        # No round has looked since the table was due: the status is still that of the last round.
        unseen = table.status == "waiting" and due_ms is not None and due_ms < now_ms
        condition = table_condition(
            TableFacts(  # twice a second for each table: `replace` would take longer than all the rest
                path=table.path,
                now_ms=now_ms,
                running=running,
                paused=table.path in paused,
                phase=table.status,
                reason=table.message,
                failure=table.failure,
                failing_since_ms=table.failing_since_ms,
                due_ms=due_ms,
                never_tiered=table.never_tiered,
                lag_rows=table.lag_rows or None if unseen else table.lag_rows,
                lag_s=table.lag_s,
                freshness_s=table.freshness_s,
                before=self._known.get(table.path),
            )
        )
        if condition.since_ms is None:
            condition = TableCondition(condition.status, condition.message, condition.action, now_ms)
        return replace(table, condition=condition)


def facts_of(report: TableReport | None, *, now_ms: int, running: bool, path: str = "") -> TableFacts:
    """Return what the service's report says of a table.

    `report` is the newest one, None where there is none: then `path` is the table's name. `now_ms` is in milliseconds
    since 1970.
    """
    if report is None:
        return TableFacts(path, now_ms, running)
    return TableFacts(
        path=report.path,
        now_ms=now_ms,
        running=running,
        phase=report.status,
        reason=report.message,
        failure=report.failure,
        failing_since_ms=report.failing_since_ms,
        due_ms=report.due_ms if running else None,
        freshness_s=report.freshness_s,
        before=report.condition,
    )


def _found(known: TableFacts) -> TableCondition:
    if known.wrong in {LAKE_GONE, OFFSETS_BACK}:
        return _needs_accept(known)
    if known.paused or (known.running and known.phase == PAUSED):
        return _paused(known)
    if known.phase == SUSPENDED and (known.running or known.lag_rows != 0):
        return _suspended(known)
    if _is_failing(known):
        return _retrying(known)
    if known.wrong:
        action = "Look whether source and lake can be reached: `lakeward doctor`."
        return TableCondition(UNREADABLE, known.why, action)
    return _served(known)


def _needs_accept(known: TableFacts) -> TableCondition:
    undo = "Restore the lake table" if known.wrong == LAKE_GONE else "Roll the lake table back"
    return TableCondition(known.wrong, known.why, f"{undo}, or run `lakeward tables accept {known.path}`.")


def _paused(known: TableFacts) -> TableCondition:
    waits = "" if known.lag_rows is None else f"; {_waits(known)}"
    message = f"Paused by `lakeward tables pause`{waits}."
    return TableCondition(PAUSED, message, f"To tier it again: `lakeward tables resume {known.path}`.")


def _suspended(known: TableFacts) -> TableCondition:
    start = f"start service {known.bound_to!r}" if known.bound_to else "start the service"
    resume = f"`lakeward tables resume {known.path}`" if known.running else start
    return TableCondition(
        SUSPENDED, _with_lag(known, known.reason), f"Remove the cause, then {resume}.", known.failing_since_ms
    )


def _is_failing(known: TableFacts) -> bool:
    """Return whether the last round failed. A failure counts until a round has succeeded, also while one runs."""
    if known.running:
        return known.phase == "backoff" or known.failing_since_ms is not None
    return known.phase in _BACKOFF and bool(known.reason) and known.lag_rows != 0


def _retrying(known: TableFacts) -> TableCondition:
    cause = known.reason if known.phase in _BACKOFF else known.failure or known.reason
    action = "Nothing, unless it stays so; then the log has the details." if known.running else _start(known)
    return TableCondition(RETRYING, _with_lag(known, cause), action, known.failing_since_ms)


def _served(known: TableFacts) -> TableCondition:
    message = (known.reason if known.running else "") or _lag_message(known)
    late_ms = _late_since(known)
    rows_wait = bool(known.lag_rows)
    if late_ms is not None:
        return TableCondition(LATE, message, _hurry(known) if known.running else _start(known), late_ms)
    action = "" if known.running or not rows_wait else _start(known)
    if known.never_tiered and known.lag_rows != 0:
        return TableCondition(NEW, message, action, _oldest_ms(known))
    return TableCondition(OK, message, action, known.committed_ms)


def _hurry(known: TableFacts) -> str:
    """Say what makes a table that is late less so."""
    offered_s, promised_s = known.offered_every_s, known.freshness_s
    if offered_s is not None and promised_s is not None and offered_s > promised_s:
        every = seconds(offered_s)
        return f"The source offers it every {every} at most: shorten its freshness there, or promise no less than that."
    return "If it stays late: more slots, fewer tables, or a longer freshness."


def _late_since(known: TableFacts) -> int | None:
    """Return when the promised freshness was missed, None where it is kept or nobody knows.

    Rows are as old as promised when the source hands their table out, in each turn. So a table in hand is late once it
    has missed its deadline, or once its oldest row is older than two promises; it stays so until the promise is kept.
    """
    if known.lag_rows == 0:
        return None
    was_late = known.before is not None and known.before.status == LATE
    promises = 1 if known.due_ms is None or was_late else 2
    missed = [known.due_ms] if known.due_ms is not None and known.due_ms < known.now_ms else []
    if known.freshness_s is not None and known.lag_s is not None:
        over_s = known.lag_s - known.freshness_s * promises
        missed += [known.now_ms - round(over_s * 1000)] if over_s > 0 else []
    return min(missed, default=None)


def _oldest_ms(known: TableFacts) -> int | None:
    return None if known.lag_s is None else known.now_ms - round(known.lag_s * 1000)


def _with_lag(known: TableFacts, cause: str) -> str:
    """Add to a cause what waits meanwhile, where no service runs that would shorten it."""
    if known.running or not known.lag_rows:
        return cause
    return f"{cause.rstrip('.')}. {_lag_message(known)}"


def _lag_message(known: TableFacts) -> str:
    if known.lag_rows is None:
        return _without_lag(known)
    if not known.lag_rows:
        return "Nothing to tier yet." if known.never_tiered else "The lake has everything."
    message = f"{'Never tiered; ' if known.never_tiered else ''}{_waits(known)}."
    return message[:1].upper() + message[1:] + _absent(known)


def _without_lag(known: TableFacts) -> str:
    if known.never_tiered:
        return "No round has been started yet."
    if known.running and known.phase in _WITHOUT_LAG:
        return _WITHOUT_LAG[known.phase]
    return "It is tiered."


def _absent(known: TableFacts) -> str:
    if known.running:
        return ""
    bound = f" Service {known.bound_to!r}, which it is bound to, is not running."
    return bound if known.bound_to else " No service is running."


def _start(known: TableFacts) -> str:
    if known.bound_to:
        return f"Start service {known.bound_to!r}, which alone tiers it."
    return "Start the service: `lakeward run`."


def _waits(known: TableFacts) -> str:
    if not known.lag_rows:
        return "nothing waits"
    verb = "waits" if known.lag_rows == 1 else "wait"
    oldest = "" if known.lag_s is None else f", the oldest for {seconds(known.lag_s)}"
    return f"{count(known.lag_rows, 'row')} {verb}{oldest}"
