"""Restores the lease of the last start of this service."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from lakeward.machines.leases import Restored
from lakeward.model.leases import Failover, FailoverAction, FailoverKind
from lakeward.model.tables import KvSnapshot

if TYPE_CHECKING:
    from lakeward.coordinator.leases.driver import LeaseDriver
    from lakeward.model.checkpoints import LeaseCopy
    from lakeward.model.tables import TableBucket
    from lakeward.storage.service_state import ServiceState

_log = structlog.get_logger("lakeward.startup")


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
