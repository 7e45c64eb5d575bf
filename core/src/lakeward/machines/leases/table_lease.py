"""The leases of one table: which snapshots are needed, each one's status, and what the server may hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from lakeward.machines.leases.events import (
    Acquired,
    CallFailed,
    CallOutcomeUnknown,
    CoordinatorChanged,
    LeasesEvent,
    LeaseStop,
    StartGeneration,
    Verified,
)
from lakeward.machines.machine_state import MachineState, next_state
from lakeward.model.tables import KvSnapshot, TableBucket

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

NOT_COVERED = float("-inf")
NEVER = float("inf")


class LeaseStatus(MachineState):
    """The status of a snapshot under the CURRENT lease id."""

    WANTED = "wanted"
    ACQUIRED = "acquired"
    VERIFIED = "verified"


class StatusGuard(MachineState):
    """What happened to a snapshot; it selects the next status."""

    GRANTED = "granted"
    """The backend has acquired it."""
    PRESENT = "present"
    """The source still had it after that."""
    NEW_ID = "new lease id"
    """The current lease id was retired."""


TRANSITIONS: Mapping[tuple[LeaseStatus, type[LeasesEvent]], Mapping[StatusGuard, LeaseStatus]] = MappingProxyType(
    {
        **{(status, Acquired): {StatusGuard.GRANTED: LeaseStatus.ACQUIRED} for status in LeaseStatus},
        (LeaseStatus.WANTED, Verified): {StatusGuard.PRESENT: LeaseStatus.WANTED},  # was released and requested again
        (LeaseStatus.ACQUIRED, Verified): {StatusGuard.PRESENT: LeaseStatus.VERIFIED},
        (LeaseStatus.VERIFIED, Verified): {StatusGuard.PRESENT: LeaseStatus.VERIFIED},
        **{
            (status, event): {StatusGuard.NEW_ID: LeaseStatus.WANTED}
            for status in LeaseStatus
            for event in (CoordinatorChanged, StartGeneration, CallFailed, CallOutcomeUnknown, LeaseStop)
        },
    }
)
"""(status, event) to the next status by guard. Complete: what has no row is illegal."""


class Need(MachineState):
    """What needs a snapshot; the snapshot is held as long as there is a need."""

    ROUND = "round"
    """A round that is open, or was open when the last start ended."""
    CHECKPOINT = "checkpoint"
    """The checkpoint that the table's next round would resume from."""


@dataclass(slots=True)
class BucketLease:
    """The lease of one bucket's snapshot. `covered_until`: a retired id protects it until then (holder's clock)."""

    snapshot: KvSnapshot
    needs: set[Need] = field(default_factory=set)
    status: LeaseStatus = LeaseStatus.WANTED
    covered_until: float = NOT_COVERED

    def copy(self) -> BucketLease:
        """Return a copy that can be changed without changing this."""
        return BucketLease(self.snapshot, set(self.needs), self.status, self.covered_until)

    def move(self, event: LeasesEvent, guard: StatusGuard) -> None:
        """Go to the next status."""
        machine = "leases"
        self.status = next_state(machine, TRANSITIONS, self.status, event, guard)


