"""Builds the service's report from the machines and the rounds in progress."""

from __future__ import annotations

import os
import socket
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from lakeward.coordinator.service.lake_outage import LakeOutage
from lakeward.errors import LakeAwayError, LakewardError
from lakeward.machines.rounds import Phase, TableStatus
from lakeward.model.status import WAITS_FOR_CATALOG, RoundReport, ServiceReport, TableReport
from lakeward.model.tiering import Refusal
from lakeward.repeated_failure import RepeatedFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakeward.coordinator.leases.driver import LeaseDriver
    from lakeward.coordinator.rounds.attempt import RoundAttempt
    from lakeward.coordinator.rounds.attempts import RoundAttempts
    from lakeward.coordinator.service.protection import LeaseProtection
    from lakeward.machines.rounds import Rounds
    from lakeward.model.identity import Incarnation
    from lakeward.model.round_record import RoundRecord
    from lakeward.model.tables import TablePath
    from lakeward.ports import Clock

_EVERY_S = 0.5
"""Seconds between two reports, at least."""
_SHARE = 50
"""Reports take at most a fiftieth of the time: one of hundreds of tables takes 20 to 40 ms, and is made less often."""
_LATEST_S = 5.0
"""Seconds between two reports, at most, however long one takes."""
_QUICK_S = 0.005
"""A report that takes no longer is also made at the end of each round, not only when it is due."""
_log = structlog.get_logger("lakeward.reporter")
_DROPPED_KEPT = 20
"""Dropped tables whose history is still shown."""
_QUIET = frozenset({"idle"})
"""Outcomes that do not replace the table's last shown round. A round that was stopped before it had a job does not
either."""

_SUCCEEDED = frozenset({"committed", "idle"})
_FAILED = frozenset({"failed", "fenced"})
_NO_NEWS = frozenset({"finished", "returned"})
"""Reasons for the end of an assignment that say less than the table's last known status."""


@dataclass(slots=True)
class _History:
    """What is kept about a table across its rounds."""

    path: str
    ended: Counter[str] = field(default_factory=Counter)
    """Rounds by outcome."""
    rows: int = 0
    lag_rows: int | None = None
    waiting_since_ms: int | None = None
    """When the oldest row came that is known to wait."""
    caught_up: bool = False
    """Whether no row waited when that was looked at last."""
    complete_ms: int | None = None
    committed_ms: int | None = None
    freshness_s: float | None = None
    lake_files: int | None = None
    last: RoundReport | None = None
    status: str = "idle"
    message: str = ""
    failing_since_ms: int | None = None
    failure: str = ""
    never_tiered: bool = False
    deadline: float | None = None
    """Of the newest assignment."""
    due_ms: int | None = None
    """The earliest deadline since the last round that succeeded."""

    def note_end(self, attempt: RoundAttempt) -> None:
        """Note how a round ended: what is shown of the table while it is not assigned.

        A service that stops gives a suspended table back before a report would have its phase.
        """
        self.status, self.message = attempt.outcome, attempt.reason
        if attempt.suspended:
            self.status, self.message = Phase.SUSPENDED.value, attempt.suspended

    def note_deadline(self, deadline: float, due_ms: int) -> None:
        """Note the deadline of an assignment, once; it does not put off one that was there before it.

        Args:
            deadline: on the service's clock, in seconds.
            due_ms: the same, in milliseconds since 1970.
        """
        if deadline != self.deadline:
            self.deadline, self.due_ms = deadline, min(due_ms, self.due_ms or due_ms)

    def note_waiting(self, since_ms: int | None) -> None:
        """Note since when the oldest row waits, None where none does."""
        self.waiting_since_ms, self.caught_up = since_ms, since_ms is None

    def note_complete(self, complete_ms: int) -> None:
        """Note a moment up to which a commit has completed the lake."""
        self.complete_ms = max(complete_ms, self.complete_ms or complete_ms)
        if self.waiting_since_ms is not None and self.waiting_since_ms < complete_ms:
            self.note_waiting(None)  # that row is in the lake now

    def lag_s(self, lag_rows: int | None, now_ms: int) -> float | None:
        """Return for how long the oldest row has waited; None where rows wait, and nobody has said since when.

        Args:
            lag_rows: rows that are known to wait now: they came later if none waited when that was looked at last.
            now_ms: milliseconds since 1970.
        """
        if self.waiting_since_ms is not None:
            return max(0.0, (now_ms - self.waiting_since_ms) / 1000)
        return 0.0 if self.caught_up and not lag_rows else None


