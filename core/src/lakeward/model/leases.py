"""Leases: what they hold, and the arguments and results of a lease backend's hooks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from lakeward.model.protection import Protection

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.model.splits import Split
    from lakeward.model.tables import TableBucket
    from lakeward.ports.leases import SnapshotLeases

__all__ = [
    "Failover",
    "FailoverAction",
    "FailoverAnswer",
    "FailoverKind",
    "Lease",
    "Protection",
    "RestoredLease",
]


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease of one service, as a backend sees it.

    `held` maps each bucket to the one snapshot that is to be protected. `server` is the source's own lease API.
    The id is service, incarnation and generation joined by `-`; it has no `/` and is under 200 characters.
    `releasing` are buckets that are no longer needed but whose release is not confirmed. `old_ids` are the ids of
    earlier generations, with their numbers, that are still to be dropped.
    """

    lease_id: str
    generation: int
    duration_s: float
    held: Mapping[TableBucket, int]
    server: SnapshotLeases
    releasing: frozenset[TableBucket] = frozenset()
    old_ids: tuple[tuple[str, int], ...] = ()


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
    """An earlier start's lease, to continue with. `old_ids` had not been dropped yet when it was persisted."""

    lease_id: str
    generation: int
    held: Mapping[TableBucket, int]
    old_ids: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class FailoverAnswer:
    """A backend's answer to `on_failover`; `restored` only after COORDINATOR, None where there is nothing."""

    action: FailoverAction
    restored: RestoredLease | None = None
