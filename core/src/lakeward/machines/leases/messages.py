"""The events and commands of the lease machine. A call is answered by an event with the call's number."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from lakeward.machines.machine import AtTime
from lakeward.model.leases import Protection, RestoredLease
from lakeward.model.tables import KvSnapshot, TableBucket

# --- events -----------------------------------------------------------------------------------------------------


class _Answer(AtTime, frozen=True, kw_only=True):
    call: int


class Restored(AtTime, frozen=True, kw_only=True):
    """At start, before any `Protect`: continue an earlier start's lease under a new generation."""

    lease: RestoredLease
    snapshots: tuple[KvSnapshot, ...]
    """The same buckets as `lease.held`, with log offsets (0 where unknown), for verification."""


class Protect(AtTime, frozen=True, kw_only=True):
    """A round requests its snapshots. If another snapshot of a bucket is held, the new one replaces it."""

    table_id: int
    snapshots: tuple[KvSnapshot, ...]


class Unprotect(AtTime, frozen=True, kw_only=True):
    """No round needs these any more. Snapshots that a checkpoint needs stay held; unknown buckets are no error."""

    buckets: frozenset[TableBucket]


class Retain(AtTime, frozen=True, kw_only=True):
    """The checkpoint that the table's next round would resume from still has to read exactly these snapshots.

    Each `Retain` replaces the table's previous one; empty means that no checkpoint needs a snapshot. The snapshots are
    held, with or without a round, until another `Retain` leaves them out. If a round holds another snapshot of a
    bucket, the round's snapshot stays.
    """

    table_id: int
    snapshots: tuple[KvSnapshot, ...]


class CheckpointsRead(AtTime, frozen=True):
    """The checkpoints in the store were read, and a `Retain` was sent for each table that has one.

    Before that, a restored id is not dropped: it may protect snapshots that no `Retain` has listed yet.
    """


class AbandonLease(AtTime, frozen=True, kw_only=True):
    """The failover hook answered RELEASE: neither a round nor a checkpoint will read these again."""

    buckets: frozenset[TableBucket]


class Acquired(_Answer, frozen=True, kw_only=True):
    """The hook `acquire` answered."""

    protection: Protection


class Verified(_Answer, frozen=True, kw_only=True):
    """The verification answered."""

    missing: frozenset[KvSnapshot]


class Done(_Answer, frozen=True):
    """The hook `release` or `drop` returned."""


class CallFailed(_Answer, frozen=True, kw_only=True):
    """A call raised: it had no effect."""

    reason: str


class CallOutcomeUnknown(_Answer, frozen=True, kw_only=True):
    """A call timed out or its outcome is unknown: it may still take effect at any time."""

    reason: str


class CoordinatorChanged(AtTime, frozen=True):
    """The source's coordinator is another process now: it may have lost leases."""


class StartGeneration(AtTime, frozen=True):
    """The failover hook answered ACQUIRE: acquire everything again under a new generation."""


class LeaseTick(AtTime, frozen=True):
    """Time passed."""


class LeaseStop(AtTime, frozen=True, kw_only=True):
    """The service ends. `final` drops the lease; otherwise the id is kept and only unneeded snapshots are released.

    Snapshots that a checkpoint needs stay held for the next start.
    """

    final: bool


class SnapshotsAcquired(AtTime, frozen=True, kw_only=True):
    """Follows from `Acquired`: these are still wanted."""

    tables: tuple[int, ...]
    snapshots: tuple[KvSnapshot, ...]


class CallDue(AtTime, frozen=True):
    """Follows from each event: the most urgent call is sent."""


class StepEnded(Struct, frozen=True):
    """Follows from each event: everything that is due was sent."""


LeasesEvent = (
    Restored
    | Protect
    | Unprotect
    | Retain
    | CheckpointsRead
    | AbandonLease
    | Acquired
    | Verified
    | Done
    | CallFailed
    | CallOutcomeUnknown
    | CoordinatorChanged
    | StartGeneration
    | LeaseTick
    | LeaseStop
)

# --- commands ---------------------------------------------------------------------------------------------------


class Persist(Struct, frozen=True):
    """Write the lease's state durably BEFORE the commands that follow in the same tuple."""


class CallAcquire(Struct, frozen=True):
    """Call the hook `acquire` with exactly these."""

    call: int
    lease_id: str
    generation: int
    snapshots: Mapping[TableBucket, int]


class CallVerify(Struct, frozen=True):
    """Ask the source which of these are gone."""

    call: int
    snapshots: tuple[KvSnapshot, ...]


class CallRelease(Struct, frozen=True):
    """Call the hook `release`."""

    call: int
    lease_id: str
    generation: int
    buckets: frozenset[TableBucket]


class CallDrop(Struct, frozen=True):
    """Call the hook `drop` for this id."""

    call: int
    lease_id: str
    generation: int


class Protected(Struct, frozen=True):
    """The round's snapshots are acquired and verified."""

    table_id: int


class NotProtected(Struct, frozen=True):
    """The round's snapshots could not be leased.

    `gone` lists those that vanished (the splits are enumerated again); if it is empty, the backend failed with `reason`
    (the round fails).
    """

    table_id: int
    gone: frozenset[KvSnapshot]
    reason: str


class ProtectionLost(Struct, frozen=True):
    """These snapshots are no longer protected, although a round reads them or a checkpoint has still to read them."""

    table_id: int
    snapshots: frozenset[KvSnapshot]
    reason: str


class LeaseStopped(Struct, frozen=True):
    """All calls have ended, or are no longer waited for; the service may end."""


LeasesCommand = (
    Persist
    | CallAcquire
    | CallVerify
    | CallRelease
    | CallDrop
    | Protected
    | NotProtected
    | ProtectionLost
    | LeaseStopped
)
