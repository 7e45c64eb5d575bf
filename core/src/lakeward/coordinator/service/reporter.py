"""Builds the service's report from the machines and the rounds in progress."""

from __future__ import annotations

import os
import socket
from collections import Counter
from typing import TYPE_CHECKING

import structlog
from msgspec import structs

from lakeward.coordinator.rounds.report import report
from lakeward.coordinator.service.lake_outage import LakeOutage
from lakeward.errors import LakeAwayError, LakewardError
from lakeward.machines.rounds import Phase, TableStatus
from lakeward.model.status import WAITS_FOR_CATALOG, ServiceReport, TableReport
from lakeward.repeated_failure import RepeatedFailure

if TYPE_CHECKING:
    from lakeward.coordinator.effects.lease import LeaseProtection
    from lakeward.coordinator.leases.driver import LeaseDriver
    from lakeward.coordinator.rounds.round import Round
    from lakeward.coordinator.service.components import ServiceOptions
    from lakeward.coordinator.service.life import Life
    from lakeward.coordinator.tables.table import Table
    from lakeward.coordinator.tables.tables import Tables
    from lakeward.machines.rounds import Rounds
    from lakeward.model.identity import Incarnation
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
_QUIET = frozenset({"idle"})
"""Outcomes that do not replace the table's last shown round. A round that was stopped before it had a job does not
either."""

_NO_NEWS = frozenset({"finished", "returned"})
"""Reasons for the end of an assignment that say less than the table's last known status."""


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
        tables: Tables,
        options: ServiceOptions,
        life: Life,
    ) -> None:
        self._life = life
        self._incarnation = incarnation
        self._clock = clock
        self._rounds = rounds
        self._leases = leases
        self._protection = protection
        self._tables = tables
        self._options = options
        self._last = float("-inf")
        self._outage = LakeOutage()
        self._took_s = 0.0
        """How long the last report took."""
        self._trouble = RepeatedFailure(
            _log.warning, "the service's report could not be written", "the service's report is written again"
        )

    def round_ended(self, one: Round) -> None:
        """Record a round that has ended, and report it."""
        facts, ended = one.facts, report(one, self._clock.wall_ms(), self._clock.now())
        history = self._tables.known(facts.table_id, facts.assignment.path).history
        history.round_ended(facts, ended)
        self._outage.round_ended(facts, self._tables_in_hand())
        if facts.outcome not in _QUIET and not (facts.outcome == "stopped" and one.job is None):
            # The report of all tables is written twice a second: it has no room for the offsets of every bucket.
            history.note(round=structs.replace(ended, offsets={}))
            self.report(force=self._took_s <= _QUICK_S)
            self._options.on_round(ended)

    def forget(self, table_id: int, reason: str) -> None:
        """Record that a table's assignment ended, and why."""
        table = self._tables.get(table_id)
        if table is not None and reason not in _NO_NEWS:
            table.history.note(message=reason)

    def report(self, *, force: bool = False) -> None:
        """Publish the report: with `force` now, else at most twice a second, and less often if it takes long."""
        now = self._clock.now()
        if force or now - self._last >= min(_LATEST_S, max(_EVERY_S, _SHARE * self._took_s)):
            self._last = now
            self._publish(self._build())
            self._took_s = self._clock.now() - now

    def _publish(self, report: ServiceReport) -> None:
        """Publish a report. If the disk refuses it, tiering continues; each failure is logged once."""
        try:
            self._options.on_report(report)
        except LakewardError as error:
            self._trouble.failed(str(error))
        else:
            self._trouble.succeeded()

    def _build(self) -> ServiceReport:
        held = self._leases.held_leases
        statuses = {status.assignment.table_id: status for status in self._rounds.tables}
        for table_id, status in statuses.items():
            history = self._tables.known(table_id, status.assignment.path).history
            history.note(freshness_s=status.assignment.freshness_s)
            history.note_deadline(status.deadline, self._wall_ms(status.deadline))
            if status.phase is Phase.SUSPENDED:  # so that the file shows it after the service has ended
                history.note(status=status.phase.value, message=status.reason)
        queue = {table_id: place for place, table_id in enumerate(self._rounds.queue, 1)}
        leased = Counter(bucket.table_id for bucket in held.held)
        tables = [
            self._table(table, statuses.get(table.table_id), queue.get(table.table_id), leased[table.table_id])
            for table in (*self._tables, *self._tables.dropped)
        ]
        until, now_ms = held.until, self._clock.wall_ms()
        self._outage.look((one.facts for one in self._tables.rounds), now_ms)
        return ServiceReport(
            service=self._incarnation.service,
            incarnation=str(self._incarnation),
            pid=os.getpid(),
            host=socket.gethostname(),
            state=self._life.state,
            written_ms=now_ms,
            lake_away=self._outage.report(self._tables_in_hand()),
            spark_ui=self._options.spark_ui if self._life.state != "stopped" else None,
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

    def _table(self, table: Table, status: TableStatus | None, queue_position: int | None, leased: int) -> TableReport:
        known, one = table.history.report, table.round
        job = None if one is None else one.job
        message = self._message(known, status) or ("" if job is None else job.waits_for)
        known = structs.replace(known, message=message, queue_position=queue_position, leased=leased)
        known = structs.replace(known, upkeep=table.upkeep_run.report, counts=table.upkeep_run.counts)
        if status is not None:
            known = structs.replace(known, status=status.phase.value)
        if job is not None and job.failing.since is not None:
            since_ms, cause = known.failing_since_ms or self._wall_ms(job.failing.since), job.failing.cause
            known = structs.replace(known, failing_since_ms=since_ms, failure=cause.text, code=cause.code)
        if one is not None and one.facts.context is not None:
            running = report(one, self._clock.wall_ms(), self._clock.now())
            lag_rows, never_tiered = one.facts.lag_rows(), one.facts.never_tiered
            known = structs.replace(known, round=running, lag_rows=lag_rows, never_tiered=never_tiered)
        return structs.replace(known, lag_s=table.history.lag_s(known.lag_rows, self._clock.wall_ms()))

    def _wall_ms(self, moment: float) -> int:
        return self._clock.wall_ms() + round((moment - self._clock.now()) * 1000)

    def _message(self, known: TableReport, status: TableStatus | None) -> str:
        if known.round is not None and known.round.code == LakeAwayError.code:
            return WAITS_FOR_CATALOG
        if status is None:
            return known.message
        if status.phase is Phase.BACKOFF and status.retry_at is not None:
            wait = max(0.0, status.retry_at - self._clock.now())
            return f"{status.reason} (try {status.attempt}, again in {wait:.0f} s)"
        return status.reason
