"""A lease server in memory, with the semantics of Fluss's KV snapshot leases (and its gaps)."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakeward.errors import LeaseApiMissingError, OutcomeUnknownError, SourceError
from lakeward.model.leases import Protection
from lakeward.model.tables import TableBucket
from lakeward_testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

REFUSED = "refused"
"""Script: the next call has no effect and raises SourceError."""
LOST_BEFORE = "lost before"
"""Script: the next call has no effect and raises OutcomeUnknownError."""
LOST_AFTER = "lost after"
"""Script: the next call takes effect and raises OutcomeUnknownError."""


@dataclass(slots=True)
class ServerLease:
    """What the server knows of one lease; `expires` is on the server's clock."""

    expires: float
    held: dict[TableBucket, int] = field(default_factory=dict)


class MemoryLeaseServer:
    """A `lakeward.ports.SnapshotLeases` under the test's control.

    As Fluss does: any acquire overwrites the expiry; a lease holds one snapshot per bucket; whether a snapshot exists
    is never looked at, so nothing is reported as unavailable unless the test says that it is missing; a lease that
    becomes empty is removed; releasing or dropping what is not there succeeds. Several threads may call it.
    """

    def __init__(self, clock: FakeClock | None = None, *, old_server: bool = False) -> None:
        """Start without leases; they expire by the clock. An old server has no lease API."""
        self.clock = clock or FakeClock()
        self.old_server = old_server
        self.calls: list[tuple[str, str]] = []
        self.missing: dict[TableBucket, int] = {}
        """Snapshots that the server knows to be gone: it reports them as unavailable, and does not hold them."""
        self.during: Callable[[str], None] = lambda _: None
        """Runs within each call, with the lease's id, before the call takes effect; what it raises ends the call."""
        self._lock = threading.RLock()
        self._leases: dict[str, ServerLease] = {}
        self._script: deque[str] = deque()

    def script(self, *outcomes: str) -> None:
        """Let the next calls end so: `REFUSED`, `LOST_BEFORE`, `LOST_AFTER`; "" for a call that goes well."""
        self._script.extend(outcomes)

    def acquire(self, lease_id: str, duration_s: float, snapshots: Mapping[TableBucket, int]) -> Protection:
        """See `SnapshotLeases.acquire`."""
        self.during(lease_id)
        with self._lock:
            outcome = self._begin("acquire", lease_id)
            gone = {bucket: number for bucket, number in snapshots.items() if self.missing.get(bucket) == number}
            lease = self._leases.setdefault(lease_id, ServerLease(0.0))
            lease.expires = self.clock.now() + duration_s
            lease.held.update({bucket: number for bucket, number in snapshots.items() if bucket not in gone})
            self._end("acquire", outcome)
        return Protection(duration_s, gone)

    def release(self, lease_id: str, buckets: Collection[TableBucket]) -> None:
        """See `SnapshotLeases.release`."""
        self.during(lease_id)
        with self._lock:
            outcome = self._begin("release", lease_id)
            lease = self._leases.get(lease_id)
            if lease is not None:
                for bucket in buckets:
                    lease.held.pop(bucket, None)
                if not lease.held:
                    del self._leases[lease_id]
            self._end("release", outcome)

    def drop(self, lease_id: str) -> None:
        """See `SnapshotLeases.drop`."""
        self.during(lease_id)
        with self._lock:
            outcome = self._begin("drop", lease_id)
            self._leases.pop(lease_id, None)
            self._end("drop", outcome)

    @property
    def leases(self) -> dict[str, dict[TableBucket, int]]:
        """What lives now: lease id to bucket to snapshot id."""
        with self._lock:
            self._expire()
            return {lease_id: dict(lease.held) for lease_id, lease in self._leases.items()}

    def protects(self, bucket: TableBucket, snapshot_id: int) -> bool:
        """Say whether any living lease holds this snapshot."""
        return any(held.get(bucket) == snapshot_id for held in self.leases.values())

    def lose_everything(self) -> None:
        """Forget all leases, as a coordinator fail-over may."""
        self._leases.clear()

    def _begin(self, call: str, lease_id: str) -> str:
        self.calls.append((call, lease_id))
        self._expire()
        if self.old_server:
            message = "the server has no KV snapshot leases"
            raise LeaseApiMissingError(message)
        outcome = self._script.popleft() if self._script else ""
        if outcome == REFUSED:
            message = f"{call} was refused"
            raise SourceError(message)
        if outcome == LOST_BEFORE:
            self._raise_unknown(call)
        return outcome

    def _end(self, call: str, outcome: str) -> None:
        if outcome == LOST_AFTER:
            self._raise_unknown(call)

    def _raise_unknown(self, call: str) -> None:
        message = f"{call}: no answer"
        raise OutcomeUnknownError(message)

    def _expire(self) -> None:
        now = self.clock.now()
        self._leases = {lease_id: lease for lease_id, lease in self._leases.items() if lease.expires >= now}
