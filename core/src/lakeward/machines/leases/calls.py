"""Calls of the lease backend and of the source that are open, and lease ids that are still to be dropped."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from lakeward.machines.leases.events import Acquired, Done, LeasesEvent, Verified
from lakeward.model.tables import KvSnapshot, TableBucket


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


@dataclass(frozen=True, slots=True)
class Call:
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


@dataclass(slots=True)
class RetiredLease:
    """An earlier lease id that is still to be dropped.

    `open_call` is a call under it that is not answered yet. `unsettled`: a call of unknown outcome may still take
    effect, so that the id is dropped a second time later. `expires`: the server has removed the id by then.
    """

    lease_id: str
    generation: int
    expires: float
    open_call: int | None = None
    unsettled: bool = False
    retry_at: float = float("-inf")
    failures: int = 0
