"""How a service ends: its lease's last calls, its last subtasks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from lakeward.coordinator.workers.calls import call
from lakeward.errors import LakewardError
from lakeward.model.tiering import HeartbeatRequest, TableEpoch

if TYPE_CHECKING:
    from lakeward.coordinator.commits.upkeep import Upkeep
    from lakeward.coordinator.leases.driver import LeaseDriver
    from lakeward.coordinator.rounds.executor import RoundExecutor
    from lakeward.coordinator.service.state_writer import ServiceStateWriter
    from lakeward.hooks.backend import LeaseBackend
    from lakeward.model.tiering import TableAssignment
    from lakeward.ports import Clock, Source

_TURN_S = 0.1
_LEAVE_S = 5.0
_log = structlog.get_logger("lakeward.ending")


async def settle_lease(leases: LeaseDriver, stopped: asyncio.Event, timeout_s: float) -> None:
    """Wait until the lease's last calls are settled; what is not by then, the next start goes on with.

    Args:
        leases: the lease; it was told to stop.
        stopped: set once all calls are settled.
        timeout_s: seconds to wait at the most.
    """
    try:
        async with asyncio.timeout(timeout_s):
            while not stopped.is_set():
                leases.tick()
                await asyncio.sleep(_TURN_S)
    except TimeoutError:
        _log.warning("the lease's last calls are not settled; the next start goes on with them")


async def wait_for_jobs(executor: RoundExecutor, clock: Clock) -> None:
    """Give the subtasks of the last rounds a moment to say goodbye, so that Spark counts them as done.

    Args:
        executor: the rounds.
        clock: the service's clock.
    """
    deadline = clock.now() + _LEAVE_S
    while executor.busy and clock.now() < deadline:  # noqa: ASYNC110 - jobs end on threads of their own
        await asyncio.sleep(_TURN_S)


async def wait_for_upkeep(upkeep: Upkeep, clock: Clock, timeout_s: float) -> None:
    """Let the upkeep after the last commits end; what is not done by then, the next start or commit does.

    Args:
        upkeep: what follows commits.
        clock: the service's clock.
        timeout_s: seconds to wait at the most.
    """
    deadline = clock.now() + timeout_s
    while upkeep.busy and clock.now() < deadline:  # noqa: ASYNC110 - as above
        await asyncio.sleep(_TURN_S)


async def give_back(source: Source, assignment: TableAssignment) -> None:
    """Give a table back that was handed out to a start which a later one has taken over from.

    Args:
        source: else it would wait for its tiering timeout.
        assignment: what nobody but this start knows of.
    """
    epoch = TableEpoch(assignment.table_id, assignment.epoch, assignment.coordinator_epoch)
    try:
        await call(
            lambda: source.heartbeat(HeartbeatRequest(failed=(epoch,))),
            what=f"give {assignment.path} back",
            timeout_s=_LEAVE_S,
        )
    except LakewardError as error:
        _log.warning("a table was not given back; the source takes it back in time", reason=str(error))


async def drop_own_lease(
    leases: LeaseDriver, backend: LeaseBackend, state: ServiceStateWriter, timeout_s: float
) -> None:
    """Drop the id that this incarnation alone has used, unless its successor knows of it.

    A successor that does takes the snapshots over and drops the id then: before, nothing else protects them. One that
    does not (the id was begun after it had read our state, or its backend keeps nothing) will never drop it. It may
    go on from a checkpoint of ours all the same, and nobody can tell when it holds what that needs: then the id
    runs out by itself.

    Args:
        leases: the lease.
        backend: the lease backend.
        state: the service's state, which is the successor's now.
        timeout_s: seconds to wait at the most.
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
