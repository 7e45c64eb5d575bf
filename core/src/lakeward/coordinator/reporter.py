"""Tells people how it goes: builds the service's report from the machines and the rounds in work."""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from lakeward.errors import LakewardError
from lakeward.machines.rounds import Phase, TableStatus
from lakeward.model.status import RoundReport, ServiceReport, TableReport
from lakeward.model.tiering import Refusal

if TYPE_CHECKING:
    from lakeward.coordinator.run import RoundRun
    from lakeward.coordinator.service import Service

_EVERY_S = 0.5
_log = structlog.get_logger("lakeward.reporter")
_DROPPED_KEPT = 20
"""Dropped tables whose history is still shown."""
_QUIET = frozenset({"idle"})
"""Outcomes that are no news: the table's last real round stays the one that is shown. Nor is a round that was stopped
before it had a job."""

_NO_NEWS = frozenset({"finished", "returned"})
"""Reasons for which a table leaves the hand that say less than what is known of it."""


@dataclass(slots=True)
class _History:
    """What is remembered of a table over its rounds."""

    path: str
    rounds: int = 0
    rows: int = 0
    lag_rows: int | None = None
    lag_s: float | None = None
    last: RoundReport | None = None
    word: str = "idle"
    sentence: str = ""


class Reporter:
    """Keeps the history of each table and writes the report twice a second. Used on the event loop only."""

    def __init__(self, service: Service) -> None:
        """Start without history.

        Args:
            service: whose report this is.
        """
        self._service = service
        self._tables: dict[int, _History] = {}
        self._dropped: deque[int] = deque()
        self._last = float("-inf")
        self._trouble = ""

    def round_over(self, run: RoundRun) -> None:
        """Remember a round that is over, and say so.

        Args:
            run: the round.
        """
        history = self._tables.setdefault(run.offer.table_id, _History(str(run.offer.path)))
        report = run.report(self._service.parts.clock.wall_ms())
        history.lag_rows = run.lag_rows() if run.opening is not None else history.lag_rows
        history.lag_s = run.lag_s if run.lag_s is not None else history.lag_s
        if run.outcome == "committed":
            history.rounds += 1
            history.rows += report.rows
        history.word, history.sentence = run.outcome, run.reason
        if run.outcome not in _QUIET and not (run.outcome == "stopped" and run.job is None):
            history.last = report
            self.report(force=True)
            self._service.options.on_round(history.path, report)

    def note_lag(self, run: RoundRun) -> None:
        """Remember how far behind a table was after a commit.

        Args:
            run: the round that committed; `lag_s` is known by now.
        """
        self._tables.setdefault(run.offer.table_id, _History(str(run.offer.path))).lag_s = run.lag_s

    def forget(self, table_id: int, reason: str) -> None:
        """The table left the hand; its history stays, that of dropped tables for the newest few.

        Args:
            table_id: the table.
            reason: why.
        """
        history = self._tables.get(table_id)
        if history is not None and reason not in _NO_NEWS:
            history.sentence = reason
        if history is not None and reason in {"dropped", Refusal.GONE.value}:
            self._dropped.append(table_id)
            if len(self._dropped) > _DROPPED_KEPT:
                self._tables.pop(self._dropped.popleft(), None)

    def report(self, *, force: bool = False) -> None:
        """Hand the report on, twice a second at most.

        Args:
            force: now, whenever the last one was.
        """
        now = self._service.now()
        if force or now - self._last >= _EVERY_S:
            self._last = now
            self._hand_on(self._build())

    def _hand_on(self, report: ServiceReport) -> None:
        """A disk that refuses the report keeps nobody from tiering; each trouble is warned of once."""
        try:
            self._service.options.on_report(report)
        except LakewardError as error:
            if str(error) != self._trouble:
                _log.warning("the service's report could not be written", reason=str(error))
            self._trouble = str(error)
        else:
            self._trouble = ""

    def _build(self) -> ServiceReport:
        service = self._service
        books = service.keeper.books
        hand = {status.offer.table_id: status for status in service.rounds.in_hand}
        for table_id, status in hand.items():
            history = self._tables.setdefault(table_id, _History(str(status.offer.path)))
            if status.phase is Phase.SUSPENDED:  # it says so after the service has ended, too
                history.word, history.sentence = status.phase.value, status.reason
        tables = [self._table(table_id, history, hand.get(table_id)) for table_id, history in self._tables.items()]
        return ServiceReport(
            service=service.parts.incarnation.service,
            incarnation=str(service.parts.incarnation),
            pid=os.getpid(),
            state=service.state_word,
            written_ms=service.parts.clock.wall_ms(),
            spark_ui=service.options.spark_ui if service.state_word != "stopped" else None,
            tables=tuple(sorted(tables, key=lambda table: table.path)),
            lease_id=books.lease_id if books.held or books.releasing else None,
            leased=len(books.held),
            releasing=len(books.releasing),
            lease_sentence=service.keeper.sentence,
            held_for_checkpoints=len(books.for_checkpoints),
            snapshots_gone=service.snapshots_lost,
        )

    def _table(self, table_id: int, history: _History, status: TableStatus | None) -> TableReport:
        run = self._service.desk.runs.get(table_id)
        live = run.report(self._service.parts.clock.wall_ms()) if run is not None and run.opening is not None else None
        return TableReport(
            path=history.path,
            table_id=table_id,
            word=status.phase.value if status is not None else history.word,
            sentence=self._sentence(history, status),
            lag_rows=run.lag_rows() if run is not None and run.opening is not None else history.lag_rows,
            lag_s=history.lag_s,
            rounds=history.rounds,
            rows=history.rows,
            round=live or history.last,
        )

    def _sentence(self, history: _History, status: TableStatus | None) -> str:
        if status is None:
            return history.sentence
        if status.phase is Phase.BACKOFF and status.retry_at is not None:
            wait = max(0.0, status.retry_at - self._service.now())
            return f"{status.reason} (try {status.attempt}, again in {wait:.0f} s)"
        return status.reason
