"""The page of one round: what it did, and where its time went."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.observe.extend import (
    PHASES,
    SEQUENTIAL,
    count,
    date_time,
    format_exchange,
    phases_of,
    round_facts,
    seconds,
    why,
)
from lakeward_page.tables_view import Badge, RunningRound, round_address, running_rounds, table_address

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakeward.model.status import RoundReport, ServiceReport
    from lakeward.observe.extend import LiveStatus

_OUTCOMES = {
    "committed": "good",
    "idle": "rest",
    "running": "busy",
    "failed": "bad",
    "fenced": "bad",
    "interrupted": "warn",
    "stale": "warn",
}
_DIGITS = 19
"""Of a table's id, at most."""


@dataclass(frozen=True, slots=True)
class Step:
    """One phase of a round. `share` is its part of the round's time in percent, None for a sum over subtasks."""

    name: str
    meaning: str
    took: str
    share: float | None
    start: float
    """Where its bar begins, in percent."""


@dataclass(frozen=True, slots=True)
class RoundView:
    """Everything that the template of a round needs."""

    name: str
    short_name: str
    table: str
    table_address: str
    outcome: Badge
    why: str
    facts: tuple[tuple[str, str], ...]
    running: RunningRound | None
    """While it runs."""
    steps: tuple[Step, ...]
    offsets: tuple[tuple[str, str], ...]
    commands: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class RoundRow:
    """A round in the list of its table's page."""

    name: str
    address: str
    outcome: Badge
    ended: str
    took: str
    rows: str
    files: str
    fresh: str
    why: str


def find_round(live: LiveStatus, name: str) -> tuple[str, RoundReport] | None:
    """Return a round of this name (`TABLE_ID-EPOCH-NUMBER`) with its table; the newest of several starts."""
    report = live.report
    for table in () if report is None else report.tables:
        if table.round is not None and table.round.outcome == "running" and table.round.short_name == name:
            return table.path, table.round
    table_id = name.partition("-")[0]
    if not (table_id.isascii() and table_id.isdigit() and len(table_id) <= _DIGITS):
        return None
    ended = live.rounds_of(int(table_id))
    return next(((one.table, one) for one in reversed(ended) if one.short_name == name), None)


def round_row(one: RoundReport) -> RoundRow:
    """Describe a round that has ended in one line."""
    ended_ms = one.ended_ms or one.started_ms
    return RoundRow(
        name=one.short_name,
        address=round_address(one),
        outcome=outcome_badge(one.outcome),
        ended=date_time(ended_ms),
        took=seconds(one.took_s),
        rows=count(one.rows),
        files=count(one.files),
        fresh="\u2013" if one.complete_ms is None else seconds(max(0.0, (ended_ms - one.complete_ms) / 1000)),
        why=why(one),
    )


def round_view(table: str, one: RoundReport, report: ServiceReport | None) -> RoundView:
    """Describe a round of a table; `report` is the newest one of the service."""
    running = one.outcome == "running" and report is not None
    shown = [found for found in running_rounds(report) if found.name == one.round_name] if running and report else []
    return RoundView(
        name=one.round_name,
        short_name=one.short_name,
        table=table,
        table_address=table_address(table),
        outcome=outcome_badge(one.outcome),
        why=why(one),
        facts=() if shown else tuple(_facts(one)),
        running=shown[0] if shown else None,
        steps=tuple(steps_of(one)),
        offsets=tuple((bucket, count(offset)) for bucket, offset in one.offsets.items()),
        commands=(
            ("This round in a terminal", f"lakeward rounds show {one.short_name}"),
            ("Its lines of a log of JSON", f"grep -F '{one.round_name}' FILE"),
        ),
    )


def outcome_badge(outcome: str) -> Badge:
    """Return the badge of a round's outcome."""
    return Badge(outcome, _OUTCOMES.get(outcome, "rest"))


def steps_of(one: RoundReport) -> Iterator[Step]:
    """Yield where a round's time went: the phases that follow each other, then sums over its subtasks."""
    spent = {name: one.timings_s[name] for name in SEQUENTIAL if name in one.timings_s}
    total = max(sum(spent.values()), one.took_s) or 1.0
    start = 0.0
    for name, took_s in spent.items():
        share = 100 * took_s / total
        yield Step(name, PHASES[name], seconds(took_s), round(share, 1), round(start, 1))
        start += share
    for name in phases_of(one):
        if name not in spent:
            yield Step(name, PHASES.get(name, ""), seconds(one.timings_s[name]), None, 0.0)


def _facts(one: RoundReport) -> Iterator[tuple[str, str]]:
    for name, text in round_facts(one):
        if name == "exchanged" and one.exchange is not None:
            yield "Exchanged", format_exchange(one.exchange)
        elif name != "why":  # the page says it apart
            yield name.capitalize(), text


def newest_rounds(ended: Sequence[RoundReport], most: int) -> tuple[RoundRow, ...]:
    """Describe the newest of some rounds (the oldest first), the newest first."""
    return tuple(round_row(one) for one in reversed(ended[-most:]))
