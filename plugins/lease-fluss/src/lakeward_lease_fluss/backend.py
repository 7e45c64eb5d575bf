"""The backend uses the source's lease API: one persisted lease, which is taken over after a restart."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated

from lakeward.errors import LeaseApiMissingError
from lakeward.hooks.markers import hookimpl
from lakeward.model.leases import FailoverAction, FailoverAnswer, FailoverKind, Protection
from lakeward.model.options import Meta, Options
from lakeward_lease_fluss.state import pack, unpack

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.model.leases import Failover, Lease
    from lakeward.model.tables import TableBucket

_log = logging.getLogger("lakeward.lease.fluss")


class FlussLeaseOptions(Options, frozen=True, kw_only=True):
    """Keys of `[lease]` where `backend = "fluss"`."""

    required: Annotated[
        bool, Meta(description="Fail rounds with snapshots where the source has no lease API, instead of a warning.")
    ] = False


class FlussLeases:
    """Holds snapshots through the source's lease API. Where the server has none, warns once and protects nothing."""

    conformance_level = "chaos"
    default_duration_s = 6 * 3600.0
    """Long, so that a killed service can take its snapshots over for six hours, less five minutes between renewals."""

    options = FlussLeaseOptions

    def __init__(self, options: FlussLeaseOptions | None = None) -> None:
        """Start without having warned; options are keys of `[lease]`, None: their defaults."""
        self._options = options or FlussLeaseOptions()
        self._warned = False

    @hookimpl
    def acquire(self, lease: Lease, snapshots: Mapping[TableBucket, int]) -> Protection:
        """See `LeaseSpec.acquire`."""
        try:
            return lease.server.acquire(lease.lease_id, lease.duration_s, snapshots)
        except LeaseApiMissingError as error:
            if self._options.required:
                raise
            self._warn(error)
            return Protection(None, protects=False)

    @hookimpl
    def release(self, lease: Lease, buckets: frozenset[TableBucket]) -> None:
        """See `LeaseSpec.release`."""
        try:
            lease.server.release(lease.lease_id, buckets)
        except LeaseApiMissingError as error:
            self._warn(error)  # such a server holds nothing that could be released

    @hookimpl
    def drop(self, lease: Lease) -> None:
        """See `LeaseSpec.drop`."""
        try:
            lease.server.drop(lease.lease_id)
        except LeaseApiMissingError as error:
            self._warn(error)

    @hookimpl
    def on_failover(self, lease: Lease, failover: Failover) -> FailoverAnswer:
        """See `LeaseSpec.on_failover`: after a restart everything is taken over under a new generation."""
        del lease
        if failover.kind is not FailoverKind.COORDINATOR or failover.state is None:
            return FailoverAnswer(FailoverAction.KEEP)
        return FailoverAnswer(FailoverAction.ACQUIRE, unpack(failover.state))

    @hookimpl
    def serialize_state(self, lease: Lease) -> bytes:
        """See `LeaseSpec.serialize_state`."""
        return pack(lease)

    def _warn(self, error: LeaseApiMissingError) -> None:
        if not self._warned:
            self._warned = True
            _log.warning("KV snapshots are NOT protected while they are read: %s", error)
