"""A wrapper with points around each call, and a backend that can be told to raise, hang or answer nonsense."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeward.hooks.markers import hookimpl
from lakeward_faulty.points import reached

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from lakeward.model.leases import Lease, Protection
    from lakeward.model.tables import TableBucket


class FaultyLeaseWrapper:
    """The wrapper `faulty`."""

    @hookimpl(wrapper=True)
    def acquire(self) -> Generator[None, Any, Any]:
        reached("before-acquire")
        answer = yield
        reached("after-acquire")
        return answer

    @hookimpl(wrapper=True)
    def release(self) -> Generator[None, Any, Any]:
        reached("before-release")
        answer = yield
        reached("after-release")
        return answer

    @hookimpl(wrapper=True)
    def drop(self) -> Generator[None, Any, Any]:
        reached("before-drop")
        answer = yield
        reached("after-drop")
        return answer


class FaultyLeases:
    """The backend `faulty`: the source's own leases, unless told otherwise."""

    default_duration_s = 600.0

    @hookimpl
    def acquire(self, lease: Lease, snapshots: Mapping[TableBucket, int]) -> Protection | object:
        if reached("acquire") == "nonsense":
            return 42
        return lease.server.acquire(lease.lease_id, lease.duration_s, snapshots)

    @hookimpl
    def release(self, lease: Lease, buckets: frozenset[TableBucket]) -> None:
        lease.server.release(lease.lease_id, buckets)

    @hookimpl
    def drop(self, lease: Lease) -> None:
        lease.server.drop(lease.lease_id)
