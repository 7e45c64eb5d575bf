"""The status file: the report of a running service, which commands read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from lakeward.errors import CorruptFileError, StorageError
from lakeward.model.status import ServiceReport
from lakeward.observe.files import replace_file, service_folder

if TYPE_CHECKING:
    from pathlib import Path

STATUS_FILE = "status.json"
SILENT_AFTER_MS = 30_000
"""A service writes its report about every second; after this long its process id may be another process's."""


def write(root: str, service: str, report: ServiceReport) -> None:
    """Replace the status file.

    Args:
        root: the state root, on this machine.
        service: the service's name.
        report: the service as it is now.

    Raises:
        StorageError: the disk refused, or the root is not on this machine.
    """
    replace_file(status_path(root, service), msgspec.json.format(msgspec.json.encode(report), indent=1))


def read(root: str, service: str) -> ServiceReport | None:
    """Read the status file.

    Args:
        root: the state root, on this machine.
        service: the service's name.

    Returns:
        The newest report, None if the service has never written one.

    Raises:
        CorruptFileError: the file is not a report.
        StorageError: it cannot be read, or the root is not on this machine.
    """
    path = status_path(root, service)
    try:
        return msgspec.json.decode(path.read_bytes(), type=ServiceReport)
    except FileNotFoundError:
        return None
    except OSError as error:
        message = f"{path}: cannot be read ({error.strerror or error})"
        raise StorageError(message) from error
    except msgspec.MsgspecError as error:
        raise CorruptFileError(str(path), "a service's report", str(error)) from error


def status_path(root: str, service: str) -> Path:
    """Return the status file of a service."""
    return service_folder(root, service) / STATUS_FILE


def is_running(report: ServiceReport, now_ms: int) -> bool:
    """Return whether the service that wrote a report still runs.

    Args:
        report: what it wrote last.
        now_ms: milliseconds since 1970.

    Returns:
        False if it reported that it stopped, its process is gone, or its report is too old.
    """
    return report.state != "stopped" and now_ms - report.written_ms < SILENT_AFTER_MS and process_lives(report.pid)


def process_lives(pid: int) -> bool:
    """Say whether a process of this number exists on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
