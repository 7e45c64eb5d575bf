"""Builds the service's report from the machines and the rounds in progress."""

from __future__ import annotations

import os
import socket
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from lakeward.errors import LakewardError
from lakeward.machines.rounds import Phase, TableStatus
from lakeward.model.status import RoundReport, ServiceReport, TableReport
from lakeward.model.tiering import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.coordinator.leases.driver import LeaseDriver
    from lakeward.coordinator.rounds.attempt import RoundAttempt
    from lakeward.coordinator.rounds.attempts import RoundAttempts
    from lakeward.coordinator.service.protection import LeaseProtection
    from lakeward.machines.rounds import Rounds
    from lakeward.model.identity import Incarnation
    from lakeward.model.tables import TablePath
    from lakeward.ports import Clock

_EVERY_S = 0.5
_log = structlog.get_logger("lakeward.reporter")
_DROPPED_KEPT = 20
"""Dropped tables whose history is still shown."""
_QUIET = frozenset({"idle"})
"""Outcomes that do not replace the table's last shown round. A round that was stopped before it had a job does not
either."""

_NO_NEWS = frozenset({"finished", "returned"})
"""Reasons for the end of an assignment that say less than the table's last known status."""


@dataclass(slots=True)
class _History:
    """What is kept about a table across its rounds."""

    path: str
    rounds: int = 0
    rows: int = 0
    lag_rows: int | None = None
    lag_s: float | None = None
    last: RoundReport | None = None
    status: str = "idle"
    message: str = ""


class Reporter:
    """Keeps the history of each table and writes the report twice a second. Used on the event loop only."""

    def __init__(
        self,
        *,
        incarnation: Incarnation,
        clock: Clock,
        rounds: Rounds,
        leases: LeaseDriver,
        protection: LeaseProtection,
        attempts: RoundAttempts,
        spark_ui: str | None,
        on_report: Callable[[ServiceReport], None],
        on_round: Callable[[str, RoundReport], None],
    ) -> None:
        """Start without history.

        Args:
            incarnation: ours.
            clock: the service's clock.
            rounds: knows which tables are assigned.
            leases: knows what is leased.
            protection: knows how many snapshots were lost.
            attempts: the rounds in progress.
            spark_ui: the address of Spark's user interface, None where it has none.
            on_report: takes each report.
            on_round: takes a table's name and how a round of it ended.
        """
        self.state = "starting"
        """The service's state: starting, serving, stopping or stopped."""
        self._incarnation = incarnation
        self._clock = clock
        self._rounds = rounds
        self._leases = leases
        self._protection = protection
        self._attempts = attempts
        self._spark_ui = spark_ui
        self._on_report = on_report
        self._on_round = on_round
        self._tables: dict[int, _History] = {}
        self._dropped: deque[int] = deque()
        self._last = float("-inf")
        self._trouble = ""

    def round_ended(self, attempt: RoundAttempt) -> None:
        """Record a round that has ended, and report it.

        Args:
            attempt: the round.
        """
        history = self._history(attempt.assignment.table_id, attempt.assignment.path)
        report = attempt.report(self._clock.wall_ms())
        history.lag_rows = attempt.lag_rows() if attempt.context is not None else history.lag_rows
        history.lag_s = attempt.lag_s if attempt.lag_s is not None else history.lag_s
        if attempt.outcome == "committed":
            history.rounds += 1
            history.rows += report.rows
        history.status, history.message = attempt.outcome, attempt.reason
        if attempt.outcome not in _QUIET and not (attempt.outcome == "stopped" and attempt.job is None):
            history.last = report
            self.report(force=True)
            self._on_round(history.path, report)

    def note_lag(self, table_id: int, path: TablePath, lag_s: float) -> None:
        """Record how far behind a table was after a commit.

        Args:
            table_id: the table.
            path: its name.
            lag_s: seconds.
        """
        self._history(table_id, path).lag_s = lag_s

    def forget(self, table_id: int, reason: str) -> None:
        """Record that a table's assignment ended. Its history stays; of dropped tables only that of the newest few.

        Args:
            table_id: the table.
            reason: why.
        """
        history = self._tables.get(table_id)
        if history is not None and reason not in _NO_NEWS:
            history.message = reason
        if history is not None and reason in {"dropped", Refusal.GONE.value} and table_id not in self._dropped:
            self._dropped.append(table_id)
            if len(self._dropped) > _DROPPED_KEPT:
                self._tables.pop(self._dropped.popleft(), None)

    def report(self, *, force: bool = False) -> None:
        """Publish the report, at most twice a second.

        Args:
            force: publish now, whenever the last report was.
        """
        now = self._clock.now()
        if force or now - self._last >= _EVERY_S:
            self._last = now
            self._publish(self._build())

    def _publish(self, report: ServiceReport) -> None:
        """Publish a report. If the disk refuses it, tiering continues; each failure is logged once."""
        try:
            self._on_report(report)
        except LakewardError as error:
            if str(error) != self._trouble:
                _log.warning("the service's report could not be written", reason=str(error))
            self._trouble = str(error)
        else:
            self._trouble = ""

    def _history(self, table_id: int, path: TablePath) -> _History:
        return self._tables.setdefault(table_id, _History(str(path)))

    def _build(self) -> ServiceReport:
        held = self._leases.held_leases
        statuses = {status.assignment.table_id: status for status in self._rounds.tables}
        for table_id, status in statuses.items():
            history = self._history(table_id, status.assignment.path)
            if status.phase is Phase.SUSPENDED:  # so that the file shows it after the service has ended
                history.status, history.message = status.phase.value, status.reason
        tables = [self._table(table_id, history, statuses.get(table_id)) for table_id, history in self._tables.items()]
        return ServiceReport(
            service=self._incarnation.service,
            incarnation=str(self._incarnation),
            pid=os.getpid(),
            host=socket.gethostname(),
            state=self.state,
            written_ms=self._clock.wall_ms(),
            spark_ui=self._spark_ui if self.state != "stopped" else None,
            tables=tuple(sorted(tables, key=lambda table: table.path)),
            lease_id=held.lease_id if held.held or held.releasing else None,
            leased=len(held.held),
            releasing=len(held.releasing),
            lease_message=self._leases.message,
            held_for_checkpoints=len(held.for_checkpoints),
            snapshots_gone=self._protection.snapshots_lost,
        )

    def _table(self, table_id: int, history: _History, status: TableStatus | None) -> TableReport:
        attempt = self._attempts.get(table_id)
        started = attempt is not None and attempt.context is not None
        return TableReport(
            path=history.path,
            table_id=table_id,
            status=status.phase.value if status is not None else history.status,
            message=self._message(history, status) or _waits_for(attempt),
            lag_rows=attempt.lag_rows() if attempt is not None and started else history.lag_rows,
            lag_s=history.lag_s,
            rounds=history.rounds,
            rows=history.rows,
            round=attempt.report(self._clock.wall_ms()) if attempt is not None and started else history.last,
        )

    def _message(self, history: _History, status: TableStatus | None) -> str:
        if status is None:
            return history.message
        if status.phase is Phase.BACKOFF and status.retry_at is not None:
            wait = max(0.0, status.retry_at - self._clock.now())
            return f"{status.reason} (try {status.attempt}, again in {wait:.0f} s)"
        return status.reason


def _waits_for(attempt: RoundAttempt | None) -> str:
    return "" if attempt is None or attempt.job is None else attempt.job.waits_for
