"""What one table wants protected, how far each of its snapshots has come, and what may be held on the server."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from lakeward.model.tables import KvSnapshot, TableBucket

if TYPE_CHECKING:
    from collections.abc import Collection

NOT_COVERED = float("-inf")
ENDLESS = float("inf")


class Standing(Enum):
    """How far a snapshot has come under the CURRENT lease id."""

    WANTED = "wanted"
    ACQUIRED = "acquired"
    VERIFIED = "verified"


@dataclass(slots=True)
class Slot:
    """One bucket's snapshot. `covered_until`: an earlier id protects it until then, on the holder's clock."""

    snapshot: KvSnapshot
    standing: Standing = Standing.WANTED
    covered_until: float = NOT_COVERED


@dataclass(slots=True)
class Claim:
    """One table's part of the lease.

    `granted` are buckets that the round was told to be protected (or that were restored): it may be reading them.
    `waiting` are the buckets of a `Protect` that is not answered yet. `on_server` may be held under the current id.
    """

    table_id: int
    slots: dict[TableBucket, Slot] = field(default_factory=dict)
    granted: set[TableBucket] = field(default_factory=set)
    waiting: frozenset[TableBucket] | None = None
    on_server: set[TableBucket] = field(default_factory=set)
    retry_at: float = NOT_COVERED
    failures: int = 0
    release_at: float = NOT_COVERED
    release_failures: int = 0

    @property
    def releasing(self) -> frozenset[TableBucket]:
        """Held on the server perhaps, wanted by nobody."""
        return frozenset(self.on_server.difference(self.slots))

    @property
    def empty(self) -> bool:
        """True if nothing is left to remember."""
        return not (self.slots or self.on_server or self.waiting)

    def standing_at(self, standing: Standing) -> dict[TableBucket, Slot]:
        """Return the slots that stand there."""
        return {bucket: slot for bucket, slot in self.slots.items() if slot.standing is standing}

    def want(self, snapshots: Collection[KvSnapshot]) -> None:
        """Ask for snapshots; a bucket whose snapshot is another one starts over."""
        for snapshot in snapshots:
            slot = self.slots.get(snapshot.bucket)
            if slot is None or slot.snapshot.snapshot_id != snapshot.snapshot_id:
                self.slots[snapshot.bucket] = Slot(snapshot)
                self.granted.discard(snapshot.bucket)
            else:
                slot.snapshot = snapshot  # a restored one knew no log offset
        self.waiting = frozenset(snapshot.bucket for snapshot in snapshots)

    def let_go(self, buckets: Collection[TableBucket]) -> None:
        """Want these no more."""
        for bucket in buckets:
            self.slots.pop(bucket, None)
            self.granted.discard(bucket)
        if self.waiting is not None:
            self.waiting = self.waiting.difference(buckets) or None

    def refuse(self) -> None:
        """Give up the open question: everything that was asked for and not granted before is let go."""
        asked = self.waiting or frozenset()
        self.waiting = None
        self.let_go(asked - self.granted)

    def grant(self) -> bool:
        """Answer the open question if everything asked for is verified.

        Returns:
            True if it is answered now.
        """
        if self.waiting is None or any(not self._is_safe(bucket) for bucket in self.waiting):
            return False
        self.granted |= self.waiting
        self.waiting = None
        return True

    def _is_safe(self, bucket: TableBucket) -> bool:
        return self.slots[bucket].standing is Standing.VERIFIED

    def start_over(self, covered_until: float) -> None:
        """Forget the current id: all is to be acquired anew, what was acquired is covered until then."""
        for slot in self.slots.values():
            if slot.standing is not Standing.WANTED:
                slot.covered_until = covered_until
                slot.standing = Standing.WANTED
        self.on_server.clear()
        self.release_at = NOT_COVERED
        self.release_failures = 0

    def uncovered(self, now: float) -> frozenset[TableBucket]:
        """Return what a round may be reading although nothing protects it any more."""
        return frozenset(
            bucket
            for bucket in self.granted
            if self.slots[bucket].standing is Standing.WANTED and self.slots[bucket].covered_until <= now
        )

    def cover(self) -> list[float]:
        """Return until when that lasts which is granted and not yet acquired under the current id."""
        return [
            self.slots[bucket].covered_until
            for bucket in self.granted
            if self.slots[bucket].standing is Standing.WANTED
        ]
