"""What needs a person: first in one line, then cause by cause, with the tables that have it and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.model.status import WAITS_FOR_CATALOG
from lakeward.observe.extend import catalog_away, condition, count, seconds
from lakeward_page.table_list import Query

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakeward.model.status import ServiceReport
    from lakeward_page.tables_view import TableRow

_LEASE_SHORT_S = 60.0
_NAMES_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that needs attention. `address` lists the tables that have it, empty where none lists just these."""

    what: str
    why: str
    kind: str
    action: str = ""
    address: str = ""


def headline(rows: Sequence[TableRow], rounds: int) -> str:
    """Say in one line how many tables need a person, and how many wait for what; empty where none does.

    `rounds` are those that run now.
    """
    kinds = [row.status for row in rows]
    need = sum(one.kind == "bad" for one in kinds)
    again = sum(one.text == condition.RETRYING for one in kinds)
    late = [row for row in rows if row.status.text == condition.LATE]
    parts = [f"{count(need, 'table')} {_verb(need, 'needs', 'need')} you"] if need else []
    parts += [f"{_of(again, parts)} {_verb(again, 'is', 'are')} tried again"] if again else []
    parts += [f"{_of(len(late), parts)} {_verb(len(late), 'is', 'are')} late"] if late else []
    if not parts:
        return ""
    waiting = sum(row.report.queue_position is not None for row in late)
    if waiting and rounds:
        them = "it" if len(late) == 1 else "they" if waiting == len(late) else f"{count(waiting)} of them"
        parts[-1] += f": {them} {_verb(waiting, 'waits', 'wait')} for the end of "
        parts[-1] += "the round that runs" if rounds == 1 else f"one of the {count(rounds)} rounds that run"
    return f"{', '.join(parts)}."


def troubles(
    trouble: str, report: ServiceReport | None, rows: Sequence[TableRow], now_ms: int, at: str
) -> Iterator[Trouble]:
    """Yield what needs attention: the service's own troubles, then those of tables, a cause each.

    `at` is the page that lists the tables.
    """
    if trouble:
        yield Trouble("Service", trouble, "bad")
    if report is not None and report.lease_message:
        yield Trouble("Lease", report.lease_message, "bad")
    if report is not None and report.lake_away is not None:
        yield Trouble("Lake", catalog_away(report.lake_away, now_ms), "bad")
    if report is not None and report.leased and report.lease_expires_ms is not None:
        left_s = (report.lease_expires_ms - now_ms) / 1000
        if left_s < _LEASE_SHORT_S:
            ends = f"ends in {seconds(left_s)}" if left_s > 0 else "has ended"
            yield Trouble("Lease", f"{ends} and was not renewed: the snapshots that are read may be deleted", "bad")
    causes: dict[tuple[str, str], list[TableRow]] = {}
    for row in rows:
        if row.status.kind in {"bad", "warn"} and row.report.shown.message != WAITS_FOR_CATALOG:
            causes.setdefault(_cause(row), []).append(row)
    for alike in causes.values():
        yield _one(alike[0]) if len(alike) == 1 else _several(alike, at)


def _cause(row: TableRow) -> tuple[str, str]:
    """Return what makes tables alike: a late one waits as the others do; else the error's code, or its words."""
    found = row.report.shown
    if found.status == condition.LATE:
        return found.status, ""
    return found.status, row.report.code or found.message.replace(row.report.path, "")


def _one(row: TableRow) -> Trouble:
    found = row.report.shown
    since = f" for {row.since}" if row.since else ""
    return Trouble(row.report.path, f"{found.status}{since}: {found.message}", row.status.kind, found.action)


def _several(rows: Sequence[TableRow], at: str) -> Trouble:
    first = rows[0].report
    found = first.shown
    names = ", ".join(row.report.path for row in rows[:_NAMES_SHOWN])
    more = f" and {count(len(rows) - _NAMES_SHOWN)} more" if len(rows) > _NAMES_SHOWN else ""
    why = f"{found.status}: {names}{more}. "
    why += "" if found.status == condition.LATE else f"{first.path}: {found.message}"
    action = found.action.replace(first.path, "TABLE")
    late = found.status == condition.LATE
    query = Query(status=found.status, cause="" if late else first.code, at=at)
    # Without a code nothing in an address tells these from others of their status.
    address = query.address() if late or first.code else ""
    return Trouble(count(len(rows), "table"), why.strip(), rows[0].status.kind, action, address)


def _of(number: int, before: Sequence[str]) -> str:
    return count(number) if before else count(number, "table")


def _verb(number: int, one: str, several: str) -> str:
    return one if number == 1 else several
