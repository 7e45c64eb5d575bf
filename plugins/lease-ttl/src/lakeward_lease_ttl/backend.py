"""The backend takes short leases and renews them while they are needed; a lease that is not renewed expires."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from lakeward.hooks.markers import hookimpl
from lakeward.model.leases import FailoverAction, FailoverAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakeward.model.leases import Failover, Lease, Protection
    from lakeward.model.tables import TableBucket


class TtlLeases:
    """Acquires and renews; never releases, drops or remembers. The ids are fresh with each start of the service.

    An acquire extends a lease with all that it holds, also what is read already. So what is needed goes under another
    id after each duration, and the id before runs out with the rest. One call takes all of it, so that a server that
    refuses has taken nothing.
    """

    conformance_level = "chaos"
    default_duration_s = 600.0
    """Short, since the snapshots of a killed service stay on the source's disks for this long."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """Start the first period; `now` is seconds that never go back."""
        self._now = now
        self._began = now()

    @hookimpl
    def acquire(self, lease: Lease, snapshots: Mapping[TableBucket, int]) -> Protection:
        """See `LeaseSpec.acquire`."""
        period = int((self._now() - self._began) / lease.duration_s)
        return lease.server.acquire(f"{lease.lease_id}-{period}", lease.duration_s, snapshots)

    @hookimpl
    def release(self, lease: Lease, buckets: frozenset[TableBucket]) -> None:
        """See `LeaseSpec.release`: the server's expiry does it."""

    @hookimpl
    def drop(self, lease: Lease) -> None:
        """See `LeaseSpec.drop`: the server's expiry does it."""

    @hookimpl
    def on_failover(self, lease: Lease, failover: Failover) -> FailoverAnswer:
        """See `LeaseSpec.on_failover`: a new start has a new id; the old one runs out."""
        del lease, failover
        return FailoverAnswer(FailoverAction.KEEP)

    @hookimpl
    def serialize_state(self, lease: Lease) -> None:
        """See `LeaseSpec.serialize_state`: nothing is kept."""
