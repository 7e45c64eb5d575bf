"""Writes a log line when the state of the service or the status of a table changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from lakeward.model.status import WAITS_FOR_CATALOG
from lakeward.observe.condition import LATE, NEW, OK, PAUSED, RETRYING

if TYPE_CHECKING:
    from lakeward.model.status import ServiceReport, TableReport

_QUIET = frozenset({OK, NEW, PAUSED, RETRYING})
"""Statuses that ask nothing of anybody; the failed round before `retrying` has a line of its own."""
STARTING = "starting"
_log = structlog.get_logger("lakeward.events")


def log_start(service: str) -> None:
    """Write that a service starts: it makes no report before all of it is open."""
    _log.info(f"service {STARTING}", service=service)


class EventLog:
    """Compares each report with the one before. The first one comes once source, lake and Spark are open."""

    def __init__(self) -> None:
        """Start without a report."""
        self._state = STARTING
        self._statuses: dict[str, str] = {}

    def update(self, report: ServiceReport) -> None:
        """Write what has changed since the last report; `report` is the newest one, and its tables have conditions."""
        if report.state != self._state:
            self._state = report.state
            _log.info(f"service {report.state}", service=report.service, incarnation=report.incarnation)
        for table in report.tables:
            self._update(table)
        known = {table.path for table in report.tables}
        self._statuses = {path: status for path, status in self._statuses.items() if path in known}

    def _update(self, table: TableReport) -> None:
        condition, before = table.condition, self._statuses.get(table.path, OK)
        if condition is None or condition.status == before:
            return
        self._statuses[table.path] = condition.status
        log = _log.info if condition.status in _QUIET else _log.warning
        if LATE in {condition.status, before} and {condition.status, before} <= {LATE, *_QUIET}:
            # Each table is late while a service starts, and one that is promised within a second comes and goes: alerts
            # watch that, and the cause of a wait has a line of its own.
            log = _log.debug
        if condition.message == WAITS_FOR_CATALOG:  # a line for each table would hide the one that says why
            log = _log.debug
        facts = {"reason": condition.message, "action": condition.action}
        log(
            f"table is {condition.status}",
            table=table.path,
            status=condition.status,
            **{name: text for name, text in facts.items() if text},
        )
