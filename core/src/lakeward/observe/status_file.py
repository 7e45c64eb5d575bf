"""The status file: the report of a running service, which commands read."""

from __future__ import annotations

import os
import socket

import msgspec

from lakeward.errors import CorruptFileError
from lakeward.model.status import ServiceReport
from lakeward.observe.files import file_at, read_small, replace_small

STATUS_FILE = "status.json"
SILENT_AFTER_MS = 30_000
"""A service writes its report about every second; after this long its process id may be another process's."""
_REPORTS = msgspec.json.Decoder(ServiceReport)
"""Made while this is imported: threads that learn a type at the same time crash the process."""


def write(root: str, service: str, report: ServiceReport) -> None:
    """Replace the status file.

    Raises:
        StorageError: the disk or the store refused.
    """
    replace_small(root, service, STATUS_FILE, msgspec.json.format(msgspec.json.encode(report), indent=1))


def read(root: str, service: str) -> ServiceReport | None:
    """Read the status file: the newest report, None if the service has never written one.

    Raises:
        CorruptFileError: the file is not a report.
        StorageError: it cannot be read.
    """
    data = read_small(root, service, STATUS_FILE)
    if data is None:
        return None
    try:
        return _REPORTS.decode(data)
    except msgspec.MsgspecError as error:
        raise CorruptFileError(file_at(root, service, STATUS_FILE), "a service's report", str(error)) from error


def is_running(report: ServiceReport, now_ms: int) -> bool:
    """Return whether the service that wrote a report still runs.

    It does not if it reported that it stopped, its process is gone (as far as this machine can know), or its report is
    too old. `now_ms` is in milliseconds since 1970.
    """
    fresh = now_ms - report.written_ms < SILENT_AFTER_MS
    return report.state != "stopped" and fresh and (is_elsewhere(report) or process_lives(report.pid))


def is_elsewhere(report: ServiceReport) -> bool:
    """Return whether the service that wrote a report is on another machine: its process id says nothing here."""
    return report.host not in {"", socket.gethostname()}


def process_lives(pid: int) -> bool:
    """Say whether a process of this number exists on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
