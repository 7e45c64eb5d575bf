"""The five hooks of a lease backend: the whole contract.

All are `firstresult`: one backend is configured, and wrappers (`hookimpl(wrapper=True)`) may wrap it. They
are called on the driver, on a thread of their own, one at a time per lease, each with a time limit; after a time-out
the outcome is unknown and a new generation of the lease is started. Retry and back-off are the core's: a backend
raises and is called again. A backend talks to the server through `lease.server` only.

A backend is a class, published under the entry-point group `lakeward.lease`; a wrapper likewise under
`lakeward.lease_wrapper`. It is made without arguments, or, where it has a class attribute `options` (a
subclass of `lakeward.model.options.Options`: its fields are further keys of `[lease]`), with an instance of that. If
it has methods `open` and `close`, they are called before the first hook and after the last. A class attribute
`default_duration_s` (seconds) is the lease's duration where the configuration names none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.hooks.markers import hookspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.model.leases import Failover, FailoverAnswer, Lease, Protection
    from lakeward.model.tables import TableBucket


class LeaseSpec:
    """What a lease backend implements."""

    @hookspec(firstresult=True)
    def acquire(self, lease: Lease, snapshots: Mapping[TableBucket, int]) -> Protection | None:
        """Protect snapshots, or renew.

        Called before any split of a round is assigned, and again every third of the duration, every five minutes
        at least, then with the whole list. The id and the held buckets are already persisted when it is called.

        Args:
            lease: the service's lease; `lease.held` contains `snapshots`.
            snapshots: bucket to the snapshot id that is to be protected; never empty.

        Returns:
            What is protected until when, and which snapshots are known to be gone. None breaks the contract.

        Raises:
            SourceError: the server refused; the round that asked fails, nothing was protected.
            OutcomeUnknownError: no answer; a new generation is started.

        See why-leases.md; Fluss KV snapshot leases (upstream #2512, #2898, #3286).
        """

    @hookspec(firstresult=True)
    def release(self, lease: Lease, buckets: frozenset[TableBucket]) -> None:
        """Release buckets.

        Called when a finished split is durable; when a table finished, failed or was dropped; when a failover
        returned splits that will not be read again; at stop. Never called for a bucket that is being acquired.

        Args:
            lease: the lease under whose id these buckets are held.
            buckets: never empty.

        Returns:
            None.

        Raises:
            SourceError: the buckets stay on record and are released again later.
        """

    @hookspec(firstresult=True)
    def drop(self, lease: Lease) -> None:
        """Remove the whole lease.

        Called when the service ends for good (`run --final`, `leases drop`), and for the old id once a new
        generation protects everything.

        Args:
            lease: the lease to remove; its `held` may be empty.

        Returns:
            None.

        Raises:
            SourceError: the core tries again later; in the end the lease expires at the server.
        """

    @hookspec(firstresult=True)
    def on_failover(self, lease: Lease, failover: Failover) -> FailoverAnswer | None:
        """Decide what happens to the lease after a failure.

        Called when a reader failed, when a job was launched again, and once at each start of the service
        (COORDINATOR) with the bytes that `serialize_state` had given.

        Args:
            lease: the lease as it is now (at COORDINATOR: the new, empty one).
            failover: what happened.

        Returns:
            KEEP the snapshots; or RELEASE those of the splits that came back: where there are any, their whole round
            ends as `stale`, its checkpoint is dropped, and its table is enumerated again with newer snapshots and
            without what steps of the round have committed (log splits have no snapshots and
            continue); or ACQUIRE everything again under a new generation. After COORDINATOR, `restored` is
            the lease to continue with: after KEEP and ACQUIRE its snapshots are taken over, verified, then its id is
            dropped; after RELEASE its id is dropped, and checkpoints that still need them are dropped. None
            means KEEP.

        Raises:
            CorruptFileError: the bytes are not this backend's.
        """

    @hookspec(firstresult=True)
    def serialize_state(self, lease: Lease) -> bytes | None:
        """Return the bytes to persist for the next start.

        Called after each change of the lease, on the coordinator's thread: it must return at once and call
        nothing.

        Args:
            lease: the lease as it is now, its pending releases included.

        Returns:
            Bytes for `on_failover`, or None: this backend is stateless.
        """
