"""The service: executes the commands of `machines/rounds` on one event loop that owns all state.

Blocking work runs in `workers.calls.call` and comes back as an event. A service that learns that a later start of it
has taken over (by a stamp on a lake table, or by the state file) stops at once: it reports nothing, releases no lease
and deletes no file that the later start may use.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from lakeward.errors import LakewardError, UsageError

if TYPE_CHECKING:
    from lakeward.coordinator.service.all_tables import AllTables
    from lakeward.coordinator.service.life import Life
    from lakeward.coordinator.service.reporter import Reporter
    from lakeward.coordinator.service.server import SubtaskServer
    from lakeward.coordinator.service.start import Start
    from lakeward.coordinator.service.stop import Ending
    from lakeward.coordinator.service.turn import Turn
    from lakeward.coordinator.workers.event_loop import EventLoop
    from lakeward.model.tables import TablePath

_log = structlog.get_logger("lakeward.service")


@dataclass(frozen=True, slots=True)
class ServiceEnd:
    """How the service ended. With `--once`, `failed` lists the tables that did not reach their target, and why."""

    failed: tuple[tuple[TablePath, str], ...] = ()
    superseded_by: str = ""
    started: bool = True
    """False if it was asked to stop before it served; the next start then finds everything as it was."""


class Service:
    """One run of the service."""

    def __init__(
        self,
        *,
        life: Life,
        loop: EventLoop,
        tables: AllTables,
        server: SubtaskServer,
        start: Start,
        turn: Turn,
        ending: Ending,
        reporter: Reporter,
    ) -> None:
        self._life = life
        self._loop = loop
        self._tables = tables
        self._server = server
        self._start = start
        self._turn = turn
        self._ending = ending
        self._reporter = reporter
        self._starting: asyncio.Timeout | None = None

    @property
    def state(self) -> str:
        """The service's state: starting, serving, stopping or stopped."""
        return self._life.state

    async def serve(self) -> ServiceEnd:
        """Run until stopped (or, with `once`, until every target is reached or given up); return how it ended.

        Raises:
            LakewardError: it could not start.
        """
        self._loop.begin()
        await self._server.start()
        leasing = asyncio.create_task(self._start.leasing())
        leasing.add_done_callback(self._loop.task_ended)
        taking = self._loop.spawn(self._tables.take_inbox)
        started = False
        try:
            started = await self._start_in_time()
            if started:
                await self._run()
            if not started:
                _log.warning("stopped before the start was over; the next start begins where this one did")
            elif self._loop.superseded_by:
                await self._ending.superseded(self._tables.heartbeat)
            else:
                await self._ending.in_order(self._life.stop_timeout_s, lambda: self._life.stop_requested)
            await self._ending.jobs()
        finally:
            leasing.cancel()
            taking.cancel()
            self._ending.cancel_jobs()
            await self._server.close()
            self._life.state = "stopped"
            self._reporter.report(force=True)
        self._raise_error()
        stopped = self._tables.stopped
        return ServiceEnd(stopped.failed if stopped else (), self._loop.superseded_by, started)

    def stop(self, timeout_s: float | None = None) -> None:
        """Ask the service to end: rounds finish early and commit what is complete; the lease id is kept.

        If the service is still starting, the start ends first, so that tables of the last start are handled in order.
        After the time limit the start is given up. `timeout_s`: seconds for the rounds to end; None:
        `service.stop_timeout_s`.
        """
        if not self._life.request_stop(timeout_s):
            return
        if self.state == "starting":
            self._life.state = "stopping"
            if self._starting is not None:
                self._starting.reschedule(self._loop.running.time() + self._life.stop_timeout_s)
        else:
            self._stop()

    async def _start_in_time(self) -> bool:
        """Start; return False if a stop was requested and the start did not end in time."""
        try:
            # The time limit of a stop that was requested earlier begins now.
            limit_s = self._life.stop_timeout_s if self._life.stop_requested else None
            async with asyncio.timeout(limit_s) as self._starting:
                await self._start.run(self._tables.post)
        except TimeoutError:
            if self._starting is None or not self._starting.expired():
                raise
            return False
        if self._life.stop_requested:
            self._stop()
        else:
            self._life.state = "serving"
        return True

    async def _run(self) -> None:
        loop, life = self._loop, self._life
        while self._tables.stopped is None and not loop.superseded_by:
            if life.is_over:
                _log.error("the service did not come to its end in order; the next start goes on with what is left")
                return
            await life.check_state()
            if not loop.superseded_by:
                if life.has_failed():
                    self.stop()
                self._turn.take()
            self._reporter.report()
            await loop.sleep(self._tables.sleep_s)

    def _stop(self) -> None:
        self._life.state = "stopping"
        self._ending.after_commits.jobs.stop()
        self._tables.request_stop(self._life.stop_timeout_s)
        self._reporter.report(force=True)  # a stop may end before the next report is due, and depends on none

    def _raise_error(self) -> None:
        error = self._life.error
        # A UsageError from inside the service is a bug in it, not a mistake of the user.
        if isinstance(error, LakewardError) and not isinstance(error, UsageError):
            raise error
        if error is not None:
            how = "stopped in order" if self._tables.stopped is not None else "gave up what it had in hand"
            message = f"internal error, the service {how}: {type(error).__name__}: {error}"
            raise LakewardError(message) from error
