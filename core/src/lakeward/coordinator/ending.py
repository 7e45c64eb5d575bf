"""How a service ends: its lease's last calls, its last subtasks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from lakeward.coordinator.calls import call
from lakeward.errors import LakewardError
from lakeward.model.tiering import Beat, Claim

if TYPE_CHECKING:
    from lakeward.coordinator.desk import RoundDesk
    from lakeward.coordinator.leasekeeper import LeaseKeeper
    from lakeward.coordinator.statekeeper import StateKeeper
    from lakeward.hooks.backend import LeaseBackend
    from lakeward.model.tiering import Offer
    from lakeward.ports import Clock, Source

_TURN_S = 0.1
_LEAVE_S = 5.0
_log = structlog.get_logger("lakeward.ending")


async def settle_lease(keeper: LeaseKeeper, stopped: asyncio.Event, timeout_s: float) -> None:
    """Wait until the lease's last calls are settled; what is not by then, the next start goes on with.

    Args:
        keeper: the lease; it was told to stop.
        stopped: set once all calls are settled.
        timeout_s: seconds to wait at the most.
    """
    try:
        async with asyncio.timeout(timeout_s):
            while not stopped.is_set():
                keeper.tick()
                await asyncio.sleep(_TURN_S)
    except TimeoutError:
        _log.warning("the lease's last calls are not settled; the next start goes on with them")


async def let_jobs_leave(desk: RoundDesk, clock: Clock) -> None:
    """Give the subtasks of the last rounds a moment to say goodbye, so that Spark counts them as done.

    Args:
        desk: the rounds.
        clock: the service's clock.
    """
    deadline = clock.now() + _LEAVE_S
    while desk.busy and clock.now() < deadline:  # noqa: ASYNC110 - jobs end on threads of their own
        await asyncio.sleep(_TURN_S)


async def let_upkeep_end(desk: RoundDesk, clock: Clock, timeout_s: float) -> None:
    """Let the upkeep after the last commits end; what is not done by then, the next start or commit does.

    Args:
        desk: the rounds.
        clock: the service's clock.
        timeout_s: seconds to wait at the most.
    """
    deadline = clock.now() + timeout_s
    while desk.in_upkeep and clock.now() < deadline:  # noqa: ASYNC110 - as above
        await asyncio.sleep(_TURN_S)


async def hand_back(source: Source, offer: Offer) -> None:
    """Give a table back that was handed out to a start which a later one has taken over from.

    Args:
        source: else it would wait for its tiering timeout.
        offer: what nobody but this start knows of.
    """
    claim = Claim(offer.table_id, offer.epoch, offer.coordinator_epoch)
    try:
        await call(lambda: source.heartbeat(Beat(failed=(claim,))), what=f"give {offer.path} back", timeout_s=_LEAVE_S)
    except LakewardError as error:
        _log.warning("a table was not given back; the source takes it back in time", reason=str(error))


async def drop_own_lease(keeper: LeaseKeeper, backend: LeaseBackend, state: StateKeeper, timeout_s: float) -> None:
    """Drop the id that this incarnation alone has used, unless its successor knows of it.

    A successor that does takes the snapshots over and drops the id then: before, nothing else protects them. One that
    does not (the id was begun after it had read our state, or its backend keeps nothing) will never drop it. It may
    go on from a checkpoint of ours all the same, and nobody can tell when it holds what that needs: then the id
    runs out by itself.

    Args:
        keeper: the lease.
        backend: the lease backend.
        state: the service's state, which is the successor's now.
        timeout_s: seconds to wait at the most.
    """
    lease = keeper.lease()
    try:
        later = await call(state.load, what="read our successor's state", timeout_s=timeout_s)
        if later is not None and lease.lease_id in later.lease_ids:
            _log.info("our successor takes our lease over", lease=lease.lease_id)
            return
        if needed := keeper.books.for_checkpoints:
            _log.info("our lease runs out by itself: a checkpoint needs it", lease=lease.lease_id, buckets=len(needed))
            return
        await call(lambda: backend.drop(lease), what="drop our lease", timeout_s=timeout_s)
    except LakewardError as error:
        _log.warning("our own lease was not dropped; it runs out by itself", lease=lease.lease_id, reason=str(error))
