"""The service's lease: what is held, when to renew, what to retry, when to start a new generation.

One machine for each service. Its lease has one id at a time (service, incarnation, generation) and holds at most one
snapshot per bucket. Events about snapshots are about one table, by its id.

Rules (why-leases.md)
* Id and held buckets are persisted BEFORE an acquire is sent.
* Calls run one at a time per lease id; an acquire cancels pending releases of its buckets.
* After an acquire, exactly the snapshots it was for are verified; only then is the round told.
* Acquires (except renewals) and releases are sent table by table: a refusal of one table does not fail the others.
* Renewal: every third of the duration, but at least every five minutes, with the whole list; never an empty acquire.
* A restore, a call of unknown outcome, a renewal that fails, or a change of the source's coordinator starts a new
  generation: persist the new id, acquire everything under it, verify each snapshot, then drop the old id. Calls under
  the new id never wait for calls under the old one.
* A failed release is retried with a growing pause, until the source confirms it or the lease expires. So is a failed
  drop of an old id. If a call under an old id may still take effect, that id is dropped a second time later.
* An id of an earlier start may protect snapshots that a checkpoint needs and that no `Retain` has listed yet. So it is
  dropped only after the checkpoints were read (`CheckpointsRead`) and their snapshots are verified under the current
  id.
* After NotProtected the round holds none of the requested snapshots. `ProtectionLost` reports a snapshot that a
  verification or a renewal shows as gone, or that no new generation acquired before the old lease expired.
* A stop waits for open calls, and tries each remaining release and drop once more.
* A snapshot is held as long as something needs it: a round (`Protect`, `Unprotect`), or the checkpoint that its table's
  next round would resume from (`Retain`), with or without a round. Acquires, verifications, renewals and new
  generations treat both alike. Only a final stop releases everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from lakeward.errors import IllegalEventError, UsageError
from lakeward.machines.leases.calls import ANSWERS, Call, CallKind, RetiredLease
from lakeward.machines.leases.commands import LeasesCommand, LeaseStopped, NotProtected, Persist
from lakeward.machines.leases.events import (
    AbandonLease,
    Acquired,
    CallFailed,
    CallOutcomeUnknown,
    CheckpointsRead,
    CoordinatorChanged,
    Done,
    LeasesEvent,
    LeaseStop,
    LeaseTick,
    Protect,
    Restored,
    Retain,
    StartGeneration,
    Unprotect,
    Verified,
)
from lakeward.machines.leases.planner import due_times, send_what_is_due, verify
from lakeward.machines.leases.state import HeldLeases, LeasesPolicy, LeaseState
from lakeward.machines.leases.table_lease import BucketLease, Need, StatusGuard, TableLease
from lakeward.machines.leases.transitions import TRANSITIONS, CallState
from lakeward.machines.machine_state import next_state

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.model.tables import TableBucket

_MACHINE = "leases"


class Leases:
    """The machine. See the module's rules."""

    def __init__(self, policy: LeasesPolicy, base_id: str) -> None:
        """Start with nothing held, generation 1.

        Args:
            policy: periods.
            base_id: service and incarnation; the lease id is `<base_id>-<generation>`.
        """
        self._state = LeaseState(policy, base_id)
        self._held_leases: HeldLeases | None = None
        self._next_due: tuple[float | None] | None = None
        """Both are cached since the last step, None until first read: they are read more often than steps happen."""

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
        state, before = self._state, self._state.call_state
        if (before, type(event)) not in TRANSITIONS or not self._fits(event):
            raise IllegalEventError(_MACHINE, before.value, event)
        unchanged = state.copy()
        try:
            self._change(event, before)
        except BaseException:
            self._state = unchanged
            raise
        self._held_leases = self._next_due = None
        return (Persist(), *state.commands) if state.changed else tuple(state.commands)

    def _change(self, event: LeasesEvent, before: CallState) -> None:
        """Do what an event that is legal asks for, and what is due after it."""
        state = self._state
        state.commands, state.changed = [], False
        if before is not CallState.STOPPED:
            self._take(event)
            state.expire(event.now)
            send_what_is_due(state, event.now)
        state.call_state = next_state(_MACHINE, TRANSITIONS, before, event, state.guard())
        if state.call_state is CallState.STOPPED and before is not CallState.STOPPED:
            state.commands.append(LeaseStopped())

    @property
    def state(self) -> CallState:
        """What is open under the current id."""
        return self._state.call_state

    @property
    def held_leases(self) -> HeldLeases:
        """The snapshots that are held now."""
        if self._held_leases is None:
            self._held_leases = self._state.held_leases
        return self._held_leases

    def is_waiting(self, table_id: int) -> bool:
        """Return whether a `Protect` of the table is not answered yet."""
        table = self._state.tables.get(table_id)
        return table is not None and table.requested is not None

    @property
    def next_due(self) -> float | None:
        """When the next `LeaseTick` has something to do."""
        if self._next_due is None:
            self._next_due = (None if self._state.stopping else min(due_times(self._state), default=None),)
        return self._next_due[0]

    def _fits(self, event: LeasesEvent) -> bool:
        """Check what the table does not express: an answer must fit its call, and a request must be of one table."""
        match event:
            case Protect() | Retain():
                strange = next((s for s in event.snapshots if s.bucket.table_id != event.table_id), None)
                if strange is not None:
                    message = f"leases: expected snapshots of table {event.table_id}, found one of {strange.bucket}"
                    raise UsageError(message)
                return True
            case Acquired() | Verified() | Done():
                call = self._state.calls.get(event.call)
                return 0 < event.call <= self._state.last_call and (
                    call is None or isinstance(event, ANSWERS[call.kind])
                )
            case CallFailed() | CallOutcomeUnknown():
                return 0 < event.call <= self._state.last_call
            case _:
                return True

    def _take(self, event: LeasesEvent) -> None:
        match event:
            case Restored():
                self._restore(event)
            case Protect() | Unprotect() | Retain() | AbandonLease():
                self._take_need(event)
            case Acquired() | Verified() | Done() | CallFailed() | CallOutcomeUnknown():
                self._answer(event)
            case CoordinatorChanged() | StartGeneration():
                if not self._state.stopping:
                    self._state.start_generation(event)
            case LeaseStop():
                self._stop(event)
            case CheckpointsRead():
                self._state.checkpoints_read = True
            case LeaseTick():
                pass
            case _:
                assert_never(event)

    def _take_need(self, event: Protect | Unprotect | Retain | AbandonLease) -> None:
        """Handle a change of the snapshots that rounds and checkpoints need."""
        match event:
            case Protect():
                self._protect(event)
            case Unprotect():
                self._end_needs(event.buckets, Need.ROUND)
            case Retain():
                self._retain(event)
            case AbandonLease():
                self._end_needs(event.buckets, *Need)

    def _restore(self, event: Restored) -> None:
        self._state.in_use = True
        self._state.checkpoints_read = False
        self._state.changed = True
        earlier = (*event.lease.old_ids, (event.lease.lease_id, event.lease.generation))
        while self._state.lease_id in {lease_id for lease_id, _ in earlier}:
            self._state.generation += 1
        expires = event.now + self._state.policy.duration_s
        for lease_id, generation in earlier:
            # Unsettled: the earlier start may have died with an open call.
            self._state.retired[lease_id] = RetiredLease(lease_id, generation, expires, unsettled=True)
        for snapshot in event.snapshots:
            table = self._state.table(snapshot.bucket.table_id)
            table.leases[snapshot.bucket] = BucketLease(snapshot, {Need.ROUND}, covered_until=expires)
            table.granted.add(snapshot.bucket)

    def _protect(self, event: Protect) -> None:
        if self._state.stopping:
            self._state.commands.append(NotProtected(event.table_id, frozenset(), "the service stops"))
            return
        self._state.in_use = True
        table = self._state.table(event.table_id)
        table.request(event.snapshots)
        table.retry_at = event.now
        self._state.changed = True

    def _retain(self, event: Retain) -> None:
        known = self._state.tables.get(event.table_id)
        snapshots = event.snapshots
        if self._state.stopping:  # nothing new is acquired, but held snapshots stay held
            leases = known.leases if known is not None else {}
            snapshots = tuple(s for s in snapshots if s.bucket in leases)
        if known is None and not snapshots:
            return
        self._state.in_use = True
        table = self._state.table(event.table_id)
        if table.retain(snapshots):
            table.retry_at = event.now
            self._state.tried_while_stopping.discard(event.table_id)
            self._state.changed = True

    def _end_needs(self, buckets: Iterable[TableBucket], *needs: Need) -> None:
        by_table: dict[int, set[TableBucket]] = {}
        for bucket in buckets:
            by_table.setdefault(bucket.table_id, set()).add(bucket)
        for table_id, group in by_table.items():
            table = self._state.tables.get(table_id)
            if table is not None and not group.isdisjoint(table.leases):
                for need in needs:
                    table.end_need(group, need)
                self._state.tried_while_stopping.discard(table_id)
                self._state.changed = True

    def _stop(self, event: LeaseStop) -> None:
        self._state.stopping = True
        if self._state.open_call is not None and not self._state.is_lease_call(self._state.open_call):
            self._state.open_call = None  # no round waits for a verification any more
        for table in self._state.tables.values():
            if table.requested is not None:
                self._state.reject(table, frozenset(), "the service stops")
        if event.final:
            self._state.checkpoints_read = True  # they are released, whatever needs them
            for table in self._state.tables.values():
                table.end_all_needs(tuple(table.leases))
            self._state.start_generation(event)

    def _answer(self, event: Acquired | Verified | Done | CallFailed | CallOutcomeUnknown) -> None:
        call = self._state.calls.pop(event.call, None)
        if call is None:
            self._late_answer(event)
            return
        if isinstance(event, CallOutcomeUnknown) and call.kind is CallKind.ACQUIRE:
            self._state.remember_unknown(event.call, call)
        self._state.failures = self._state.failures + 1 if isinstance(event, CallFailed | CallOutcomeUnknown) else 0
        if event.call == self._state.open_call:
            self._state.open_call = None
            self._answer_under_current_id(call, event)
        elif call.lease_id in self._state.retired and call.kind is not CallKind.VERIFY:
            self._answer_under_retired_id(call, event)

    def _late_answer(self, event: Acquired | Verified | Done | CallFailed | CallOutcomeUnknown) -> None:
        """Handle the late answer of a call of unknown outcome: drop what it acquired; nothing else changes."""
        call = self._state.unknown.pop(event.call, None)
        if call is None or call.lease_id == self._state.lease_id or not isinstance(event, Acquired):
            return
        retired = self._state.retired.setdefault(
            call.lease_id, RetiredLease(call.lease_id, call.generation, self._state.expiry(event.now))
        )
        retired.expires = max(retired.expires, self._state.expiry(event.now))
        retired.unsettled = retired.open_call is not None
        retired.retry_at = event.now
        self._state.tried_while_stopping.discard(call.lease_id)
        self._state.changed = True

    def _answer_under_retired_id(
        self, call: Call, event: Acquired | Verified | Done | CallFailed | CallOutcomeUnknown
    ) -> None:
        """Handle the answer of a call under a retired id."""
        retired = self._state.retired[call.lease_id]
        retired.open_call = None
        if call.kind is not CallKind.DROP:
            # The call may have taken effect only now.
            retired.expires = max(retired.expires, self._state.expiry(event.now))
            retired.unsettled = retired.unsettled or isinstance(event, CallOutcomeUnknown)
        elif isinstance(event, CallFailed | CallOutcomeUnknown):
            retired.failures += 1
            retired.retry_at = event.now + self._state.retry_pause_s(retired.failures)
        elif retired.unsettled:
            retired.unsettled, retired.failures = False, 0
            retired.retry_at = event.now + self._state.policy.retry_most_s
            if self._state.stopping:
                self._state.forget_retired(retired)
        else:
            self._state.forget_retired(retired)

    def _answer_under_current_id(
        self, call: Call, event: Acquired | Verified | Done | CallFailed | CallOutcomeUnknown
    ) -> None:
        match event:
            case Acquired():
                self._acquired(call, event)
            case Verified():
                self._verified(call, event)
            case Done():
                self._released(call)
            case CallFailed():
                self._failed(call, event)
            case CallOutcomeUnknown():
                self._failed(call, event)
                if call.kind is not CallKind.VERIFY and not self._state.stopping:
                    self._state.start_generation(event, unsettled=True)
            case _:
                assert_never(event)

    def _acquired(self, call: Call, event: Acquired) -> None:
        granted_s = event.protection.until_s
        self._state.never_expires = granted_s is None
        self._state.expires_at = None if granted_s is None else event.now + granted_s
        if call.renewal or self._state.renew_at is None:
            period = (
                self._state.policy.duration_s if granted_s is None else min(self._state.policy.duration_s, granted_s)
            )
            pause = min(period / 3, self._state.policy.renew_most_s)
            self._state.renew_at = None if granted_s is None else call.sent_at + pause
        for _, lease in self._state.still_wanted(call):
            lease.move(event, StatusGuard.GRANTED)
        unavailable = event.protection.unavailable
        gone = [s for s in call.snapshots if unavailable.get(s.bucket) == s.snapshot_id]
        self._state.snapshots_gone(call, gone, "the source says that it is not available")
        if not self._state.stopping:
            verify(self._state, [lease.snapshot for _, lease in self._state.still_wanted(call)], call.tables, event.now)

    def _verified(self, call: Call, event: Verified) -> None:
        for table, lease in self._state.still_wanted(call):
            table.failures = 0
            lease.move(event, StatusGuard.PRESENT)
            table.cover_checkpoint(lease)
        self._state.snapshots_gone(call, event.missing.intersection(call.snapshots), "the source has cleaned it up")

    def _released(self, call: Call) -> None:
        for table_id in call.tables:
            table = self._state.tables[table_id]
            table.on_server -= call.buckets
            table.release_failures = 0
            self._state.changed = True

    def _failed(self, call: Call, event: CallFailed | CallOutcomeUnknown) -> None:
        if call.kind is CallKind.RELEASE:
            for table in self._state.tables_of(call):
                table.release_failures += 1
                table.release_at = event.now + self._state.retry_pause_s(table.release_failures)
            return
        if call.renewal:
            if isinstance(event, CallFailed) and not self._state.stopping:
                self._state.start_generation(event)
            return
        for table in self._state.tables_of(call):
            if isinstance(event, CallFailed) and call.kind is CallKind.ACQUIRE:
                table.on_server -= call.buckets
                self._state.changed = True
            table.failures += 1
            table.retry_at = event.now + self._state.retry_pause_s(table.failures)
            if table.requested is not None and self._concerns(call, table):
                self._state.reject(table, frozenset(), event.reason)

    def _concerns(self, call: Call, table: TableLease) -> bool:
        """Return whether the call was for the pending request, and not for an earlier one."""
        asked = table.requested or frozenset()
        return any(owner is table and lease.snapshot.bucket in asked for owner, lease in self._state.still_wanted(call))
