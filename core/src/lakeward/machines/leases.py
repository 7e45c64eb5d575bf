"""The service's lease: what is held, when to renew, what to retry, when to start a new generation.

One machine for each service. Its lease has one id at a time (service, incarnation, generation) and holds at most one
snapshot per bucket. What is said about snapshots is said by table id.

Rules (design section 5)
* Id and held buckets are persisted BEFORE an acquire is sent.
* Calls run one at a time per lease id; an acquire cancels pending releases of its buckets.
* An acquire is followed by a verification of exactly the snapshots it was for; only then is the round told.
* Acquires (but renewals) and releases are sent table by table: one that the server refuses fails no other.
* Renewal: every third of the duration, every five minutes at least, with the whole list; never an empty acquire.
* A restore, a call of unknown outcome, a renewal that fails, or a change of the source's coordinator starts a new
  generation: persist the new id, acquire everything under it, verify each snapshot, then drop the old id. Calls under
  the new id never wait for the old one's.
* A failed release stays in the books and is tried again with a growing pause, until the source confirms it or the
  lease runs out. A failed drop of an old id likewise. Where a call under an old id may still land, that id is dropped
  a second time.
* A round that was told NotProtected holds nothing of what it had asked for. A snapshot that a verification or a
  renewal shows as gone, or that no generation could take over before the old lease ran out, is told as Lost.
* A stop settles what is under way and tries each release and drop that is left over once more.
* A snapshot is held for as long as anybody needs it: a round (`Protect`, `Unprotect`) or the checkpoint that its
  table's next round would go on from (`Retain`), with or without a round. Acquires, verifications, renewals and new
  generations know no difference. A final stop alone lets everything go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from lakeward.errors import IllegalEventError, UsageError
from lakeward.machines.lease_calls import ANSWERS, TRANSITIONS, Call, OldId, State
from lakeward.machines.lease_ledger import Claim, Need, Slot, Standing
from lakeward.machines.lease_memory import LeaseMemory
from lakeward.machines.lease_planner import due_times, go_on, verify
from lakeward.machines.lease_protocol import (
    Acquired,
    CallAcquire,
    CallDrop,
    CallFailed,
    CallKind,
    CallRelease,
    CallUnknown,
    CallVerify,
    CoordinatorChanged,
    Done,
    Forsake,
    LeaseBooks,
    LeasesCommand,
    LeasesEvent,
    LeasesPolicy,
    LeaseStop,
    LeaseStopped,
    LeaseTick,
    Lost,
    NotProtected,
    Persist,
    Protect,
    Protected,
    Renumber,
    Restored,
    Retain,
    Unprotect,
    Verified,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.model.tables import TableBucket

__all__ = [
    "TRANSITIONS",
    "Acquired",
    "CallAcquire",
    "CallDrop",
    "CallFailed",
    "CallKind",
    "CallRelease",
    "CallUnknown",
    "CallVerify",
    "CoordinatorChanged",
    "Done",
    "Forsake",
    "LeaseBooks",
    "LeaseStop",
    "LeaseStopped",
    "LeaseTick",
    "Leases",
    "LeasesCommand",
    "LeasesEvent",
    "LeasesPolicy",
    "Lost",
    "NotProtected",
    "Persist",
    "Protect",
    "Protected",
    "Renumber",
    "Restored",
    "Retain",
    "State",
    "Unprotect",
    "Verified",
]


class Leases:
    """The machine. See the module's rules."""

    def __init__(self, policy: LeasesPolicy, base_id: str) -> None:
        """Start with nothing held, generation 1.

        Args:
            policy: periods.
            base_id: service and incarnation; the lease id is `<base_id>-<generation>`.
        """
        self._memory = LeaseMemory(policy, base_id)
        self._books: LeaseBooks | None = None
        self._next_due: tuple[float | None] | None = None
        """Both as they are since the last step, None before somebody asked: they are asked for far more often."""

    def step(self, event: LeasesEvent) -> tuple[LeasesCommand, ...]:
        """Take one event.

        Args:
            event: what happened; `now` in seconds on the holder's clock, never less than in the event before.

        Returns:
            What is to be done, in this order.

        Raises:
            IllegalEventError: no row for this event, or an answer that does not fit its call; nothing was changed.
            UsageError: a round asks for another table's snapshots; nothing was changed.
        """
        before = self._memory.state
        allowed = TRANSITIONS.get((before, type(event)))
        if allowed is None or not self._fits(event):
            machine = "leases"
            raise IllegalEventError(machine, before.value, event)
        self._memory.out, self._memory.dirty = [], False
        self._books = self._next_due = None
        if before is not State.STOPPED:
            self._take(event)
            self._memory.let_run_out(event.now)
            go_on(self._memory, event.now)
        if self._memory.state not in allowed:
            message = f"leases: {type(event).__name__} led from {before.value} to {self._memory.state.value}"
            raise AssertionError(message)
        return (Persist(), *self._memory.out) if self._memory.dirty else tuple(self._memory.out)

    @property
    def state(self) -> State:
        """What is under way for the current id."""
        return self._memory.state

    @property
    def books(self) -> LeaseBooks:
        """What is held now."""
        if self._books is None:
            self._books = self._memory.books
        return self._books

    def waits(self, table_id: int) -> bool:
        """Say whether a `Protect` of the table is not answered yet."""
        claim = self._memory.claims.get(table_id)
        return claim is not None and claim.waiting is not None

    @property
    def next_due(self) -> float | None:
        """When the next `LeaseTick` has something to do."""
        if self._next_due is None:
            stops = self._memory.state in {State.STOPPING, State.STOPPED}
            self._next_due = (None if stops else min(due_times(self._memory), default=None),)
        return self._next_due[0]

    def _fits(self, event: LeasesEvent) -> bool:
        """Check what the table cannot know: whether an answer fits its call, and whose snapshots are asked for."""
        match event:
            case Protect() | Retain():
                strange = next((s for s in event.snapshots if s.bucket.table_id != event.table_id), None)
                if strange is not None:
                    message = f"leases: expected snapshots of table {event.table_id}, found one of {strange.bucket}"
                    raise UsageError(message)
                return True
            case Acquired() | Verified() | Done():
                call = self._memory.calls.get(event.call)
                return 0 < event.call <= self._memory.last_call and (
                    call is None or isinstance(event, ANSWERS[call.kind])
                )
            case CallFailed() | CallUnknown():
                return 0 < event.call <= self._memory.last_call
            case _:
                return True

    def _take(self, event: LeasesEvent) -> None:
        match event:
            case Restored():
                self._restore(event)
            case Protect() | Unprotect() | Retain() | Forsake():
                self._take_need(event)
            case Acquired() | Verified() | Done() | CallFailed() | CallUnknown():
                self._answer(event)
            case CoordinatorChanged() | Renumber():
                if self._memory.state is not State.STOPPING:
                    self._memory.renumber(event.now)
            case LeaseStop():
                self._stop(event)
            case LeaseTick():
                pass
            case _:
                assert_never(event)

    def _take_need(self, event: Protect | Unprotect | Retain | Forsake) -> None:
        """Take what is said of who needs which snapshots."""
        match event:
            case Protect():
                self._protect(event)
            case Unprotect():
                self._end_needs(event.buckets, Need.ROUND)
            case Retain():
                self._retain(event)
            case Forsake():
                self._end_needs(event.buckets, *Need)

    def _restore(self, event: Restored) -> None:
        self._memory.state = State.IDLE
        self._memory.dirty = True
        earlier = (*event.lease.old_ids, (event.lease.lease_id, event.lease.generation))
        while self._memory.lease_id in {lease_id for lease_id, _ in earlier}:
            self._memory.generation += 1
        expires = event.now + self._memory.policy.duration_s
        for lease_id, generation in earlier:
            # Unsettled: the predecessor may have died with a call of its own under way.
            self._memory.old[lease_id] = OldId(lease_id, generation, expires, unsettled=True)
        for snapshot in event.snapshots:
            claim = self._memory.claim(snapshot.bucket.table_id)
            claim.slots[snapshot.bucket] = Slot(snapshot, {Need.ROUND}, covered_until=expires)
            claim.granted.add(snapshot.bucket)

    def _protect(self, event: Protect) -> None:
        if self._memory.state is State.STOPPING:
            self._memory.out.append(NotProtected(event.table_id, frozenset(), "the service stops"))
            return
        self._memory.state = State.IDLE if self._memory.state is State.FRESH else self._memory.state
        claim = self._memory.claim(event.table_id)
        claim.want(event.snapshots)
        claim.retry_at = event.now
        self._memory.dirty = True

    def _retain(self, event: Retain) -> None:
        known = self._memory.claims.get(event.table_id)
        snapshots = event.snapshots
        if self._memory.state is State.STOPPING:  # nothing new is taken, but what is held is held on
            slots = known.slots if known is not None else {}
            snapshots = tuple(s for s in snapshots if s.bucket in slots)
        if known is None and not snapshots:
            return
        self._memory.state = State.IDLE if self._memory.state is State.FRESH else self._memory.state
        claim = self._memory.claim(event.table_id)
        if claim.retain(snapshots):
            claim.retry_at = event.now
            self._memory.tried.discard(event.table_id)
            self._memory.dirty = True

    def _end_needs(self, buckets: Iterable[TableBucket], *needs: Need) -> None:
        by_table: dict[int, set[TableBucket]] = {}
        for bucket in buckets:
            by_table.setdefault(bucket.table_id, set()).add(bucket)
        for table_id, group in by_table.items():
            claim = self._memory.claims.get(table_id)
            if claim is not None and not group.isdisjoint(claim.slots):
                for need in needs:
                    claim.end_need(group, need)
                self._memory.tried.discard(table_id)
                self._memory.dirty = True

    def _stop(self, event: LeaseStop) -> None:
        if self._memory.state is State.FRESH:
            self._memory.state = State.STOPPED
            self._memory.out.append(LeaseStopped())
            return
        self._memory.state = State.STOPPING
        if self._memory.flight is not None and not self._memory.is_lease_call(self._memory.flight):
            self._memory.flight = None  # nobody waits for a verification any more
        for claim in self._memory.claims.values():
            if claim.waiting is not None:
                self._memory.refuse(claim, frozenset(), "the service stops")
        if event.final:
            for claim in self._memory.claims.values():
                claim.let_go(tuple(claim.slots))
            self._memory.renumber(event.now)

    def _answer(self, event: Acquired | Verified | Done | CallFailed | CallUnknown) -> None:
        call = self._memory.calls.pop(event.call, None)
        if call is None:
            self._late(event)
            return
        if isinstance(event, CallUnknown) and call.kind is CallKind.ACQUIRE:
            self._memory.remember(event.call, call)
        self._memory.failures = self._memory.failures + 1 if isinstance(event, CallFailed | CallUnknown) else 0
        if event.call == self._memory.flight:
            self._memory.flight = None
            self._current(call, event)
        elif call.lease_id in self._memory.old and call.kind is not CallKind.VERIFY:
            self._superseded(call, event)

    def _late(self, event: Acquired | Verified | Done | CallFailed | CallUnknown) -> None:
        """Take the answer of a call that was given up as unknown: what it took is dropped, nothing else changes."""
        call = self._memory.unknown.pop(event.call, None)
        if call is None or call.lease_id == self._memory.lease_id or not isinstance(event, Acquired):
            return
        old = self._memory.old.setdefault(
            call.lease_id, OldId(call.lease_id, call.generation, self._memory.expiry(event.now))
        )
        old.expires = max(old.expires, self._memory.expiry(event.now))
        old.unsettled = old.flight is not None
        old.retry_at = event.now
        self._memory.tried.discard(call.lease_id)
        self._memory.dirty = True

    def _superseded(self, call: Call, event: Acquired | Verified | Done | CallFailed | CallUnknown) -> None:
        """Take an answer under an earlier id."""
        old = self._memory.old[call.lease_id]
        old.flight = None
        if call.kind is not CallKind.DROP:
            old.expires = max(old.expires, self._memory.expiry(event.now))  # it may have taken effect only now
            old.unsettled = old.unsettled or isinstance(event, CallUnknown)
        elif isinstance(event, CallFailed | CallUnknown):
            old.failures += 1
            old.retry_at = event.now + self._memory.pause(old.failures)
        elif old.unsettled:
            old.unsettled, old.failures = False, 0
            old.retry_at = event.now + self._memory.policy.retry_most_s
            if self._memory.state is State.STOPPING:
                self._memory.forget(old)
        else:
            self._memory.forget(old)

    def _current(self, call: Call, event: Acquired | Verified | Done | CallFailed | CallUnknown) -> None:
        if self._memory.state is not State.STOPPING:
            self._memory.state = State.IDLE
        match event:
            case Acquired():
                self._acquired(call, event)
            case Verified():
                self._verified(call, event)
            case Done():
                self._released(call)
            case CallFailed():
                self._failed(call, event)
            case CallUnknown():
                self._failed(call, event)
                if call.kind is not CallKind.VERIFY and self._memory.state is not State.STOPPING:
                    self._memory.renumber(event.now, unsettled=True)
            case _:
                assert_never(event)

    def _acquired(self, call: Call, event: Acquired) -> None:
        granted_s = event.protection.until_s
        self._memory.endless = granted_s is None
        self._memory.until = None if granted_s is None else event.now + granted_s
        if call.renewal or self._memory.renew_at is None:
            period = (
                self._memory.policy.duration_s if granted_s is None else min(self._memory.policy.duration_s, granted_s)
            )
            pause = min(period / 3, self._memory.policy.renew_most_s)
            self._memory.renew_at = None if granted_s is None else call.sent_at + pause
        for _, slot in self._memory.unchanged(call):
            slot.standing = Standing.ACQUIRED
        unavailable = event.protection.unavailable
        gone = [s for s in call.snapshots if unavailable.get(s.bucket) == s.snapshot_id]
        self._memory.gone(call, gone, "the source says that it is not available")
        if self._memory.state is not State.STOPPING:
            verify(self._memory, [slot.snapshot for _, slot in self._memory.unchanged(call)], call.tables, event.now)

    def _verified(self, call: Call, event: Verified) -> None:
        for claim, slot in self._memory.unchanged(call):
            claim.failures = 0
            if slot.standing is Standing.ACQUIRED:
                slot.standing = Standing.VERIFIED
            claim.cover_checkpoint(slot)
        self._memory.gone(call, event.missing.intersection(call.snapshots), "the source has cleaned it up")

    def _released(self, call: Call) -> None:
        for table_id in call.tables:
            claim = self._memory.claims[table_id]
            claim.on_server -= call.buckets
            claim.release_failures = 0
            self._memory.dirty = True

    def _failed(self, call: Call, event: CallFailed | CallUnknown) -> None:
        if call.kind is CallKind.RELEASE:
            for claim in self._memory.of(call):
                claim.release_failures += 1
                claim.release_at = event.now + self._memory.pause(claim.release_failures)
            return
        if call.renewal:
            if isinstance(event, CallFailed) and self._memory.state is not State.STOPPING:
                self._memory.renumber(event.now)
            return
        for claim in self._memory.of(call):
            if isinstance(event, CallFailed) and call.kind is CallKind.ACQUIRE:
                claim.on_server -= call.buckets
                self._memory.dirty = True
            claim.failures += 1
            claim.retry_at = event.now + self._memory.pause(claim.failures)
            if claim.waiting is not None and self._concerns(call, claim):
                self._memory.refuse(claim, frozenset(), event.reason)

    def _concerns(self, call: Call, claim: Claim) -> bool:
        """Say whether the call was for what the claim's open question asks for (it may have been asked anew)."""
        asked = claim.waiting or frozenset()
        return any(owner is claim and slot.snapshot.bucket in asked for owner, slot in self._memory.unchanged(call))