class Reporter:
    """Keeps the history of each table and writes the report, at most twice a second. Used on the event loop only."""

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
        on_record: Callable[[RoundRecord], None],
        complete_ms: Mapping[int, int] | None = None,
    ) -> None:
        """Start without history, but for what earlier starts have left in the lake.

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
            on_record: takes a round that has ended, as it is kept.
            complete_ms: by table id the moment up to which earlier starts had completed the lake, as far as is known.
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
        self._on_record = on_record
        self._complete_ms = complete_ms or {}
        self._tables: dict[int, _History] = {}
        self._dropped: deque[int] = deque()
        self._last = float("-inf")
        self._outage = LakeOutage()
        self._took_s = 0.0
        """How long the last report took."""
        self._trouble = RepeatedFailure(
            _log.warning, "the service's report could not be written", "the service's report is written again"
        )

    def round_ended(self, attempt: RoundAttempt) -> None:
        """Record a round that has ended, and report it.

        Args:
            attempt: the round.
        """
        history = self._history(attempt.assignment.table_id, attempt.assignment.path)
        report = attempt.report(self._clock.wall_ms())
        if attempt.context is not None:
            history.lag_rows = attempt.lag_rows()
        elif attempt.outcome in _FAILED:  # it did not get to look: what the last round left is of the past
            history.lag_rows, history.waiting_since_ms, history.caught_up = None, None, False
        if attempt.lag_s == 0:  # it found nothing new
            history.note_waiting(None)
        if attempt.outcome == "committed":
            history.rows += report.rows
            history.committed_ms = attempt.ended_ms
            complete_ms = attempt.complete_ms()
            if complete_ms is not None:  # until the source has said which row is the oldest that waits now
                history.note_complete(complete_ms)
        elif attempt.lag_s == 0:  # it found nothing new
            history.complete_ms = attempt.started_ms
        history.ended[attempt.outcome] += 1
        self._outage.round_ended(attempt, self._tables_in_hand())
        history.lake_files = attempt.lake_files() if attempt.context is not None else history.lake_files
        history.note_end(attempt)
        history.never_tiered = attempt.never_tiered if attempt.context is not None else history.never_tiered
        if attempt.outcome in _SUCCEEDED and not attempt.reason:
            history.failing_since_ms, history.failure, history.due_ms = None, "", None
        elif attempt.outcome in _FAILED or attempt.outcome in _SUCCEEDED:  # in part
            history.failing_since_ms, history.failure = history.failing_since_ms or attempt.ended_ms, attempt.reason
        if attempt.outcome not in _QUIET and not (attempt.outcome == "stopped" and attempt.job is None):
            history.last = report
            self.report(force=self._took_s <= _QUICK_S)
            self._on_round(history.path, report)
            self._on_record(attempt.record(report))

    def note_lag(self, table_id: int, path: TablePath, lag_s: float) -> None:
        """Record how far behind a table was after a commit.

        Args:
            table_id: the table.
            path: its name.
            lag_s: seconds.
        """
        history = self._history(table_id, path)
        history.complete_ms = self._clock.wall_ms() - round(lag_s * 1000)
        history.note_waiting(history.complete_ms if lag_s else None)

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
        """Publish the report, at most twice a second, and less often if it takes long.

        Args:
            force: publish now, whenever the last report was.
        """
        now = self._clock.now()
        if force or now - self._last >= min(_LATEST_S, max(_EVERY_S, _SHARE * self._took_s)):
            self._last = now
            self._publish(self._build())
            self._took_s = self._clock.now() - now

    def _publish(self, report: ServiceReport) -> None:
        """Publish a report. If the disk refuses it, tiering continues; each failure is logged once."""
        try:
            self._on_report(report)
        except LakewardError as error:
            self._trouble.failed(str(error))
        else:
            self._trouble.succeeded()

    def _history(self, table_id: int, path: TablePath) -> _History:
        found = self._tables.get(table_id)
        if found is None:
            found = self._tables[table_id] = _History(str(path), complete_ms=self._complete_ms.get(table_id))
        return found

    def _build(self) -> ServiceReport:
        held = self._leases.held_leases
        statuses = {status.assignment.table_id: status for status in self._rounds.tables}
        for table_id, status in statuses.items():
            history = self._history(table_id, status.assignment.path)
            history.freshness_s = status.assignment.freshness_s
            history.note_deadline(status.deadline, self._wall_ms(status.deadline))
            if status.phase is Phase.SUSPENDED:  # so that the file shows it after the service has ended
                history.status, history.message = status.phase.value, status.reason
        queue = {table_id: place for place, table_id in enumerate(self._rounds.queue, 1)}
        tables = [
            self._table(table_id, history, statuses.get(table_id), queue.get(table_id))
            for table_id, history in self._tables.items()
        ]
        until, now_ms = held.until, self._clock.wall_ms()
        self._outage.look(self._attempts.values(), now_ms)
        return ServiceReport(
            service=self._incarnation.service,
            incarnation=str(self._incarnation),
            pid=os.getpid(),
            host=socket.gethostname(),
            state=self.state,
            written_ms=now_ms,
            lake_away=self._outage.report(self._tables_in_hand()),
            spark_ui=self._spark_ui if self.state != "stopped" else None,
            tables=tuple(sorted(tables, key=lambda table: table.path)),
            lease_id=held.lease_id if held.held or held.releasing else None,
            leased=len(held.held),
            releasing=len(held.releasing),
            lease_message=self._leases.message,
            held_for_checkpoints=len(held.for_checkpoints),
            snapshots_gone=self._protection.snapshots_lost,
            started_ms=self._incarnation.started_ms,
            lease_expires_ms=None if until is None else self._wall_ms(until),
        )

    def _tables_in_hand(self) -> int:
        return len(self._rounds.tables)

    def _table(
        self, table_id: int, history: _History, status: TableStatus | None, queue_position: int | None
    ) -> TableReport:
        attempt = self._attempts.get(table_id)
        started = attempt is not None and attempt.context is not None
        lag_rows = attempt.lag_rows() if attempt is not None and started else history.lag_rows
        failing = None if attempt is None or attempt.job is None else attempt.job.failing
        since_ms, failure = history.failing_since_ms, history.failure
        if failing is not None and failing.since is not None:
            since_ms, failure = since_ms or self._wall_ms(failing.since), failing.cause.text
        return TableReport(
            path=history.path,
            table_id=table_id,
            status=status.phase.value if status is not None else history.status,
            message=self._message(history, status) or _waits_for(attempt),
            lag_rows=lag_rows,
            lag_s=history.lag_s(lag_rows, self._clock.wall_ms()),
            rounds=history.ended["committed"],
            ended=dict(history.ended),
            rows=history.rows,
            round=attempt.report(self._clock.wall_ms()) if attempt is not None and started else history.last,
            due_ms=history.due_ms,
            failing_since_ms=since_ms,
            failure=failure,
            freshness_s=history.freshness_s,
            complete_ms=history.complete_ms,
            committed_ms=history.committed_ms,
            queue_position=queue_position,
            lake_files=history.lake_files,
            never_tiered=attempt.never_tiered if attempt is not None and started else history.never_tiered,
        )

    def _wall_ms(self, moment: float) -> int:
        return self._clock.wall_ms() + round((moment - self._clock.now()) * 1000)

    def _message(self, history: _History, status: TableStatus | None) -> str:
        if history.last is not None and history.last.code == LakeAwayError.code:
            return WAITS_FOR_CATALOG
        if status is None:
            return history.message
        if status.phase is Phase.BACKOFF and status.retry_at is not None:
            wait = max(0.0, status.retry_at - self._clock.now())
            return f"{status.reason} (try {status.attempt}, again in {wait:.0f} s)"
        return status.reason


def _waits_for(attempt: RoundAttempt | None) -> str:
    return "" if attempt is None or attempt.job is None else attempt.job.waits_for
