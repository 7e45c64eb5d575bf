"""The events and commands of the lease machine. A call is answered by an event with the call's number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakeward.model.leases import Protection, RestoredLease
from lakeward.model.tables import KvSnapshot, TableBucket

# --- events -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """At start, before any `Protect`: continue an earlier start's lease under a new generation."""

    now: float
    lease: RestoredLease
    snapshots: tuple[KvSnapshot, ...]
    """The same buckets as `lease.held`, with log offsets (0 where unknown), for verification."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Protect:
    """A round requests its snapshots. If another snapshot of a bucket is held, the new one replaces it."""

    now: float
    table_id: int
    snapshots: tuple[KvSnapshot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unprotect:
    """No round needs these any more. Snapshots that a checkpoint needs stay held; unknown buckets are no error."""

    now: float
    buckets: frozenset[TableBucket]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retain:
    """The checkpoint that the table's next round would resume from still has to read exactly these snapshots.

    Each `Retain` replaces the table's previous one; empty means that no checkpoint needs a snapshot. The snapshots are
    held, with or without a round, until another `Retain` leaves them out. If a round holds another snapshot of a
    bucket, the round's snapshot stays.
    """

    now: float
    table_id: int
    snapshots: tuple[KvSnapshot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _AtTime:
    now: float


class CheckpointsRead(_AtTime):
    """The checkpoints in the store were read, and a `Retain` was sent for each table that has one.

    Before that, a restored id is not dropped: it may protect snapshots that no `Retain` has listed yet.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class AbandonLease:
    """The failover hook answered RELEASE: neither a round nor a checkpoint will read these again."""

    now: float
    buckets: frozenset[TableBucket]


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquired:
    """The hook `acquire` answered."""

    now: float
    call: int
    protection: Protection


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The verification answered."""

    now: float
    call: int
    missing: frozenset[KvSnapshot]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The hook `release` or `drop` returned."""

    now: float
    call: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFailed:
    """A call raised: it had no effect."""

    now: float
    call: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOutcomeUnknown:
    """A call timed out or its outcome is unknown: it may still take effect at any time."""

    now: float
    call: int
    reason: str


class CoordinatorChanged(_AtTime):
    """The source's coordinator is another process now: it may have lost leases."""


class StartGeneration(_AtTime):
    """The failover hook answered ACQUIRE: acquire everything again under a new generation."""


class LeaseTick(_AtTime):
    """Time passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseStop:
    """The service ends. `final` drops the lease; otherwise the id is kept and only unneeded snapshots are released.

    Snapshots that a checkpoint needs stay held for the next start.
    """

    now: float
    final: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotsAcquired:
    """Follows from `Acquired`: these are still wanted."""

    now: float
    tables: tuple[int, ...]
    snapshots: tuple[KvSnapshot, ...]


class CallDue(_AtTime):
    """Follows from each event: the most urgent call is sent."""


@dataclass(frozen=True, slots=True)
class StepEnded:
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


@dataclass(frozen=True, slots=True)
class Persist:
    """Write the lease's state durably BEFORE the commands that follow in the same tuple."""


@dataclass(frozen=True, slots=True)
class CallAcquire:
    """Call the hook `acquire` with exactly these."""

    call: int
    lease_id: str
    generation: int
    snapshots: Mapping[TableBucket, int]


@dataclass(frozen=True, slots=True)
class CallVerify:
    """Ask the source which of these are gone."""

    call: int
    snapshots: tuple[KvSnapshot, ...]


@dataclass(frozen=True, slots=True)
class CallRelease:
    """Call the hook `release`."""

    call: int
    lease_id: str
    generation: int
    buckets: frozenset[TableBucket]


@dataclass(frozen=True, slots=True)
class CallDrop:
    """Call the hook `drop` for this id."""

    call: int
    lease_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class Protected:
    """The round's snapshots are acquired and verified."""

    table_id: int


@dataclass(frozen=True, slots=True)
class NotProtected:
    """The round's snapshots could not be leased.

    `gone` lists those that vanished (the splits are enumerated again); if it is empty, the backend failed with `reason`
    (the round fails).
    """

    table_id: int
    gone: frozenset[KvSnapshot]
    reason: str


@dataclass(frozen=True, slots=True)
class ProtectionLost:
    """These snapshots are no longer protected, although a round reads them or a checkpoint has still to read them."""

    table_id: int
    snapshots: frozenset[KvSnapshot]
    reason: str


@dataclass(frozen=True, slots=True)
class LeaseStopped:
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
