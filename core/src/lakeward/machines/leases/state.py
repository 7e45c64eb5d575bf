"""What the lease machine knows: each table's leases, open calls, retired ids.

Private to its machine: outside of this package only `Leases` and `HeldLeases` are used.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from lakeward.machines.leases.messages import Acquired, Done, LeasesCommand, LeasesEvent, Verified
from lakeward.machines.machine import Machine, MachineState, UndoDict
from lakeward.model.backoff import backoff_s
from lakeward.model.tables import KvSnapshot, TableBucket

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


NOT_COVERED = float("-inf")
NEVER = float("inf")
_UNKNOWN_AT_MOST = 10_000
"""Most calls of unknown outcome that are kept: a server that is silent for days must not fill the memory."""


class CallState(MachineState):
    """What is open under the current lease id. Calls under retired ids run beside it, in every state."""

    FRESH = "fresh"
    """No snapshot was ever requested."""
    IDLE = "idle"
    ACQUIRING = "acquiring"
    RENEWING = "renewing"
    VERIFYING = "verifying"
    RELEASING = "releasing"
    STOPPING = "stopping"
    """The service stops: wait for open calls, and try remaining releases and drops once more."""
    STOPPED = "stopped"


class LeaseStatus(MachineState):
    """The status of a snapshot under the CURRENT lease id."""

    WANTED = "wanted"
    ACQUIRED = "acquired"
    VERIFIED = "verified"


class Need(MachineState):
    """What needs a snapshot; the snapshot is held as long as there is a need."""

    ROUND = "round"
    """A round that is open, or was open when the last start ended."""
    CHECKPOINT = "checkpoint"
    """The checkpoint that the table's next round would resume from."""


class CallKind(Enum):
    """Which hook a call went to."""

    ACQUIRE = "acquire"
    VERIFY = "verify"
    """Not a hook: `Source.missing_snapshots`."""
    RELEASE = "release"
    DROP = "drop"


ANSWERS: dict[CallKind, type[LeasesEvent]] = {
    CallKind.ACQUIRE: Acquired,
    CallKind.VERIFY: Verified,
    CallKind.RELEASE: Done,
    CallKind.DROP: Done,
}
"""The answer of a successful call; any call may be answered by `CallFailed` or `CallOutcomeUnknown` instead."""


class LeasesPolicy(Struct, frozen=True):
    """Periods in seconds. `renew_most_s` is the longest time between two renewals, however long the lease lives."""

    duration_s: float
    retry_first_s: float = 1.0
    retry_most_s: float = 60.0
    renew_most_s: float = 300.0


class HeldLeases(Struct, frozen=True):
    """The snapshots that the machine holds, for the state file, `leases list` and the hook's `Lease` argument."""

    lease_id: str
    generation: int
    held: Mapping[TableBucket, int]
    releasing: frozenset[TableBucket]
    """Not needed any more: the release is not sent yet, or failed and is tried again."""
    for_checkpoints: frozenset[TableBucket]
    """The snapshots in `held` that a checkpoint still has to read, with or without a round."""
    old_ids: tuple[tuple[str, int], ...]
    """Ids of earlier generations that are still to be dropped."""
    until: float | None
    """When the lease expires, on the holder's clock; None = unknown or never."""
    failures: int
    """Failed calls since the last successful one."""


class Call(Struct, frozen=True):
    """An open call. `tables`: the tables it is for; `renewal` marks an acquire of the whole list."""

    kind: CallKind
    lease_id: str
    generation: int
    sent_at: float
    tables: tuple[int, ...] = ()
    snapshots: tuple[KvSnapshot, ...] = ()
    buckets: frozenset[TableBucket] = frozenset()
    """Of a release: the buckets it releases. Of an acquire: those that were not held under this id before."""
    renewal: bool = False


class RetiredLease(Struct, frozen=True):
    """An earlier lease id that is still to be dropped.

    `open_call` is a call under it that is not answered yet. `unsettled`: a call of unknown outcome may still take
    effect, so that the id is dropped a second time later. `expires`: the server has removed the id by then.
    """

    lease_id: str
    generation: int
    expires: float
    open_call: int | None = None
    unsettled: bool = False
    retry_at: float = NOT_COVERED
    failures: int = 0


