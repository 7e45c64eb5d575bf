"""The other services of a state root, for the status page: read again and again, without keeping it waiting."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.errors import LakewardError
from lakeward.model.tables import TablePath
from lakeward.observe.extend import ServiceSeen, services_beside

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.model.status import ServiceReport
    from lakeward.observe.extend import LiveStatus, Services
    from lakeward.ports import Clock, Executor

REFRESH_S = 5.0
"""Seconds between two looks at what other services report, while somebody looks at the page."""


@dataclass(frozen=True, slots=True)
class OtherService:
    """Another service of the state root.

    `tables` are those that it tiers: bound to it, or shared and reported by it last. `patterns` are what it binds,
    `shared` says whether it tiers tables as well that no service binds.
    """

    name: str
    running: bool
    message: str
    state: str
    written_ms: int
    tables: tuple[str, ...]
    patterns: tuple[str, ...]
    shared: bool
    report: ServiceReport
    """What it reported last, as it is in its status file: without secrets."""


@dataclass(frozen=True, slots=True)
class OthersSeen:
    """The other services as they were read last, and why a later look failed, if it did."""

    services: tuple[OtherService, ...] = ()
    trouble: str = ""


class OtherServices:
    """Reads what the other services of a state root report and bind. Thread-safe; nothing here blocks its caller."""

    def __init__(self, root: str, service: str, live: LiveStatus, clock: Clock, executor: Executor) -> None:
        """Know nothing yet; `service` is our own name, and `live` knows what it reports.

        Files are read by `executor`: a store that hangs must not keep the page waiting.
        """
        self._root = root
        self._service = service
        self._live = live
        self._clock = clock
        self._executor = executor
        self._seen = OthersSeen()
        self._look_at = float("-inf")
        self._looking = False
        self._lock = threading.Lock()

    def newest(self) -> OthersSeen:
        """Return what was read last, and have it read again if that is some seconds ago."""
        with self._lock:
            due = not self._looking and self._clock.now() >= self._look_at
            if due:
                self._looking, self._look_at = True, self._clock.now() + REFRESH_S
        if due:
            self._executor.start(self._look, name="read what other services report")
        return self._seen

    def _look(self) -> None:
        try:
            report = self._live.report
            ours = ServiceSeen(self._service, True, self._live.state, report)
            self._seen = OthersSeen(_described(services_beside(self._root, ours)))
        except LakewardError as error:
            self._seen = OthersSeen(self._seen.services, str(error))
        finally:
            with self._lock:
                self._looking = False


def _described(services: Services) -> tuple[OtherService, ...]:
    tables = _tables_by_service(services)
    return tuple(
        _other(one, one.report, tables.get(one.name, ()), services) for one in services.others if one.report is not None
    )


def _other(seen: ServiceSeen, report: ServiceReport, tables: tuple[str, ...], services: Services) -> OtherService:
    binding = services.bindings.of(seen.name)
    return OtherService(
        name=seen.name,
        running=seen.running,
        message=seen.message,
        state=report.state,
        written_ms=report.written_ms,
        tables=tables,
        patterns=tuple(sorted(binding.patterns)),
        shared=binding.shared,
        report=report,
    )


def _tables_by_service(services: Services) -> Mapping[str, tuple[str, ...]]:
    """Return which service tiers which of the tables that any service has reported."""
    reports = (one.report for one in (services.ours, *services.others))
    paths = sorted({table.path for report in reports if report is not None for table in report.tables})
    found: dict[str, tuple[str, ...]] = {}
    for path in paths:
        name = services.of(TablePath.parse(path)).name
        found[name] = (*found.get(name, ()), path)
    return found
