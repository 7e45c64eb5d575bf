"""The words of the lease machine: its policy, events, commands and books. The machine is in `leases`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from lakeward.model.leases import Protection, RestoredLease
from lakeward.model.tables import KvSnapshot, TableBucket


class CallKind(Enum):
    """Which hook a call went to."""

    ACQUIRE = "acquire"
    VERIFY = "verify"
    """Not a hook: `Source.missing_snapshots`."""
    RELEASE = "release"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class LeasesPolicy:
    """All in seconds. `renew_most_s` ends the pause between two renewals: a long lease is meant for long outages."""

    duration_s: float
    retry_first_s: float = 1.0
    retry_most_s: float = 60.0
    renew_most_s: float = 300.0


# --- events -----------------------------------------------------------------------------------------------------


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
class Forsake:
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
class CallUnknown:
    """A call timed out or its outcome is unknown: it may still take effect at any time."""

    now: float
    call: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorChanged:
    """The source's coordinator is another process now: it may have lost leases."""

    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Renumber:
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
    | Forsake
    | Acquired
    | Verified
    | Done
    | CallFailed
    | CallUnknown
    | CoordinatorChanged
    | Renumber
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
    """The round's snapshots could not be had.

    `gone` lists those that vanished (enumerate afresh); where it is empty the backend failed with `reason` (the round
    fails).
    """

    table_id: int
    gone: frozenset[KvSnapshot]
    reason: str


@dataclass(frozen=True, slots=True)
class Lost:
    """Protection of these was found to be gone, while a round was reading them or a checkpoint had still to."""

    table_id: int
    snapshots: frozenset[KvSnapshot]
    reason: str


@dataclass(frozen=True, slots=True)
class LeaseStopped:
    """All calls are settled (or given up); the service may end."""


LeasesCommand = (
    Persist | CallAcquire | CallVerify | CallRelease | CallDrop | Protected | NotProtected | Lost | LeaseStopped
)


@dataclass(frozen=True, slots=True)
class LeaseBooks:
    """What the machine holds, for the state file, `leases list` and the hook's `Lease` argument."""

    lease_id: str
    generation: int
    held: Mapping[TableBucket, int]
    releasing: frozenset[TableBucket]
    """Released by nobody yet, or the release failed and is tried again."""
    for_checkpoints: frozenset[TableBucket]
    """Those of `held` that a checkpoint still has to read, with or without a round."""
    old_ids: tuple[tuple[str, int], ...]
    """Ids of earlier generations that are still to be dropped."""
    until: float | None
    """When the lease runs out, on the holder's clock; None = unknown or never."""
    failures: int
    """Calls that failed since the last one that went well."""