class BucketLease(Struct, frozen=True):
    """The lease of one bucket's snapshot.

    `covered_until`: a retired id protects it until then (holder's clock). `granted`: a round was told that it is
    protected, or it was restored, or verified for a checkpoint: from then on its protection must not lapse.
    """

    snapshot: KvSnapshot
    needs: frozenset[Need] = frozenset()
    status: LeaseStatus = LeaseStatus.WANTED
    covered_until: float = NOT_COVERED
    granted: bool = False

    @property
    def verified(self) -> bool:
        """Whether the current id protects it."""
        return self.status is LeaseStatus.VERIFIED

    def needed_by(self, need: Need, snapshot: KvSnapshot) -> BucketLease:
        """Return it with one more need, and the snapshot as that names it: a restored one has no log offset."""
        return replace(self, snapshot=snapshot, needs=self.needs | {need}).granted_to_checkpoint()

    def granted_to_checkpoint(self) -> BucketLease:
        """Return it granted if it is verified and a checkpoint needs it."""
        return replace(self, granted=True) if Need.CHECKPOINT in self.needs and self.verified else self


class Draft:
    """The leases of a table while they are changed."""

    def __init__(self, table: TableLease) -> None:
        self.leases = dict(table.leases)
        self.deferred = dict(table.deferred)

    def end_need(self, bucket: TableBucket, need: Need) -> None:
        """End one need of a snapshot; without another one it is released."""
        lease = self.leases.get(bucket)
        if lease is None:
            return
        self.leases[bucket] = replace(lease, needs=lease.needs - {need})
        if not self.leases[bucket].needs:
            self.free(bucket)

    def free(self, bucket: TableBucket) -> None:
        """Forget a snapshot; a deferred one takes its place."""
        self.leases.pop(bucket, None)
        if (snapshot := self.deferred.pop(bucket, None)) is not None:
            self.leases[bucket] = BucketLease(snapshot, frozenset({Need.CHECKPOINT}))


