"""Tables, rounds and subtasks as the status page shows them: their reports, each state as a word and a sign."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from lakeward.observe.extend import (
    ago,
    clock_time,
    condition,
    count,
    date_time,
    format_exchange,
    format_upkeep,
    rate,
    seconds,
    size,
)

if TYPE_CHECKING:
    from lakeward.model.status import CheckpointReport, RoundReport, ServiceReport, SubtaskReport, TableReport

_SIGNS = {
    "good": "\u2713",
    "busy": "\u25b8",
    "rest": "\u00b7",
    "warn": "!",
    "bad": "\u2715",
}
"""Beside each colour a sign, so that nothing is said by colour alone."""
_KINDS = {
    condition.OK: "good",
    condition.NEW: "rest",
    condition.PAUSED: "rest",
    condition.LATE: "warn",
    condition.RETRYING: "warn",
    condition.SUSPENDED: "bad",
    condition.LAKE_GONE: "bad",
    condition.OFFSETS_BACK: "bad",
    condition.UNREADABLE: "bad",
}
_FAILED = frozenset({"failed", "fenced"})
_AT_WORK = frozenset({"opening", "leasing", "running", "settling", "committing", "reporting"})


@dataclass(frozen=True, slots=True)
class Badge:
    """A state: its text, its sign, and the kind that its colour follows."""

    text: str
    kind: str

    @property
    def sign(self) -> str:
        """A sign of its own for each kind."""
        return _SIGNS[self.kind]


@dataclass(frozen=True, slots=True)
class TableRow:
    """One table, and the address of its page.

    `work` is shown instead of the phase, where the phase says no more than the status. `upkeep` is its newest job of
    upkeep, empty where there was none since the service started.
    """

    report: TableReport
    address: str
    status: Badge
    since: str
    phase: Badge
    work: str
    upkeep: str
    delivered: str


@dataclass(frozen=True, slots=True)
class SubtaskRow:
    """One subtask of a running round."""

    report: SubtaskReport
    state: Badge


@dataclass(frozen=True, slots=True)
class RunningRound:
    """One running round."""

    path: str
    name: str
    address: str
    key: str
    phase: Badge
    splits: int
    splits_done: int
    facts: tuple[tuple[str, str], ...]
    subtasks: tuple[SubtaskRow, ...]


def table_address(path: str) -> str:
    """Return the path of a table's page."""
    return f"/tables/{quote(path, safe='')}"


def round_address(one: RoundReport) -> str:
    """Return the path of a round's page."""
    return f"/rounds/{quote(one.short_name)}"


def badge(status: str) -> Badge:
    """Return the badge of a table's status; a word that is not known here is neither good nor bad."""
    return Badge(status, _KINDS.get(status, "rest"))


def table_row(table: TableReport, now_ms: int) -> TableRow:
    """Describe a table of a report; `now_ms` is in milliseconds since 1970."""
    found = table.shown
    return TableRow(
        report=table,
        address=table_address(table.path),
        status=badge(found.status),
        since="" if found.since_ms is None else seconds(max(0.0, (now_ms - found.since_ms) / 1000)),
        phase=_phase(table.status),
        work=_last_failure(table.round) if table.status == found.status else "",
        upkeep="" if table.upkeep is None else format_upkeep(table.upkeep),
        delivered=ago(table.complete_ms, now_ms),
    )


def running_rounds(report: ServiceReport) -> tuple[RunningRound, ...]:
    """Describe the rounds that run now."""
    return tuple(_running(table, found, report.written_ms) for table, found in report.running)


def _running(table: TableReport, found: RoundReport, now_ms: int) -> RunningRound:
    facts = [
        ("Rows read", f"{count(found.rows)} ({rate(found.rows_per_s)} rows/s)"),
        ("Since", f"{clock_time(found.started_ms)}, {seconds((now_ms - found.started_ms) / 1000)}"),
        ("Files", f"{count(found.files)}, {size(found.size_bytes)}"),
    ]
    if found.slots_asked:
        facts.append(("Spark slots", f"{found.slots} of {found.slots_asked}"))
    if found.exchange is not None:
        facts.append(("Exchanged", format_exchange(found.exchange)))
    if found.checkpoint is not None and found.checkpoint.name:
        facts.append(("Checkpoint", format_checkpoint(found.checkpoint, now_ms)))
    return RunningRound(
        path=table.path,
        name=found.round_name,
        address=round_address(found),
        key=f"round-{table.table_id}",
        phase=_phase(table.status),
        splits=found.splits,
        splits_done=found.splits_done,
        facts=tuple(facts),
        subtasks=tuple(_subtask(one) for one in found.subtasks),
    )


def format_checkpoint(taken: CheckpointReport, now_ms: int) -> str:
    """Describe a round's newest checkpoint; with an exchange in the words of `lakeward tables`."""
    age = seconds(max(0.0, (now_ms - taken.completed_ms) / 1000))
    shown = f"{taken.name.rpartition('/')[2]}, {age} ago"
    if not taken.kind:
        return shown
    held = f"{size(taken.channel_bytes)} in channels, {size(taken.open_row_bytes)} in open files"
    return f"{shown}, {size(taken.size_bytes)} besides {held}; {taken.kind}, blocked for {seconds(taken.blocked_s)}"


def _subtask(one: SubtaskReport) -> SubtaskRow:
    kind = {"reading": "busy", "finished": "good", "disconnected": "warn"}.get(one.state, "rest")
    return SubtaskRow(one, Badge(one.state, kind))


def _last_failure(last: RoundReport | None) -> str:
    """Name the last round if it failed, as `lakeward rounds show` takes it; else return a dash."""
    if last is None or last.outcome not in _FAILED or last.ended_ms is None:
        return "\u2013"
    return f"round {last.short_name} {last.outcome} at {date_time(last.ended_ms)}"


def _phase(text: str) -> Badge:
    return Badge(text, "busy" if text in _AT_WORK else "rest")
