"""The leases of one table: what is wanted, how far each snapshot is, and what may be held on the server."""

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
    """How far a snapshot is under the CURRENT lease id."""

    WANTED = "wanted"
    ACQUIRED = "acquired"
    VERIFIED = "verified"


class StatusGuard(MachineState):
    """What an event says of a snapshot; it selects the next status."""

    GRANTED = "granted"
    """The backend has acquired it."""
    PRESENT = "present"
    """The source still had it after that."""
    NEW_ID = "new lease id"
    """The current lease id was retired."""


TRANSITIONS: Mapping[tuple[LeaseStatus, type[LeasesEvent]], Mapping[StatusGuard, LeaseStatus]] = MappingProxyType(
    {
        **{(status, Acquired): {StatusGuard.GRANTED: LeaseStatus.ACQUIRED} for status in LeaseStatus},
        (LeaseStatus.WANTED, Verified): {StatusGuard.PRESENT: LeaseStatus.WANTED},  # let go and wanted again meanwhile
        (LeaseStatus.ACQUIRED, Verified): {StatusGuard.PRESENT: LeaseStatus.VERIFIED},
        (LeaseStatus.VERIFIED, Verified): {StatusGuard.PRESENT: LeaseStatus.VERIFIED},
        **{
            (status, event): {StatusGuard.NEW_ID: LeaseStatus.WANTED}
            for status in LeaseStatus
            for event in (CoordinatorChanged, StartGeneration, CallFailed, CallOutcomeUnknown, LeaseStop)
        },
    }
)
"""(status, event) to the next status by guard; complete: what has no row is illegal."""


class Need(MachineState):
    """Who needs a snapshot; it is held for as long as anybody does."""

    ROUND = "round"
    """A round that is open, or was when the last start ended."""
    CHECKPOINT = "checkpoint"
    """The checkpoint that the table's next round would go on from."""


@dataclass(slots=True)
class BucketLease:
    """The lease of one bucket's snapshot. `covered_until`: a retired id protects it until then (holder's clock)."""

    snapshot: KvSnapshot
    needs: set[Need] = field(default_factory=set)
    status: LeaseStatus = LeaseStatus.WANTED
    covered_until: float = NOT_COVERED

    def move(self, event: LeasesEvent, guard: StatusGuard) -> None:
        """Go to the next status."""
        machine = "leases"
        self.status = next_state(machine, TRANSITIONS, self.status, event, guard)


@dataclass(slots=True)
class TableLease:
    """One table's part of the lease.

    `granted` are buckets that the round was told to be protected, that were restored, or that were verified for a
    checkpoint: from then on there must be no moment without protection.
    `requested` are the buckets of a `Protect` that is not answered yet. `on_server` may be held under the current id.
    `deferred` is what a checkpoint needs of buckets for which a round holds another snapshot.
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

    @property
    def releasing(self) -> frozenset[TableBucket]:
        """Held on the server perhaps, wanted by nobody."""
        return frozenset(self.on_server.difference(self.leases))

    @property
    def empty(self) -> bool:
        """True if there is nothing to remember of the table."""
        return not (self.leases or self.on_server or self.requested)

    def with_status(self, status: LeaseStatus) -> dict[TableBucket, BucketLease]:
        """Return the bucket leases with that status."""
        return {bucket: lease for bucket, lease in self.leases.items() if lease.status is status}

    def request(self, snapshots: Collection[KvSnapshot]) -> None:
        """Request snapshots for a round; a bucket whose snapshot is another one starts again."""
        for snapshot in snapshots:
            lease = self.leases.get(snapshot.bucket)
            if lease is None or lease.snapshot.snapshot_id != snapshot.snapshot_id:
                self.leases[snapshot.bucket] = BucketLease(snapshot, {Need.ROUND})
                self.granted.discard(snapshot.bucket)
            else:
                lease.snapshot = snapshot  # a restored one knew no log offset
                lease.needs.add(Need.ROUND)
        self.requested = frozenset(snapshot.bucket for snapshot in snapshots)

    def retain(self, snapshots: Collection[KvSnapshot]) -> bool:
        """Hold exactly these for a checkpoint; a round keeps another snapshot of a bucket until its end.

        Returns:
            True if anything is held now that was not, or no more.
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
        """Grant what is verified and a checkpoint needs: from now on its protection must not lapse."""
        if Need.CHECKPOINT in lease.needs and lease.status is LeaseStatus.VERIFIED:
            self.granted.add(lease.snapshot.bucket)

    def needed_by_checkpoint(self) -> frozenset[TableBucket]:
        """Return the buckets whose snapshot a checkpoint needs."""
        return frozenset(bucket for bucket, lease in self.leases.items() if Need.CHECKPOINT in lease.needs)

    def end_need(self, buckets: Collection[TableBucket], need: Need) -> None:
        """End one need of these; what nobody needs then is released."""
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
        """Acquire everything again under a new id; what was acquired is covered by the retired one until then."""
        for lease in self.leases.values():
            if lease.status is not LeaseStatus.WANTED:
                lease.covered_until = covered_until
                lease.move(event, StatusGuard.NEW_ID)
        self.on_server.clear()
        self.release_at = NOT_COVERED
        self.release_failures = 0

    def uncovered(self, now: float) -> frozenset[KvSnapshot]:
        """Return what was granted and is not protected any more: it may have been deleted."""
        return frozenset(
            self.leases[bucket].snapshot
            for bucket in self.granted
            if self.leases[bucket].status is LeaseStatus.WANTED and self.leases[bucket].covered_until <= now
        )

    def expirations(self) -> list[float]:
        """Return when each protection by a retired id ends that the current id has not taken over yet."""
        return [
            self.leases[bucket].covered_until
            for bucket in self.granted
            if self.leases[bucket].status is LeaseStatus.WANTED
        ]
