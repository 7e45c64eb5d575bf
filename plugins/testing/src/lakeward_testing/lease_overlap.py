"""Calls of two leases at once: whether the one waits for the other."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from lakeward.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable

OVERLAP_S = 60.0
"""Seconds after which a call that waits for the other lease's call gives up: one that may come is never that late."""


class Meeting:
    """Two leases meet inside a call: the first one to come waits for the other, whoever comes later walks through."""

    def __init__(self, limit_s: float) -> None:
        """Start with nobody inside; whoever waits gives up after `limit_s` seconds."""
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._came: set[str] = set()
        self._met = threading.Event()

    def enter(self, lease_id: str) -> None:
        """Come in with a call of a lease, and wait for a call of another one.

        Raises:
            SourceError: no call of another lease came in time.
        """
        with self._lock:
            self._came.add(lease_id)
            if len(self._came) > 1:
                self._met.set()
        if not self._met.wait(self._limit_s):
            message = f"the other lease's call did not come within {self._limit_s} s"
            raise SourceError(message)


def troubles_at_once(*works: Callable[[], object]) -> list[BaseException]:
    """Do each piece of work on a thread of its own, all at the same time; return what they raised."""
    troubles: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - it is the thread's whole result
            troubles.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return troubles
