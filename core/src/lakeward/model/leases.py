"""Leases: what is held, what a backend is told and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.model.splits import Split
    from lakeward.model.tables import TableBucket
    from lakeward.ports import SnapshotLeases


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease of one service, as a backend sees it.

    `held` maps each bucket to the one snapshot that is to be protected. `server` is the source's own lease API.
    The id is service, incarnation and generation joined by `-`; it has no `/` and is under 200 characters.
    `releasing` are buckets that nobody needs any more but whose release is not confirmed. `old_ids` are the ids of
    earlier generations, with their numbers, that are still to be dropped.
    """

    lease_id: str
    generation: int
    duration_s: float
    held: Mapping[TableBucket, int]
    server: SnapshotLeases
    releasing: frozenset[TableBucket] = frozenset()
    old_ids: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Protection:
    """What an acquire gave.

    `until_s` is seconds from the moment of the answer, None where nothing runs out (or nothing is protected).
    `unavailable` lists the snapshots that are known to be gone. `protects` is False where the backend protects
    nothing (no backend, or a server without the API).
    """

    until_s: float | None
    unavailable: Mapping[TableBucket, int] = field(default_factory=dict)
    protects: bool = True


class FailoverKind(Enum):
    """What failed."""

    READER = "reader"
    JOB = "job"
    COORDINATOR = "coordinator"


@dataclass(frozen=True, slots=True)
class Failover:
    """What happened, for the hook `on_failover`.

    `attempt` is the number of the try that failed (0 for COORDINATOR). `returned` are the splits that came back
    and will be read again. `state` is what `serialize_state` had given before the restart, for COORDINATOR alone.
    """

    kind: FailoverKind
    attempt: int
    returned: tuple[Split, ...] = ()
    state: bytes | None = None


class FailoverAction(Enum):
    """What a backend wants done after a failover."""

    KEEP = "keep"
    RELEASE = "release"
    ACQUIRE = "acquire"


@dataclass(frozen=True, slots=True)
class RestoredLease:
    """An earlier start's lease, to go on with. `old_ids` had not been dropped yet when it was persisted."""

    lease_id: str
    generation: int
    held: Mapping[TableBucket, int]
    old_ids: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class FailoverAnswer:
    """A backend's answer to `on_failover`; `restored` only after COORDINATOR, None where there is nothing."""

    action: FailoverAction
    restored: RestoredLease | None = None
