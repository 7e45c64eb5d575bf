"""The line about the service that commands print: whether it runs, and when it last reported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.clock import SystemClock
from lakeward.model.status import ServiceReport
from lakeward.observe import status_file
from lakeward.observe.format import date_time

if TYPE_CHECKING:
    from lakeward.config.loaded import Loaded


@dataclass(frozen=True, slots=True)
class ServiceSeen:
    """The service as its status file shows it. `report` is None where it has never run here."""

    name: str
    running: bool
    message: str
    report: ServiceReport | None

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


def see_service(loaded: Loaded) -> ServiceSeen:
    """Read the status file.

    Args:
        loaded: the configuration.

    Returns:
        What is known of the service.

    Raises:
        CorruptFileError: the status file is damaged.
    """
    return see_service_named(loaded.settings.checkpoint.address, loaded.settings.service.name)


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
        return f"{report.state}, process {report.pid}{ui}"
    if report.state == "stopped":
        return f"stopped at {when}"
    if status_file.is_elsewhere(report):
        return f"silent since {when}: process {report.pid} on {report.host} hangs, or is gone"
    if status_file.process_lives(report.pid):
        return f"silent since {when}: process {report.pid} hangs, or is another program by now"
    return f"died: process {report.pid} is gone; it last reported at {when}"
