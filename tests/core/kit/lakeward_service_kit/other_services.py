"""Services of a state root that exist by their files alone, and an executor whose work is over at once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lakeward.clock import SystemClock
from lakeward.model.bindings import ServiceBinding
from lakeward.model.status import ServiceReport, TableReport
from lakeward.observe import status_file
from lakeward.storage.binding_files import BindingFiles
from lakeward.storage.small_files import SmallFiles

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.ports import Running, Worker


class Ended:
    """Work that has ended."""

    def join(self, timeout_s: float) -> bool:
        """See `lakeward.ports.Running`."""
        del timeout_s
        return True


class AtOnce:
    """Runs work on its caller's thread, or holds it for a test that calls it later."""

    def __init__(self, *, hold: bool = False) -> None:
        self.hold = hold
        self.held: list[Callable[[], object]] = []

    def start(self, work: Callable[[], object], *, name: str) -> Running:
        """See `lakeward.ports.Executor`."""
        del name
        if self.hold:
            self.held.append(work)
        else:
            work()
        return Ended()

    def worker(self, *, name: str) -> Worker:
        """See `lakeward.ports.Executor`; nobody here needs one."""
        raise NotImplementedError(name)


def bind(root: str, service: str, *patterns: str, shared: bool = True) -> None:
    """Let a service bind tables."""
    BindingFiles(SmallFiles(root)).write(ServiceBinding(service, dict.fromkeys(patterns, 1), shared))


def report(
    root: str,
    service: str,
    *tables: str,
    state: str = "serving",
    pid: int | None = None,
    written_ms: int | None = None,
) -> None:
    """Let a service report what it tiers: now, as if it ran in this process, unless something else is said."""
    reports = tuple(TableReport(name, 1, "waiting", "", 3, 0.0, 1, 3, None, committed_ms=5) for name in tables)
    now_ms = SystemClock().wall_ms() if written_ms is None else written_ms
    incarnation = f"{service}-1-0123456789abcdef"
    told = ServiceReport(service, incarnation, pid or os.getpid(), state, now_ms, None, reports, None, 0, 0)
    status_file.write(root, service, told)
