"""What one table wants protected, how far each of its snapshots has come, and what may be held on the server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakeward.machines.machine_state import MachineState
from lakeward.model.tables import KvSnapshot, TableBucket

if TYPE_CHECKING:
    from collections.abc import Collection

NOT_COVERED = float("-inf")
ENDLESS = float("inf")


class Standing(MachineState):
    """How far a snapshot has come under the CURRENT lease id."""

    WANTED = "wanted"
    ACQUIRED = "acquired"
    VERIFIED = "verified"


class Need(MachineState):
    """Who needs a snapshot; it is held for as long as anybody does."""

    ROUND = "round"
    """A round that is open, or was when the last start ended."""
    CHECKPOINT = "checkpoint"
    """The checkpoint that the table's next round would go on from."""


@dataclass(slots=True)
class Slot:
    """One bucket's snapshot. `covered_until`: an earlier id protects it until then, on the holder's clock."""

    snapshot: KvSnapshot
    needs: set[Need] = field(default_factory=set)
    standing: Standing = Standing.WANTED
    covered_until: float = NOT_COVERED


@dataclass(slots=True)
class Claim:
    """One table's part of the lease.

    `granted` are buckets that the round was told to be protected, that were restored, or that were verified for a
    checkpoint: from then on there must be no moment without protection.
    `waiting` are the buckets of a `Protect` that is not answered yet. `on_server` may be held under the current id.
    `next_in_line` is what a checkpoint needs of buckets whose slot a round has for another snapshot.
    """

    table_id: int
    slots: dict[TableBucket, Slot] = field(default_factory=dict)
    next_in_line: dict[TableBucket, KvSnapshot] = field(default_factory=dict)
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
                self.slots[snapshot.bucket] = Slot(snapshot, {Need.ROUND})
                self.granted.discard(snapshot.bucket)
            else:
                slot.snapshot = snapshot  # a restored one knew no log offset
                slot.needs.add(Need.ROUND)
        self.waiting = frozenset(snapshot.bucket for snapshot in snapshots)

    def retain(self, snapshots: Collection[KvSnapshot]) -> bool:
        """Hold exactly these for a checkpoint; a round keeps another snapshot of a bucket until its end.

        Returns:
            True if anything is held now that was not, or no more.
        """
        before = {bucket: slot.snapshot.snapshot_id for bucket, slot in self.slots.items()}
        needed = {snapshot.bucket: snapshot for snapshot in snapshots}
        self.next_in_line.clear()
        for bucket, slot in list(self.slots.items()):
            wanted = needed.get(bucket)
            if wanted is None or wanted.snapshot_id != slot.snapshot.snapshot_id:
                self._need_no_more(bucket, slot, Need.CHECKPOINT)
        for bucket, snapshot in needed.items():
            slot = self.slots.setdefault(bucket, Slot(snapshot))
            if slot.snapshot.snapshot_id == snapshot.snapshot_id:
                slot.snapshot = snapshot
                slot.needs.add(Need.CHECKPOINT)
                self.cover_checkpoint(slot)
            else:
                self.next_in_line[bucket] = snapshot
        return before != {bucket: slot.snapshot.snapshot_id for bucket, slot in self.slots.items()}

    def cover_checkpoint(self, slot: Slot) -> None:
        """Let there be no moment without protection any more for what is verified and a checkpoint needs."""
        if Need.CHECKPOINT in slot.needs and slot.standing is Standing.VERIFIED:
            self.granted.add(slot.snapshot.bucket)

    def needed_by_checkpoint(self) -> frozenset[TableBucket]:
        """Return the buckets whose snapshot a checkpoint needs."""
        return frozenset(bucket for bucket, slot in self.slots.items() if Need.CHECKPOINT in slot.needs)

    def end_need(self, buckets: Collection[TableBucket], need: Need) -> None:
        """Say that these are not needed so any more; what nobody needs then is let go."""
        for bucket in buckets:
            slot = self.slots.get(bucket)
            if slot is not None:
                self._need_no_more(bucket, slot, need)
        if need is Need.ROUND and self.waiting is not None:
            self.waiting = self.waiting.difference(buckets) or None

    def _need_no_more(self, bucket: TableBucket, slot: Slot, need: Need) -> None:
        slot.needs.discard(need)
        if not slot.needs:
            self._free(bucket)

    def _free(self, bucket: TableBucket) -> None:
        self.slots.pop(bucket, None)
        self.granted.discard(bucket)
        if (snapshot := self.next_in_line.pop(bucket, None)) is not None:
            self.slots[bucket] = Slot(snapshot, {Need.CHECKPOINT})

    def lose(self, buckets: Collection[TableBucket]) -> None:
        """Want the snapshots that hold these slots no more, whoever needed them."""
        for bucket in buckets:
            self._free(bucket)
        if self.waiting is not None:
            self.waiting = self.waiting.difference(buckets) or None

    def let_go(self, buckets: Collection[TableBucket]) -> None:
        """Want nothing of these any more, whoever needed it."""
        for bucket in buckets:
            self.slots.pop(bucket, None)
            self.next_in_line.pop(bucket, None)
            self.granted.discard(bucket)
        if self.waiting is not None:
            self.waiting = self.waiting.difference(buckets) or None

    def refuse(self) -> None:
        """Give up the open question: the round needs nothing that was asked for and not granted before."""
        asked = self.waiting or frozenset()
        self.waiting = None
        self.end_need(asked - self.granted, Need.ROUND)

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

    def uncovered(self, now: float) -> frozenset[KvSnapshot]:
        """Return what somebody reads, or has still to read, although nothing protects it any more."""
        return frozenset(
            self.slots[bucket].snapshot
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
