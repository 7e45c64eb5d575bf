"""The service's event loop: one inbox, the tasks that run beside it, and a sleep that can be ended."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

_log = structlog.get_logger("lakeward.service")


@dataclass(frozen=True, slots=True)
class Superseded:
    """A later start of this service took over."""


class EventLoop:
    """Keeps what has happened until the service takes it. Used on the event loop only, but for `put_from_thread`."""

    def __init__(self) -> None:
        self.superseded_by = ""
        """The later start of this service that took over, empty while there is none."""
        self.failure: BaseException | None = None
        """The first unexpected error of a task."""
        self._inbox: deque[Any] = deque()
        self._filled = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self) -> None:
        """Use the running event loop from now on."""
        self._loop = asyncio.get_running_loop()

    # --- the inbox ------------------------------------------------------------------------------------------

    def put(self, item: object) -> None:
        """Put something into the inbox."""
        self._inbox.append(item)
        self._filled.set()

    def put_from_thread(self, item: object) -> None:
        """Put something into the inbox, from any thread; it is lost if the loop is closed."""
        self.call_from_thread(lambda: self.put(item))

    def call_from_thread(self, callback: Callable[[], None]) -> None:
        """Have something called on the loop, from any thread; never if the loop is closed."""
        try:
            self.running.call_soon_threadsafe(callback)
        except RuntimeError:
            # The loop is closed: the service has ended, so nothing waits for this.
            return

    def take(self) -> Iterator[Any]:
        """Yield everything in the inbox, also what comes meanwhile."""
        while self._inbox:
            yield self._inbox.popleft()

    async def filled(self) -> None:
        """Wait until something is in the inbox."""
        while not self._inbox:
            self._filled.clear()
            await self._filled.wait()

    # --- tasks and sleep --------------------------------------------------------------------------------------

    def spawn(self, work: Callable[[], Coroutine[None, None, None]]) -> asyncio.Task[None]:
        """Run a coroutine as a task; an unexpected error of it ends the service.

        Its log lines have none of the caller's fields: a round that ends may start one of another table.
        """
        context = contextvars.copy_context()
        context.run(structlog.contextvars.clear_contextvars)
        task = self.running.create_task(work(), context=context)
        self._tasks.add(task)
        task.add_done_callback(self.task_ended)
        return task

    def task_ended(self, task: asyncio.Task[None]) -> None:
        """Check how a task ended; an unexpected error ends the service."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Note an unexpected error: the service ends."""
        _log.error("internal error", exc_info=error)
        self.failure = self.failure or error
        self._wake.set()

    def wake(self) -> None:
        """End the sleep of the service: something may be due."""
        self._wake.set()

    async def sleep(self, seconds: float) -> None:
        """Sleep until the time is over or `wake` is called."""
        self._wake.clear()
        alarm = self.running.call_later(seconds, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            alarm.cancel()

    def supersede(self, by: str) -> None:
        """Stop the service: a later start, named by its incarnation, took over."""
        if not self.superseded_by:
            _log.error("a later start of this service took over", by=by)
            self.superseded_by = by
            self.put(Superseded())
            self._wake.set()

    @property
    def running(self) -> asyncio.AbstractEventLoop:
        """The event loop that the service runs on."""
        return self._loop if self._loop is not None else asyncio.get_running_loop()