class TableLease(Struct, frozen=True):
    """One table's part of the lease: which snapshots are needed, each one's status, and what the server may hold.

    `requested` are the buckets of a `Protect` that is not answered yet. `on_server` are buckets that the server may
    hold under the current id. `deferred` are snapshots that a checkpoint needs of buckets for which a round holds
    another snapshot.
    """

    table_id: int
    leases: Mapping[TableBucket, BucketLease] = field(default_factory=dict)
    deferred: Mapping[TableBucket, KvSnapshot] = field(default_factory=dict)
    requested: frozenset[TableBucket] | None = None
    on_server: frozenset[TableBucket] = frozenset()
    retry_at: float = NOT_COVERED
    failures: int = 0
    release_at: float = NOT_COVERED
    release_failures: int = 0

    @property
    def releasing(self) -> frozenset[TableBucket]:
        """Buckets that the server may hold and that nothing needs."""
        return self.on_server.difference(self.leases)

    @property
    def empty(self) -> bool:
        """True if there is nothing to remember of the table."""
        return not (self.leases or self.on_server or self.requested)

    @property
    def granted(self) -> bool:
        """Whether the protection of any of its snapshots must not lapse."""
        return any(lease.granted for lease in self.leases.values())

    @property
    def snapshot_ids(self) -> dict[TableBucket, int]:
        """Which snapshots are held, or wanted."""
        return {bucket: lease.snapshot.snapshot_id for bucket, lease in self.leases.items()}

    def with_status(self, status: LeaseStatus) -> list[KvSnapshot]:
        """Return the snapshots with that status."""
        return [lease.snapshot for lease in self.leases.values() if lease.status is status]

    def request(self, snapshots: Collection[KvSnapshot]) -> TableLease:
        """Request snapshots for a round; a bucket with another snapshot than before must be acquired again."""
        leases = dict(self.leases)
        for snapshot in snapshots:
            lease = leases.get(snapshot.bucket)
            if lease is None or lease.snapshot.snapshot_id != snapshot.snapshot_id:
                leases[snapshot.bucket] = BucketLease(snapshot, frozenset({Need.ROUND}))
            else:
                leases[snapshot.bucket] = replace(lease, snapshot=snapshot, needs=lease.needs | {Need.ROUND})
        return replace(self, leases=leases, requested=frozenset(snapshot.bucket for snapshot in snapshots))

    def retain(self, snapshots: Collection[KvSnapshot]) -> TableLease:
        """Hold exactly these for a checkpoint; another snapshot of a bucket stays as long as its round."""
        needed = {snapshot.bucket: snapshot for snapshot in snapshots}
        draft = Draft(replace(self, deferred={}))
        for bucket, lease in self.leases.items():
            wanted = needed.get(bucket)
            if wanted is None or wanted.snapshot_id != lease.snapshot.snapshot_id:
                draft.end_need(bucket, Need.CHECKPOINT)
        for bucket, snapshot in needed.items():
            lease = draft.leases.setdefault(bucket, BucketLease(snapshot))
            if lease.snapshot.snapshot_id == snapshot.snapshot_id:
                draft.leases[bucket] = lease.needed_by(Need.CHECKPOINT, snapshot)
            else:
                draft.deferred[bucket] = snapshot
        return replace(self, leases=draft.leases, deferred=draft.deferred)

    def end_need(self, buckets: Collection[TableBucket], need: Need) -> TableLease:
        """End one need of these; those without another need are released."""
        draft = Draft(self)
        for bucket in buckets:
            draft.end_need(bucket, need)
        return self._without(draft, buckets if need is Need.ROUND else ())

    def forget_lost(self, buckets: Collection[TableBucket]) -> TableLease:
        """Forget the snapshots of these buckets, which are lost; a deferred snapshot takes their place."""
        draft = Draft(self)
        for bucket in buckets:
            draft.free(bucket)
        return self._without(draft, buckets)

    def end_all_needs(self, buckets: Collection[TableBucket]) -> TableLease:
        """End every need of these, deferred ones too."""
        draft = Draft(self)
        for bucket in buckets:
            draft.leases.pop(bucket, None)
            draft.deferred.pop(bucket, None)
        return self._without(draft, buckets)

    def _without(self, draft: Draft, buckets: Collection[TableBucket]) -> TableLease:
        requested = None if self.requested is None else self.requested.difference(buckets) or None
        return replace(self, leases=draft.leases, deferred=draft.deferred, requested=requested)

    def reject(self) -> TableLease:
        """Reject the pending request and drop its snapshots that were not granted before."""
        new = [b for b in self.requested or () if b in self.leases and not self.leases[b].granted]
        return replace(self, requested=None).end_need(new, Need.ROUND)

    def may_be_granted(self) -> bool:
        """Return whether there is a pending request and everything that it wants is verified."""
        return self.requested is not None and all(self.is_safe(bucket) for bucket in self.requested)

    def is_safe(self, bucket: TableBucket) -> bool:
        """Return whether the current id protects a snapshot."""
        return self.leases[bucket].verified

    def grant(self) -> TableLease:
        """Grant the pending request."""
        granted = {bucket: replace(self.leases[bucket], granted=True) for bucket in self.requested or ()}
        return replace(self, leases={**self.leases, **granted}, requested=None)

    def uncovered(self) -> Iterable[BucketLease]:
        """Return the granted leases that at most a retired id protects."""
        return (lease for lease in self.leases.values() if lease.granted and lease.status is LeaseStatus.WANTED)


