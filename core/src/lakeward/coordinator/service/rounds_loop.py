"""The service's event loop: steps the rounds machine, runs tasks, and can be woken or superseded."""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING

import structlog

from lakeward.coordinator.workers.step_log import step_log
from lakeward.machines.driver import MachineDriver, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from lakeward.coordinator.commits.fence import CommitFence
    from lakeward.machines.rounds import Rounds, RoundsCommand, RoundsEvent

_log = structlog.get_logger("lakeward.service")


class ServiceLoop:
    """See `RoundsLoop`. Used on the event loop only, but for `call_soon_threadsafe`."""

    def __init__(self, rounds: Rounds, fence: CommitFence) -> None:
        """Start with nothing to do.

        Args:
            rounds: the rounds machine; only this loop steps it.
            fence: is told after each step when each table was last renewed.
        """
        self.superseded_by = ""
        """The later start of this service that took over, empty while there is none."""
        self._rounds = rounds
        self._fence = fence
        self._log_step = step_log("lakeward.service", "rounds")
        self._driver = MachineDriver(rounds, self._execute, on_step=self._on_step)
        self._executes: Callable[[RoundsCommand], None] = _nobody
        self._on_failure: Callable[[BaseException], None] = _nobody
        self._on_superseded: Callable[[], None] = _nobody
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def connect(
        self,
        execute: Callable[[RoundsCommand], None],
        *,
        on_failure: Callable[[BaseException], None],
        on_superseded: Callable[[], None],
    ) -> None:
        """Set what executes the machine's commands, and what is called when the service must end.

        Args:
            execute: executes one command.
            on_failure: called with a task's unexpected error.
            on_superseded: called once when a later start took over.
        """
        self._executes = execute
        self._on_failure = on_failure
        self._on_superseded = on_superseded

    def begin(self) -> None:
        """Use the running event loop from now on."""
        self._loop = asyncio.get_running_loop()

    def post(self, event: RoundsEvent) -> None:
        """Post an event to the rounds machine; its commands run before this returns, or in the outer call of `post`."""
        try:
            self._driver.post(event)
        finally:
            self._wake.set()

    def spawn(self, work: Callable[[], Coroutine[None, None, None]]) -> asyncio.Task[None]:
        """See `Background`."""
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
            _log.error("internal error", exc_info=error)
            self._on_failure(error)

    def call_soon_threadsafe(self, work: Callable[[], None]) -> None:
        """See `Background`."""
        try:
            self.running.call_soon_threadsafe(work)
        except RuntimeError:
            # The loop is closed: the service has ended, so nothing waits for this.
            return

    def wake(self) -> None:
        """See `Background`."""
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
        """See `RoundsLoop`; only tables that the later start cannot know of are given back."""
        if not self.superseded_by:
            _log.error("a later start of this service took over", by=by)
            self.superseded_by = by
            self._driver.close()
            self._on_superseded()  # what jobs write from now on would neither be committed nor deleted
            self._wake.set()

    @property
    def running(self) -> asyncio.AbstractEventLoop:
        """The event loop that the service runs on."""
        return self._loop if self._loop is not None else asyncio.get_running_loop()

    def _execute(self, command: RoundsCommand, _: RoundsEvent) -> None:
        self._executes(command)

    def _on_step(self, step: Step[RoundsEvent, RoundsCommand]) -> None:
        self._log_step(step)
        renewed = {status.assignment: status.renewed_at for status in self._rounds.tables}
        self._fence.publish(renewed, stopping=self._rounds.stopping)


def _nobody(*_: object) -> None:
    """Ignore calls before the service is connected."""
