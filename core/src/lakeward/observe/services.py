"""The services of a state root: which of them lives, and which one tiers which table, as their files say."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from lakeward.clock import SystemClock
from lakeward.observe import status_file
from lakeward.observe.format import catalog_away, date_time
from lakeward.storage.binding_files import BindingFiles
from lakeward.storage.small_files import SmallFiles

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.model.bindings import Bindings
    from lakeward.model.status import ServiceReport
    from lakeward.model.tables import TablePath

ANY = "any"
"""Shown for a shared table that no service has reported yet."""


@dataclass(frozen=True)
class ServiceSeen:
    """A service as its status file shows it. `report` is None where it has never run here."""

    name: str
    running: bool
    message: str
    report: ServiceReport | None

    @cached_property
    def latest_ms(self) -> Mapping[str, int]:
        """By the name of each table that it reported, when it last did something with it; 0: it only reported it."""
        found: dict[str, int] = {}
        for one in self.report.tables if self.report is not None else ():
            moment = max(one.committed_ms or 0, one.round.started_ms if one.round else 0)
            found[one.path] = max(moment, found.get(one.path, 0))
        return found

    def document(self) -> dict[str, object]:
        """Return what JSON gets."""
        report = self.report
        return {
            "name": self.name,
            "running": self.running,
            "message": self.message,
            "state": None if report is None else report.state,
            "pid": None if report is None else report.pid,
            "incarnation": None if report is None else report.incarnation,
            "written_ms": None if report is None else report.written_ms,
            "spark_ui": report.spark_ui if report is not None and self.running else None,
        }


@dataclass(frozen=True, slots=True)
class Server:
    """The service that tiers a table, `ANY` where nobody has reported it. `bound`: no other service may."""

    name: str
    bound: bool
    seen: ServiceSeen


@dataclass(frozen=True, slots=True)
class Services:
    """All services of a state root. `ours` is the one that asks."""

    ours: ServiceSeen
    others: tuple[ServiceSeen, ...]
    bindings: Bindings

    @property
    def several(self) -> bool:
        """Whether there is more to tell than what our own service does."""
        return bool(self.others) or any(one.patterns or not one.shared for one in self.bindings.services)

    def of(self, path: TablePath) -> Server:
        """Return who tiers a table: the service that it is bound to, else the one that reported it last."""
        if bound := self.bindings.bound_to(path):
            known = {one.name: one for one in (self.ours, *self.others)}
            return Server(bound, True, known.get(bound) or ServiceSeen(bound, False, "has never run here", None))
        sharing = [one for one in (self.ours, *self.others) if self.bindings.of(one.name).shared]
        # Of several that know equally much the first one counts: ours.
        name = str(path)
        best = max(sharing, key=lambda one: (one.running, one.latest_ms.get(name, -1)), default=self.ours)
        return Server(best.name if name in best.latest_ms else ANY, False, best)

    def may_serve(self, path: TablePath) -> tuple[str, ...]:
        """Return the names of the services that may tier a table, ours first."""
        if bound := self.bindings.bound_to(path):
            return (bound,)
        return tuple(one.name for one in (self.ours, *self.others) if self.bindings.of(one.name).shared)


def services_beside(root: str, ours: ServiceSeen) -> Services:
    """Read what the services of a state root bind, and what those besides ours report.

    Raises:
        CorruptFileError: a file of a service is damaged.
        StorageError: the state root cannot be read.
    """
    files = BindingFiles(SmallFiles(root))
    others = (see_service_named(root, name) for name in files.services() if name != ours.name)
    return Services(ours, tuple(one for one in others if one.report is not None), files.read())


def see_service_named(root: str, name: str) -> ServiceSeen:
    """Read the status file of any service of a state root. Arguments and errors as `status_file.read`."""
    report = status_file.read(root, name)
    if report is None:
        return ServiceSeen(name, False, "has never run here", None)
    running = status_file.is_running(report, SystemClock().wall_ms())
    return ServiceSeen(name, running, _message(report, running=running), report)


def _message(report: ServiceReport, *, running: bool) -> str:
    when = date_time(report.written_ms)
    if running:
        ui = f", Spark UI {report.spark_ui}" if report.spark_ui else ""
        away = "" if report.lake_away is None else f"; {catalog_away(report.lake_away, report.written_ms)}"
        return f"{report.state}, process {report.pid}{ui}{away}"
    if report.state == "stopped":
        return f"stopped at {when}"
    if status_file.is_elsewhere(report):
        return f"silent since {when}: process {report.pid} on {report.host} hangs, or is gone"
    if status_file.process_lives(report.pid):
        return f"silent since {when}: process {report.pid} hangs, or is another program by now"
    return f"died: process {report.pid} is gone; it last reported at {when}"
