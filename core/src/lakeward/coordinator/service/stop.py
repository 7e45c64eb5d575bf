"""How a service ends: last lease calls, last subtasks, last upkeep."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from lakeward.coordinator.workers.calls import call
from lakeward.errors import LakewardError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.coordinator.effects.executor import RoundExecutor
    from lakeward.coordinator.effects.lag import LagAfterCommit
    from lakeward.coordinator.effects.lease import LeaseProtection
    from lakeward.coordinator.effects.upkeep import Upkeep
    from lakeward.coordinator.effects.upkeep_jobs import UpkeepJobs
    from lakeward.coordinator.leases.driver import LeaseDriver
    from lakeward.coordinator.service.components import ServiceComponents, ServiceOptions
    from lakeward.coordinator.state.persistence import StatePersistence
    from lakeward.coordinator.state.state_writer import ServiceStateWriter
    from lakeward.hooks.backend import LeaseBackend
    from lakeward.ports import Clock

_TURN_S = 0.1
_LEAVE_S = 5.0
_log = structlog.get_logger("lakeward.ending")


@dataclass(frozen=True, eq=False)
class AfterCommits:
    """What goes on after commits, and delays no round. Used on the event loop only."""

    upkeep: Upkeep
    jobs: UpkeepJobs
    lag: LagAfterCommit

    @property
    def busy(self) -> bool:
        """True while any of it is under way."""
        return self.upkeep.busy or self.jobs.busy or self.lag.busy

    async def wait(self, clock: Clock, timeout_s: float) -> None:
        """Wait for the upkeep and the figures of lag after the last commits, `timeout_s` seconds at the most.

        The next start or commit does what is not done by then.
        """
        deadline = clock.now() + timeout_s
        while self.busy and clock.now() < deadline:  # noqa: ASYNC110 - it ends on threads of its own
            await asyncio.sleep(_TURN_S)

    async def do_jobs(self, stop_requested: Callable[[], bool]) -> None:
        """Do what upkeep is due, until the service is asked to stop."""
        while not stop_requested():
            self.jobs.tick()
            if not self.jobs.has_work:
                return
            await asyncio.sleep(_TURN_S)


@dataclass(frozen=True, eq=False, kw_only=True)
class Ending:
    """Ends a service whose rounds have ended. Used on the event loop only."""

    components: ServiceComponents
    options: ServiceOptions
    executor: RoundExecutor
    after_commits: AfterCommits
    leases: LeaseDriver
    protection: LeaseProtection
    persistence: StatePersistence

    async def in_order(self, timeout_s: float, stop_requested: Callable[[], bool]) -> None:
        """End: the lease id is kept for the next start, unless the service is to leave nothing.

        A service that was not asked to stop (`run --once`) does first what upkeep is due.
        """
        await self.after_commits.wait(self.components.clock, timeout_s)
        await self.after_commits.do_jobs(stop_requested)
        self.after_commits.jobs.stop()
        await self.after_commits.wait(self.components.clock, timeout_s)
        self.protection.stop(final=self.options.final)
        await wait_for_lease(self.leases, self.protection.stopped, self.options.settings.lease.call_timeout_s)
        await self.persistence.try_write()

    async def superseded(self, heartbeat: asyncio.Task[None] | None) -> None:
        """End after a later start has taken over: drop the lease id that it does not know, and nothing else."""
        self.after_commits.jobs.cancel_all()
        if heartbeat is not None:
            await asyncio.wait({heartbeat}, timeout=self.options.heartbeat_call_timeout_s)
        timeout_s = self.options.settings.lease.call_timeout_s
        await drop_own_lease(self.leases, self.components.backend, self.components.state, timeout_s)

    async def jobs(self) -> None:
        """Wait a moment for the subtasks of the last rounds to end, so that Spark counts them as done."""
        clock = self.components.clock
        deadline = clock.now() + _LEAVE_S
        while self.executor.busy and clock.now() < deadline:  # noqa: ASYNC110 - jobs end on threads of their own
            await asyncio.sleep(_TURN_S)

    def cancel_jobs(self) -> None:
        """Cancel what runs all the same."""
        self.executor.cancel_all()
        self.after_commits.jobs.cancel_all()


async def wait_for_lease(leases: LeaseDriver, stopped: asyncio.Event, timeout_s: float) -> None:
    """Wait until the lease's last calls have ended; the next start continues with those that have not.

    The lease was told to stop; `stopped` is set once all calls have ended. It waits `timeout_s` seconds at the most.
    """
    try:
        async with asyncio.timeout(timeout_s):
            while not stopped.is_set():
                leases.tick()
                await asyncio.sleep(_TURN_S)
    except TimeoutError:
        _log.warning("the lease's last calls have no answer; the next start goes on with them")


async def drop_own_lease(
    leases: LeaseDriver, backend: LeaseBackend, state: ServiceStateWriter, timeout_s: float
) -> None:
    """Drop the lease id that only this incarnation has used, unless the later start knows it.

    A later start that knows the id first protects the snapshots itself and then drops the id. One that does not know it
    (the id was first used after the later start had read the state, or the backend persists nothing) will never drop
    it, so this start does. Exception: the later start may resume from a checkpoint of this one, and it is unknown when
    it has leased what that checkpoint needs. Then the id is left to expire. `timeout_s`: seconds to wait at the most.
    """
    lease = leases.lease()
    try:
        later = await call(state.load, what="read our successor's state", timeout_s=timeout_s)
        if later is not None and lease.lease_id in later.lease_ids:
            _log.info("our successor takes our lease over", lease=lease.lease_id)
            return
        if needed := leases.held_leases.for_checkpoints:
            _log.info("our lease runs out by itself: a checkpoint needs it", lease=lease.lease_id, buckets=len(needed))
            return
        await call(lambda: backend.drop(lease), what="drop our lease", timeout_s=timeout_s)
    except LakewardError as error:
        _log.warning("our own lease was not dropped; it runs out by itself", lease=lease.lease_id, reason=str(error))