@dataclass(slots=True)
class TableLease:
    """One table's part of the lease.

    `granted` are buckets that a round was told are protected, that were restored, or that were verified for a
    checkpoint: from then on their protection must not lapse. `requested` are the buckets of a `Protect` that is not
    answered yet. `on_server` are buckets that the server may hold under the current id. `deferred` are snapshots that a
    checkpoint needs of buckets for which a round holds another snapshot.
    """

    table_id: int
    leases: dict[TableBucket, BucketLease] = field(default_factory=dict)
    deferred: dict[TableBucket, KvSnapshot] = field(default_factory=dict)
    granted: set[TableBucket] = field(default_factory=set)
    requested: frozenset[TableBucket] | None = None
    on_server: set[TableBucket] = field(default_factory=set)
    retry_at: float = NOT_COVERED
    failures: int = 0
    release_at: float = NOT_COVERED
    release_failures: int = 0

    def copy(self) -> TableLease:
        """Return a copy that can be changed without changing this."""
        return TableLease(
            table_id=self.table_id,
            leases={bucket: lease.copy() for bucket, lease in self.leases.items()},
            deferred=dict(self.deferred),
            granted=set(self.granted),
            requested=self.requested,
            on_server=set(self.on_server),
            retry_at=self.retry_at,
            failures=self.failures,
            release_at=self.release_at,
            release_failures=self.release_failures,
        )

    @property
    def releasing(self) -> frozenset[TableBucket]:
        """Buckets that the server may hold and that nothing needs."""
        return frozenset(self.on_server.difference(self.leases))

    @property
    def empty(self) -> bool:
        """True if there is nothing to remember of the table."""
        return not (self.leases or self.on_server or self.requested)

    def with_status(self, status: LeaseStatus) -> dict[TableBucket, BucketLease]:
        """Return the bucket leases with that status."""
        return {bucket: lease for bucket, lease in self.leases.items() if lease.status is status}

    def request(self, snapshots: Collection[KvSnapshot]) -> None:
        """Request snapshots for a round; a bucket with another snapshot than before must be acquired again."""
        for snapshot in snapshots:
            lease = self.leases.get(snapshot.bucket)
            if lease is None or lease.snapshot.snapshot_id != snapshot.snapshot_id:
                self.leases[snapshot.bucket] = BucketLease(snapshot, {Need.ROUND})
                self.granted.discard(snapshot.bucket)
            else:
                lease.snapshot = snapshot  # the log offset of a restored snapshot was not known
                lease.needs.add(Need.ROUND)
        self.requested = frozenset(snapshot.bucket for snapshot in snapshots)

    def retain(self, snapshots: Collection[KvSnapshot]) -> bool:
        """Hold exactly these for a checkpoint; another snapshot of a bucket stays until the round that holds it ends.

        Returns:
            True if that changes which snapshots are held.
        """
        before = {bucket: lease.snapshot.snapshot_id for bucket, lease in self.leases.items()}
        needed = {snapshot.bucket: snapshot for snapshot in snapshots}
        self.deferred.clear()
        for bucket, lease in list(self.leases.items()):
            wanted = needed.get(bucket)
            if wanted is None or wanted.snapshot_id != lease.snapshot.snapshot_id:
                self._end_need(bucket, lease, Need.CHECKPOINT)
        for bucket, snapshot in needed.items():
            lease = self.leases.setdefault(bucket, BucketLease(snapshot))
            if lease.snapshot.snapshot_id == snapshot.snapshot_id:
                lease.snapshot = snapshot
                lease.needs.add(Need.CHECKPOINT)
                self.cover_checkpoint(lease)
            else:
                self.deferred[bucket] = snapshot
        return before != {bucket: lease.snapshot.snapshot_id for bucket, lease in self.leases.items()}

    def cover_checkpoint(self, lease: BucketLease) -> None:
        """Grant the verified snapshots that a checkpoint needs: from now on their protection must not lapse."""
        if Need.CHECKPOINT in lease.needs and lease.status is LeaseStatus.VERIFIED:
            self.granted.add(lease.snapshot.bucket)

    def needed_by_checkpoint(self) -> frozenset[TableBucket]:
        """Return the buckets whose snapshot a checkpoint needs."""
        return frozenset(bucket for bucket, lease in self.leases.items() if Need.CHECKPOINT in lease.needs)

    def end_need(self, buckets: Collection[TableBucket], need: Need) -> None:
        """End one need of these; release those without another need."""
        for bucket in buckets:
            lease = self.leases.get(bucket)
            if lease is not None:
                self._end_need(bucket, lease, need)
        if need is Need.ROUND and self.requested is not None:
            self.requested = self.requested.difference(buckets) or None

    def _end_need(self, bucket: TableBucket, lease: BucketLease, need: Need) -> None:
        lease.needs.discard(need)
        if not lease.needs:
            self._free(bucket)

    def _free(self, bucket: TableBucket) -> None:
        self.leases.pop(bucket, None)
        self.granted.discard(bucket)
        if (snapshot := self.deferred.pop(bucket, None)) is not None:
            self.leases[bucket] = BucketLease(snapshot, {Need.CHECKPOINT})

    def forget_lost(self, buckets: Collection[TableBucket]) -> None:
        """Forget the snapshots of these buckets, which are lost; a deferred snapshot takes their place."""
        for bucket in buckets:
            self._free(bucket)
        if self.requested is not None:
            self.requested = self.requested.difference(buckets) or None

    def end_all_needs(self, buckets: Collection[TableBucket]) -> None:
        """End every need of these, deferred ones too."""
        for bucket in buckets:
            self.leases.pop(bucket, None)
            self.deferred.pop(bucket, None)
            self.granted.discard(bucket)
        if self.requested is not None:
            self.requested = self.requested.difference(buckets) or None

    def reject(self) -> None:
        """Reject the pending request and drop its snapshots that were not granted before."""
        asked = self.requested or frozenset()
        self.requested = None
        self.end_need(asked - self.granted, Need.ROUND)

    def grant(self) -> bool:
        """Grant the pending request if everything requested is verified.

        Returns:
            True if it is granted now.
        """
        if self.requested is None or any(not self._is_safe(bucket) for bucket in self.requested):
            return False
        self.granted |= self.requested
        self.requested = None
        return True

    def _is_safe(self, bucket: TableBucket) -> bool:
        return self.leases[bucket].status is LeaseStatus.VERIFIED

    def start_anew(self, event: LeasesEvent, covered_until: float) -> None:
        """Acquire everything again under a new id; the retired id covers what it had acquired until it expires."""
        for lease in self.leases.values():
            if lease.status is not LeaseStatus.WANTED:
                lease.covered_until = covered_until
                lease.move(event, StatusGuard.NEW_ID)
        self.on_server.clear()
        self.release_at = NOT_COVERED
        self.release_failures = 0

    def uncovered(self, now: float) -> frozenset[KvSnapshot]:
        """Return the granted snapshots that are no longer protected: they may have been deleted."""
        return frozenset(
            self.leases[bucket].snapshot
            for bucket in self.granted
            if self.leases[bucket].status is LeaseStatus.WANTED and self.leases[bucket].covered_until <= now
        )

    def expirations(self) -> list[float]:
        """Return the expiry of each protection by a retired id that the current id does not provide yet."""
        return [
            self.leases[bucket].covered_until
            for bucket in self.granted
            if self.leases[bucket].status is LeaseStatus.WANTED
        ]
