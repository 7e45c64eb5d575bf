"""The commands of the lease machine. A call is answered by an event with the call's number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakeward.model.tables import KvSnapshot, TableBucket


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
