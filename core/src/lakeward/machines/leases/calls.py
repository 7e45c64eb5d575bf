"""Calls of the lease backend and of the source: those under way, and lease ids that are still to be dropped."""

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
"""What a call that went well is answered with; any call may be answered by `CallFailed` or `CallOutcomeUnknown`."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call under way. `tables` it was for; `renewal` marks an acquire of the whole list."""

    kind: CallKind
    lease_id: str
    generation: int
    sent_at: float
    tables: tuple[int, ...] = ()
    snapshots: tuple[KvSnapshot, ...] = ()
    buckets: frozenset[TableBucket] = frozenset()
    """Of a release: what it gives up. Of an acquire: what was not held under this id before."""
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
