"""The lease backend of the simulator: one persisted lease, taken over after a restart, as the one for Fluss."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lakeward.hooks.markers import hookimpl
from lakeward.model.leases import (
    Failover,
    FailoverAction,
    FailoverAnswer,
    FailoverKind,
    Lease,
    Protection,
    RestoredLease,
)
from lakeward.model.tables import TableBucket

if TYPE_CHECKING:
    from collections.abc import Mapping


class SimBackend:
    """See `LeaseSpec`."""

    default_duration_s = 60.0

    @hookimpl
    def acquire(self, lease: Lease, snapshots: Mapping[TableBucket, int]) -> Protection:
        """See `LeaseSpec`."""
        return lease.server.acquire(lease.lease_id, lease.duration_s, snapshots)

    @hookimpl
    def release(self, lease: Lease, buckets: frozenset[TableBucket]) -> None:
        """See `LeaseSpec`."""
        lease.server.release(lease.lease_id, buckets)

    @hookimpl
    def drop(self, lease: Lease) -> None:
        """See `LeaseSpec`."""
        lease.server.drop(lease.lease_id)

    @hookimpl
    def serialize_state(self, lease: Lease) -> bytes:
        """See `LeaseSpec`."""
        buckets = sorted(lease.held, key=TableBucket.sort_key)
        held = [[one.table_id, one.partition_id, one.bucket, lease.held[one]] for one in buckets]
        return json.dumps([lease.lease_id, lease.generation, held, list(lease.old_ids)]).encode()

    @hookimpl
    def on_failover(self, lease: Lease, failover: Failover) -> FailoverAnswer:
        """See `LeaseSpec`."""
        del lease
        if failover.kind is not FailoverKind.COORDINATOR or failover.state is None:
            return FailoverAnswer(FailoverAction.KEEP)
        lease_id, generation, held, old = json.loads(failover.state)
        kept = {TableBucket(*bucket): snapshot for *bucket, snapshot in held}
        restored = RestoredLease(lease_id, generation, kept, tuple((one, number) for one, number in old))
        return FailoverAnswer(FailoverAction.ACQUIRE, restored)
