"""The events of the lease machine: what it is told."""

from __future__ import annotations

from dataclasses import dataclass

from lakeward.model.leases import Protection, RestoredLease
from lakeward.model.tables import KvSnapshot, TableBucket


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """At start: an earlier start's lease is to be taken over. Before any `Protect`."""

    now: float
    lease: RestoredLease
    snapshots: tuple[KvSnapshot, ...]
    """The same buckets as `lease.held`, with log offsets (0 where unknown), for verification."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Protect:
    """A round asks for its snapshots. A bucket that another snapshot is held for is moved to the new one."""

    now: float
    table_id: int
    snapshots: tuple[KvSnapshot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unprotect:
    """No round needs these any more; what a checkpoint needs stays held. Unknown buckets are no error."""

    now: float
    buckets: frozenset[TableBucket]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retain:
    """The checkpoint that the table's next round would go on from still has to read exactly these snapshots.

    It replaces what was said of the table before; no snapshots: no checkpoint needs any. They are held, with or
    without a round, until another `Retain` leaves them out. Where a round holds another snapshot of a bucket, the
    round's stays.
    """

    now: float
    table_id: int
    snapshots: tuple[KvSnapshot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointsRead:
    """The checkpoints in the store were read: `Retain` has said what each of them needs.

    Before, a restored id may protect what nobody has asked for yet, and is not dropped.
    """

    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AbandonLease:
    """A failover hook answered RELEASE: neither a round nor a checkpoint will read these again."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorChanged:
    """The source's coordinator is another process now: it may have lost leases."""

    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StartGeneration:
    """A failover hook answered ACQUIRE: take everything afresh under a new generation."""

    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTick:
    """Time went on."""

    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseStop:
    """The service ends. `final` drops the lease; otherwise the id is kept and only what nobody needs is released.

    What a checkpoint needs is held on, for the next start.
    """

    now: float
    final: bool


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
