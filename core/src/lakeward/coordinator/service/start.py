"""How a service starts: it continues where its last start ended, with its lease and its assigned tables."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from lakeward.coordinator.service.stop import give_back
from lakeward.coordinator.workers.calls import call
from lakeward.errors import LakewardError
from lakeward.machines.leases import Restored
from lakeward.machines.rounds import Resumed, Targets
from lakeward.model.leases import Failover, FailoverAction, FailoverKind
from lakeward.model.tables import KvSnapshot
from lakeward.model.tiering import HeartbeatRequest, TableAssignment, TableEpoch

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from lakeward.coordinator.checkpoints.restorer import Restorer
    from lakeward.coordinator.effects.lease import LeaseProtection
    from lakeward.coordinator.leases.driver import LeaseDriver
    from lakeward.coordinator.service.components import ServiceComponents, ServiceOptions
    from lakeward.coordinator.service.housekeeping import Housekeeping
    from lakeward.coordinator.state.persistence import StatePersistence
    from lakeward.coordinator.tables.targets import TargetOffsets
    from lakeward.machines.rounds import RoundsEvent
    from lakeward.model.checkpoints import LeaseCopy
    from lakeward.model.tables import TableBucket
    from lakeward.ports import Clock, Source
    from lakeward.storage.service_state import ServiceState

_log = structlog.get_logger("lakeward.startup")
_HEARTBEAT_S = 30.0


class Start:
    """Starts a service. Used on the event loop only."""

    def __init__(
        self,
        *,
        components: ServiceComponents,
        options: ServiceOptions,
        targets: TargetOffsets,
        leases: LeaseDriver,
        protection: LeaseProtection,
        restorer: Restorer,
        persistence: StatePersistence,
        housekeeping: Housekeeping,
    ) -> None:
        self._components = components
        self._options = options
        self._targets = targets
        self._leases = leases
        self._protection = protection
        self._restorer = restorer
        self._persistence = persistence
        self._housekeeping = housekeeping

    def leasing(self) -> Coroutine[Any, Any, None]:
        """Return what makes the calls of the lease, until it is cancelled."""
        return self._leases.run(self._protection.on_lease, self._persistence.write)

    async def run(self, post: Callable[[RoundsEvent], None]) -> None:
        """Start; `post` tells the machine of all tables what it begins with."""
        options, source, clock = self._options, self._components.source, self._components.clock
        state = await call(self._components.state.load, what="read the service's state")
        # Read the tables first: the first write of this start replaces the last start's state.
        resumed = await resume(source, clock, state, options.settings.source.heartbeat_timeout_s)
        assignments = tuple(one for one in resumed if options.included(one.path))
        for one in set(resumed) - set(assignments):  # excluded since the last start
            await give_back(source, one)
        if options.once:
            paths = await self._targets.aim(source, self._components.lake, options.included)
            # Each assigned table gets a round, even if that has nothing to do but to report the table as finished.
            paths |= {one.path for one in assignments}
            post(Targets(now=clock.now(), paths=paths))
        if assignments:
            post(Resumed(now=clock.now(), assignments=assignments))
        for table_id, because in state.invalidated.items() if state is not None else ():
            self._restorer.invalidate(table_id, because)  # before the first write, as above
        copy = None if state is not None else await lease_of_checkpoint(self._restorer)
        released = await restore_lease(self._leases, state, self._components.backend.name, clock.now(), copy)
        await self._persistence.write()
        self._protection.take_over({one.table_id for one in assignments})
        await self._housekeeping.sweep()
        self._restorer.invalidate_tables_that_need(released, "the lease backend released its snapshots at the start")
        self._housekeeping.release_stray()


async def restore_lease(
    leases: LeaseDriver, state: ServiceState | None, backend: str, now: float, copy: LeaseCopy | None = None
) -> frozenset[TableBucket]:
    """Keep the snapshots of the last start leased under a new generation, if its backend persisted state.

    If the backend answers RELEASE, none of them is kept, the old id is dropped, and their buckets are returned.
    `leases` is still empty. `state`: what the last start persisted, None where there was none; only then `copy` is
    used, the newest checkpoint's copy of the lease. `now`: seconds on the service's clock.
    """
    data = state.lease_state if state is not None else copy.state if copy is not None else None
    was = state.lease_backend if state is not None else copy.backend if copy is not None else None
    if data is not None and was != backend:
        _log.warning("the lease of the last start was another backend's and is left to run out", was=was, now=backend)
        data = None
    answer = await leases.failover(Failover(kind=FailoverKind.COORDINATOR, attempt=0, state=data))
    restored = answer.restored
    released: frozenset[TableBucket] = frozenset()
    if restored is not None and answer.action is FailoverAction.RELEASE:
        released = frozenset(restored.held)
        restored = replace(restored, held={})
    if restored is not None:
        snapshots = tuple(KvSnapshot(bucket, snapshot, 0) for bucket, snapshot in restored.held.items())
        leases.step(Restored(now=now, lease=restored, snapshots=snapshots))
    return released


async def lease_of_checkpoint(restorer: Restorer) -> LeaseCopy | None:
    """Return the newest checkpoint's copy of the lease, which is used if the state file is missing."""
    try:
        return await call(restorer.lease, what="look for the lease in a checkpoint")
    except LakewardError as error:
        _log.warning("no lease could be read from a checkpoint", reason=str(error))
        return None


async def resume(
    source: Source, clock: Clock, state: ServiceState | None, timeout_s: float
) -> tuple[TableAssignment, ...]:
    """Renew the tables of the last start by a heartbeat; return those that the source accepts, under their old epochs.

    `timeout_s`: the source's heartbeat timeout; a table renewed longer ago than that is left out.
    """
    if state is None or not state.tables:
        return ()
    oldest = clock.wall_ms() - int(timeout_s * 1000)
    fresh = [table for table in state.tables if table.renewed_ms >= oldest]
    epochs = tuple(TableEpoch(table.table_id, table.epoch, table.coordinator_epoch) for table in fresh)
    if not epochs:
        return ()
    try:
        answer = await call(
            lambda: source.heartbeat(HeartbeatRequest(renewed=epochs)),
            what="renew the last start's tables",
            timeout_s=_HEARTBEAT_S,
        )
    except LakewardError as error:
        _log.warning("the tables of the last start could not be renewed", reason=str(error))
        return ()
    return tuple(
        TableAssignment(table.path, table.table_id, table.epoch, table.coordinator_epoch, table.freshness_s)
        for table in fresh
        if table.table_id not in answer.refused
    )
