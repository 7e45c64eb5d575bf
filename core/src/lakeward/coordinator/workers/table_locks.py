"""Locks that give each lake table to one worker at a time, across rounds.

When a call reaches its time limit, its thread keeps running and may still commit or delete. So a table's lock becomes
free only when the last thread that its holder started has ended, not when the holder stops waiting. Until then no round
opens on the table, none of its files is deleted, and no commit to it is sent.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from lakeward.coordinator.workers.calls import call
from lakeward.errors import OutcomeUnknownError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from lakeward.model.tables import TablePath

T = TypeVar("T")


class TableLocks:
    """Locks by table name; a lock exists as long as it is held or waited for. Used on one event loop only.

    By name, not by id: a table that was dropped and re-created shares the lake table's name with the old one.
    """

    def __init__(self) -> None:
        self._locks: dict[TablePath, _TableLock] = {}

    @asynccontextmanager
    async def hold(self, path: TablePath, purpose: str, *, wait_s: float | None = None) -> AsyncIterator[TableHold]:
        """Wait until a table is free, and hold it; waiters get it in the order in which they came.

        `purpose` describes the work, for the errors of those who wait meanwhile. `wait_s`: seconds to wait; None = no
        limit.

        Raises:
            OutcomeUnknownError: another holder still works on the table; nothing was started.
        """
        lock = self._locks.setdefault(path, _TableLock())
        lock.users += 1
        try:
            await _acquire(lock, path, wait_s)
        except BaseException:
            self._leave(path, lock)
            raise
        lock.purpose = purpose
        hold = TableHold(lambda: self._release(path, lock))
        try:
            yield hold
        finally:
            hold.leave()

    def _release(self, path: TablePath, lock: _TableLock) -> None:
        lock.free.release()
        self._leave(path, lock)

    def _leave(self, path: TablePath, lock: _TableLock) -> None:
        lock.users -= 1
        if not lock.users:
            del self._locks[path]


class TableHold:
    """A held table. It becomes free when the holder has left and all of its threads have ended."""

    def __init__(self, release: Callable[[], None]) -> None:
        self._release = release
        self._running = 0
        self._left = False

    async def call(self, work: Callable[[], T], *, what: str, timeout_s: float | None = None) -> T:
        """Make a blocking call. See `lakeward.coordinator.workers.calls.call`."""
        self._running += 1
        return await call(work, what=what, timeout_s=timeout_s, on_end=self._ended)

    def leave(self) -> None:
        """Free the table as soon as none of this holder's threads runs."""
        self._left = True
        if not self._running:
            self._release()

    def _ended(self) -> None:
        self._running -= 1
        if self._left and not self._running:
            self._release()


class _TableLock:
    def __init__(self) -> None:
        self.free = asyncio.Lock()
        self.users = 0
        self.purpose = ""


async def _acquire(lock: _TableLock, path: TablePath, wait_s: float | None) -> None:
    try:
        async with asyncio.timeout(wait_s):
            await lock.free.acquire()
    except TimeoutError as error:
        message = (
            f"table {path}: {lock.purpose} has not ended and may still take effect; nothing of it is deleted, "
            f"and nothing else is begun on the table before it has ended"
        )
        raise OutcomeUnknownError(message) from error
