"""The port of a source's own lease API on KV snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from lakeward.model.protection import Protection
    from lakeward.model.tables import TableBucket


class SnapshotLeases(Protocol):
    """A source's own lease API on KV snapshots, as Fluss has one."""

    def acquire(self, lease_id: str, duration_s: float, snapshots: Mapping[TableBucket, int]) -> Protection:
        """Create, renew or extend a lease: its expiry becomes now + `duration_s`.

        Each bucket in `snapshots` (bucket to snapshot id) holds the given snapshot afterwards, other buckets what they
        held. A `lease_id` has no `/` and under 200 characters; `duration_s` is in seconds, > 0. The answer says until
        when the lease lives, and which snapshots the source KNOWS to be gone (it may know of none and grant a lease on
        a snapshot that does not exist: verify).

        Raises:
            LeaseApiMissingError: the server is too old.
            SourceError: refused; no effect.
            OutcomeUnknownError: no answer.
        """
        ...

    def release(self, lease_id: str, buckets: Collection[TableBucket]) -> None:
        """Give up buckets of a lease; an unknown lease or bucket is no error. Raises as `acquire`."""
        ...

    def drop(self, lease_id: str) -> None:
        """Remove a whole lease; an unknown one is no error. Raises as `acquire`."""
        ...
