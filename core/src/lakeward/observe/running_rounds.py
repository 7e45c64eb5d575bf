"""The rounds that a service runs now, as its status file shows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakeward.model.status import RoundReport, ServiceReport, SubtaskReport, TableReport


@dataclass(frozen=True, slots=True)
class RoundInProgress:
    """One round. `round` is its full name, `started_ms` and `seen_ms` are milliseconds since 1970.

    `state` is the phase of its table: `leasing`, `running`, `settling`, `committing`. `reason` is the newest error of a
    subtask whose splits were not read since, `code` that error's code; both are empty while nothing fails. `slots` are
    those that Spark gave it, out of `slots_asked`. It was so at `seen_ms`.
    """

    table: str
    table_id: int
    round: str
    state: str
    started_ms: int
    seen_ms: int
    rows: int
    splits: int
    splits_done: int
    slots: int
    slots_asked: int
    subtasks: tuple[SubtaskReport, ...]
    reason: str = ""
    code: str = ""

    @property
    def attempts(self) -> int:
        """How many attempts of its subtasks there were, since its checkpoint if it went on from one."""
        return max((one.attempt for one in self.subtasks), default=0)


def with_running_round(report: ServiceReport) -> tuple[tuple[TableReport, RoundReport], ...]:
    """Return each table whose round runs, with that round; `report` is of a service that runs."""
    rounds = ((table, table.round) for table in report.tables)
    return tuple((table, found) for table, found in rounds if found is not None and found.outcome == "running")


def running_rounds(report: ServiceReport) -> tuple[RoundInProgress, ...]:
    """Return the rounds that run, the newest first; `report` is of a service that runs."""
    found = [_running(table, one, report.written_ms) for table, one in with_running_round(report)]
    return tuple(sorted(found, key=lambda one: (-one.started_ms, one.table)))


def _running(table: TableReport, found: RoundReport, seen_ms: int) -> RoundInProgress:
    return RoundInProgress(
        table=table.path,
        table_id=table.table_id,
        round=found.round_name,
        state=table.status,
        started_ms=found.started_ms,
        seen_ms=seen_ms,
        rows=found.rows,
        splits=found.splits,
        splits_done=found.splits_done,
        slots=found.slots,
        slots_asked=found.slots_asked,
        subtasks=found.subtasks,
        reason=found.reason,
        code=found.code,
    )
