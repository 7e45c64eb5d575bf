"""The backend protects nothing; it warns once in the log and says `protects=False` in every answer."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lakeward.hooks.markers import hookimpl
from lakeward.model.leases import FailoverAction, FailoverAnswer, Protection

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.model.leases import Failover, Lease
    from lakeward.model.tables import TableBucket

_log = logging.getLogger("lakeward.lease.noop")


class NoLeases:
    """Calls no server."""

    conformance_level = "chaos"
    default_duration_s = 3600.0
    """Has no effect: nothing is renewed."""

    def __init__(self) -> None:
        """Start without having warned."""
        self._warned = False

    @hookimpl
    def acquire(self, lease: Lease, snapshots: Mapping[TableBucket, int]) -> Protection:
        """See `LeaseSpec.acquire`."""
        del lease, snapshots
        if not self._warned:
            self._warned = True
            _log.warning("KV snapshots are NOT protected while they are read: the lease backend is 'noop'")
        return Protection(None, protects=False)

    @hookimpl
    def release(self, lease: Lease, buckets: frozenset[TableBucket]) -> None:
        """See `LeaseSpec.release`: nothing is held."""

    @hookimpl
    def drop(self, lease: Lease) -> None:
        """See `LeaseSpec.drop`: nothing is held."""

    @hookimpl
    def on_failover(self, lease: Lease, failover: Failover) -> FailoverAnswer:
        """See `LeaseSpec.on_failover`."""
        del lease, failover
        return FailoverAnswer(FailoverAction.KEEP)

    @hookimpl
    def serialize_state(self, lease: Lease) -> None:
        """See `LeaseSpec.serialize_state`: nothing is kept."""