class LeaseState(Machine[LeasesEvent, LeasesCommand]):
    """The state of the machine."""

    phase: CallState

    def __init__(self, policy: LeasesPolicy, base_id: str) -> None:
        """Start with nothing held, generation 1.

        `base_id` is service and incarnation; the lease id is `<base_id>-<generation>`.
        """
        super().__init__()
        self.policy = policy
        self.base_id = base_id
        self.phase = CallState.FRESH
        self.generation = 1
        self.tables = UndoDict[int, TableLease](self.undo)
        self.retired = UndoDict[str, RetiredLease](self.undo)
        self.calls = UndoDict[int, Call](self.undo)
        self.unknown = UndoDict[int, Call](self.undo)
        """Acquires of unknown outcome: they may still take effect, and be answered, later."""
        self.last_call = 0
        self.open_call: int | None = None
        self.expires_at: float | None = None
        self.renew_at: float | None = None
        self.failures = 0
        self.never_expires = False
        self.checkpoints_read = True
        """False after a restore, until it is known what checkpoints need."""
        self.tried_while_stopping: frozenset[int | str] = frozenset()
        self.changed = False
        """Whether this step changed what is persisted."""
        self._held_leases: HeldLeases | None = None

    @property
    def state(self) -> CallState:
        """What is open under the current id."""
        return self.phase

    @property
    def stopping(self) -> bool:
        """True once the service ends."""
        return self.phase is CallState.STOPPING or self.phase is CallState.STOPPED

    @property
    def lease_id(self) -> str:
        """The current id: service, incarnation, generation."""
        return f"{self.base_id}-{self.generation}"

    @property
    def held_leases(self) -> HeldLeases:
        """The snapshots that are held now."""
        if self._held_leases is None:
            tables = self.tables.values()
            self._held_leases = HeldLeases(
                lease_id=self.lease_id,
                generation=self.generation,
                held={bucket: number for table in tables for bucket, number in table.snapshot_ids.items()},
                releasing=frozenset(bucket for table in tables for bucket in table.releasing),
                old_ids=tuple((retired.lease_id, retired.generation) for retired in self.retired.values()),
                for_checkpoints=frozenset(
                    bucket
                    for table in tables
                    for bucket, lease in table.leases.items()
                    if Need.CHECKPOINT in lease.needs
                ),
                until=self.expires_at,
                failures=self.failures,
            )
        return self._held_leases

    def is_waiting(self, table_id: int) -> bool:
        """Return whether a `Protect` of the table is not answered yet."""
        table = self.tables.get(table_id)
        return table is not None and table.requested is not None

    def table(self, table_id: int) -> TableLease:
        """Return the leases of a table; empty for a new table."""
        return self.tables.get(table_id) or TableLease(table_id)

    def put(self, table: TableLease, *, changed: bool = True) -> None:
        """Keep what became of a table's leases."""
        self.tables[table.table_id] = table
        self.changed = self.changed or changed

    def tables_of(self, call: Call) -> list[TableLease]:
        """Return the tables of a call that are still known."""
        return [self.tables[table_id] for table_id in call.tables if table_id in self.tables]

    def still_wanted(self, call: Call) -> list[KvSnapshot]:
        """Return the snapshots that the call was for and that are still held or wanted."""
        found = []
        for snapshot in call.snapshots:
            table = self.tables.get(snapshot.bucket.table_id)
            lease = table.leases.get(snapshot.bucket) if table is not None else None
            if lease is not None and lease.snapshot.snapshot_id == snapshot.snapshot_id:
                found.append(lease.snapshot)
        return found

    def send(
        self,
        kind: CallKind,
        now: float,
        tables: tuple[int, ...],
        snapshots: Iterable[KvSnapshot] = (),
        buckets: frozenset[TableBucket] = frozenset(),
        *,
        renewal: bool = False,
    ) -> int:
        """Record the open call under the current id; return its number."""
        self.last_call += 1
        self.open_call = self.last_call
        self.calls[self.last_call] = Call(
            kind, self.lease_id, self.generation, now, tables, tuple(snapshots), buckets, renewal
        )
        return self.last_call

    def remember_unknown(self, number: int, call: Call) -> None:
        """Remember the id of an acquire of unknown outcome."""
        self.unknown[number] = replace(call, tables=(), snapshots=(), buckets=frozenset())
        if len(self.unknown) > _UNKNOWN_AT_MOST:
            del self.unknown[min(self.unknown)]

    def retry_pause_s(self, failures: int) -> float:
        """Return seconds to wait after so many failures in a row."""
        return backoff_s(failures, self.policy.retry_first_s, self.policy.retry_most_s)

    def put_retired(self, retired: RetiredLease) -> None:
        """Keep what became of a retired id."""
        self.retired[retired.lease_id] = retired

    def forget_retired(self, retired: RetiredLease) -> None:
        """Forget a retired id: it is dropped or has expired."""
        del self.retired[retired.lease_id]
        self.changed = True

    def retry_while_stopping(self, tried: int | str) -> None:
        """Try a table's release, or the drop of an id, once more though that was done while the service stops."""
        self.tried_while_stopping -= {tried}

    def expiry(self, now: float) -> float:
        """Return until when an id that is retired now may exist on the server."""
        return NEVER if self.never_expires else now + self.policy.duration_s

    def old_leases_are_replaced(self) -> bool:
        """Return whether every snapshot that a round or a checkpoint needs is known and verified under this id."""
        return self.checkpoints_read and all(
            lease.verified
            for table in self.tables.values()
            for lease in table.leases.values()
            if lease.granted or Need.CHECKPOINT in lease.needs
        )

    def drops_open(self) -> int:
        """Return the number of open drops."""
        return sum(call.kind is CallKind.DROP for call in self.calls.values())

    def lease_calls_open(self) -> bool:
        """Return whether any call of the lease backend is open."""
        return any(call.kind is not CallKind.VERIFY for call in self.calls.values())
