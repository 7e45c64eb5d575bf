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
* Each event is followed by what is due: `CallDue`, drops of retired ids, `StepEnded`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from lakeward.errors import UsageError
from lakeward.machines.leases import messages as m
from lakeward.machines.leases import planner
from lakeward.machines.leases.planner import Commands
from lakeward.machines.leases.state import (
    ANSWERS,
    NEVER,
    NOT_COVERED,
    BucketLease,
    Call,
    CallKind,
    CallState,
    LeasesPolicy,
    LeaseState,
    LeaseStatus,
    Need,
    RetiredLease,
    TableLease,
)
from lakeward.machines.machine import Rule, Rules

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from lakeward.model.tables import KvSnapshot, TableBucket

FRESH, IDLE, ACQUIRING = CallState.FRESH, CallState.IDLE, CallState.ACQUIRING
RENEWING, VERIFYING, RELEASING = CallState.RENEWING, CallState.VERIFYING, CallState.RELEASING
STOPPING, STOPPED = CallState.STOPPING, CallState.STOPPED
Answer = m.Acquired | m.Verified | m.Done | m.CallFailed | m.CallOutcomeUnknown
Failure = m.CallFailed | m.CallOutcomeUnknown
ANSWERED = (m.Acquired, m.Verified, m.Done, m.CallFailed, m.CallOutcomeUnknown)
FAILED = (m.CallFailed, m.CallOutcomeUnknown)
NEW_IDS = (m.CoordinatorChanged, m.StartGeneration)

# --- conditions -----------------------------------------------------------------------------------------------------


def was_made(leases: LeaseState, event: Answer) -> bool:
    """The call was sent at some time; if it is open, this is an answer of its kind."""
    call = leases.calls.get(event.call)
    fits = call is None or isinstance(event, (ANSWERS[call.kind], *FAILED))
    return 0 < event.call <= leases.last_call and fits


def answers_open_call(leases: LeaseState, event: Answer) -> bool:
    """The call is the open one under the current id."""
    return event.call == leases.open_call and was_made(leases, event)


def is_late(leases: LeaseState, event: Answer) -> bool:
    """The call was answered before, or its outcome was unknown."""
    return was_made(leases, event) and event.call not in leases.calls


def acquires_too_late(leases: LeaseState, event: m.Acquired) -> bool:
    """A call of unknown outcome under a retired id has taken effect after all."""
    call = leases.unknown.get(event.call)
    return is_late(leases, event) and call is not None and call.lease_id != leases.lease_id


def is_of_retired_id(leases: LeaseState, event: Answer) -> bool:
    """The call is an acquire or a release that was open when its id was retired."""
    return _is_of(leases, event, CallKind.ACQUIRE, CallKind.RELEASE)


def is_of_drop(leases: LeaseState, event: m.Done | Failure) -> bool:
    """The call drops a retired id."""
    return _is_of(leases, event, CallKind.DROP)


def is_of_first_drop(leases: LeaseState, event: m.Done) -> bool:
    """The id is dropped, and another call under it may still take effect."""
    return is_of_drop(leases, event) and leases.retired[leases.calls[event.call].lease_id].unsettled


def is_given_up(leases: LeaseState, event: m.Verified | Failure) -> bool:
    """A verification that a new id or a stop has made useless."""
    return event.call != leases.open_call and _is_of(leases, event, CallKind.VERIFY)


def _is_of(leases: LeaseState, event: Answer, *kinds: CallKind) -> bool:
    call = leases.calls.get(event.call)
    return call is not None and event.call != leases.open_call and call.kind in kinds and was_made(leases, event)


def is_on_server(leases: LeaseState, _: object) -> bool:
    """The current id may be known to the server."""
    return _open_lease_call(leases) is not None or any(table.on_server for table in leases.tables.values())


def _open_lease_call(leases: LeaseState) -> int | None:
    number = leases.open_call
    return None if number is None or leases.calls[number].kind is CallKind.VERIFY else number


# --- what is needed -------------------------------------------------------------------------------------------------


def restore(leases: LeaseState, event: m.Restored) -> Commands:
    """Continue an earlier start's lease under a new id."""
    leases.checkpoints_read = False
    leases.changed = True
    earlier = (*event.lease.old_ids, (event.lease.lease_id, event.lease.generation))
    while leases.lease_id in {lease_id for lease_id, _ in earlier}:
        leases.generation += 1
    expires = event.now + leases.policy.duration_s
    for lease_id, generation in earlier:
        # Unsettled: the earlier start may have died with an open call.
        leases.put_retired(RetiredLease(lease_id, generation, expires, unsettled=True))
    by_table: dict[int, dict[TableBucket, BucketLease]] = {}
    for snapshot in event.snapshots:
        lease = BucketLease(snapshot, frozenset({Need.ROUND}), covered_until=expires, granted=True)
        by_table.setdefault(snapshot.bucket.table_id, {})[snapshot.bucket] = lease
    for table_id, restored in by_table.items():
        leases.put(TableLease(table_id, restored))
    return ()


def request(leases: LeaseState, event: m.Protect) -> Commands:
    """Request a round's snapshots."""
    table = leases.table(event.table_id).request(event.snapshots)
    leases.put(replace(table, retry_at=event.now))
    return ()


def refuse(_: LeaseState, event: m.Protect) -> Commands:
    """Acquire nothing while the service stops."""
    return (m.NotProtected(event.table_id, frozenset(), "the service stops"),)


def unprotect(leases: LeaseState, event: m.Unprotect) -> Commands:
    """End the need of a round."""
    return _end_needs(leases, event.buckets, Need.ROUND)


def abandon(leases: LeaseState, event: m.AbandonLease) -> Commands:
    """End every need."""
    return _end_needs(leases, event.buckets, *Need)


def _end_needs(leases: LeaseState, buckets: Iterable[TableBucket], *needs: Need) -> Commands:
    by_table: dict[int, set[TableBucket]] = {}
    for bucket in buckets:
        by_table.setdefault(bucket.table_id, set()).add(bucket)
    for table_id, group in by_table.items():
        table = leases.tables.get(table_id)
        if table is not None and not group.isdisjoint(table.leases):
            for need in needs:
                table = table.end_need(group, need)
            leases.put(table)
            leases.retry_while_stopping(table_id)
    return ()


def retain(leases: LeaseState, event: m.Retain) -> Commands:
    """Hold exactly these for the table's checkpoint."""
    table = leases.table(event.table_id)
    after = table.retain(event.snapshots)
    if after.snapshot_ids != table.snapshot_ids:
        after = replace(after, retry_at=event.now)
        leases.retry_while_stopping(event.table_id)
        leases.changed = True
    leases.put(after, changed=False)
    return ()


def retain_what_is_held(leases: LeaseState, event: m.Retain) -> Commands:
    """Acquire nothing new while the service stops."""
    held = leases.table(event.table_id).leases
    return retain(leases, replace(event, snapshots=tuple(s for s in event.snapshots if s.bucket in held)))


def note_checkpoints_read(leases: LeaseState, _: m.CheckpointsRead) -> Commands:
    """Know what checkpoints need."""
    leases.checkpoints_read = True
    return ()


def _reject(leases: LeaseState, table: TableLease, gone: frozenset[KvSnapshot], reason: str) -> Commands:
    """Reject the pending request of a table's round."""
    leases.put(table.reject())
    return (m.NotProtected(table.table_id, gone, reason),)


def _lose(leases: LeaseState, call: Call, gone: Iterable[KvSnapshot], reason: str) -> Commands:
    """Forget snapshots that vanished; report them to the round that requested or reads them, or as lost."""
    by_table: dict[int, set[KvSnapshot]] = {}
    names = {(snapshot.bucket, snapshot.snapshot_id) for snapshot in gone}
    for snapshot in leases.still_wanted(call):
        if (snapshot.bucket, snapshot.snapshot_id) in names:
            by_table.setdefault(snapshot.bucket.table_id, set()).add(snapshot)
    commands: Commands = ()
    for table_id, snapshots in by_table.items():
        asked = frozenset(s for s in snapshots if s.bucket in (leases.tables[table_id].requested or ()))
        lost = frozenset(snapshots - asked)
        if asked:
            commands += _reject(leases, leases.tables[table_id], asked, reason)
        if lost:
            commands += (m.ProtectionLost(table_id, lost, reason),)
        leases.put(leases.tables[table_id].forget_lost([s.bucket for s in snapshots]))
    return commands


# --- generations and stop -------------------------------------------------------------------------------------------


def start_generation(leases: LeaseState, event: m.LeasesEvent, *, unsettled: bool = False) -> Commands:
    """Retire the current id and start a new one; what the old one has acquired is covered until it expires."""
    leases.put_retired(
        RetiredLease(leases.lease_id, leases.generation, leases.expiry(event.now), _open_lease_call(leases), unsettled)
    )
    covered = NEVER if leases.expires_at is None else leases.expires_at
    for table in tuple(leases.tables.values()):
        held = {
            bucket: lease if lease.status is LeaseStatus.WANTED else replace(lease, covered_until=covered)
            for bucket, lease in table.leases.items()
        }
        anew = replace(table, leases=held, on_server=frozenset(), release_at=NOT_COVERED, release_failures=0)
        leases.put(_move(leases, anew, tuple(held), event))
    leases.generation += 1
    leases.open_call = leases.expires_at = leases.renew_at = None
    leases.changed = True
    return ()


def stop(leases: LeaseState, event: m.LeaseStop) -> Commands:
    """Refuse what is requested; drop the lease if the stop is final."""
    if _open_lease_call(leases) is None:
        leases.open_call = None  # no round waits for a verification any more
    commands: Commands = ()
    for table in tuple(leases.tables.values()):
        if table.requested is not None:
            commands += _reject(leases, table, frozenset(), "the service stops")
    if event.final:
        leases.checkpoints_read = True  # they are released, whatever needs them
        for table in tuple(leases.tables.values()):
            leases.put(table.end_all_needs(tuple(table.leases)), changed=False)
        if is_on_server(leases, event):
            start_generation(leases, event)
    return commands


# --- answers --------------------------------------------------------------------------------------------------------


def settle(leases: LeaseState, event: Answer) -> Call:
    """Close a call; return it."""
    call = leases.calls[event.call]
    del leases.calls[event.call]
    if event.call == leases.open_call:
        leases.open_call = None
    if isinstance(event, m.CallOutcomeUnknown) and call.kind is CallKind.ACQUIRE:
        leases.remember_unknown(event.call, call)
    leases.failures = leases.failures + 1 if isinstance(event, Failure) else 0
    return call


def forget_call(leases: LeaseState, event: m.Verified | Failure) -> Commands:
    """Close a call whose answer changes nothing."""
    settle(leases, event)
    return ()


def note_acquired(leases: LeaseState, event: m.Acquired) -> Commands:
    """Note until when the lease lives, and what it holds."""
    return _note_acquired(leases, settle(leases, event), event)


def note_acquired_and_verify(leases: LeaseState, event: m.Acquired) -> Commands:
    """The same; then ask the source whether it still has exactly these."""
    call = settle(leases, event)
    lost = _note_acquired(leases, call, event)
    wanted = tuple(leases.still_wanted(call))
    if not wanted:
        return lost
    return (*lost, *leases.follow(m.SnapshotsAcquired(now=event.now, tables=call.tables, snapshots=wanted)))


def _note_acquired(leases: LeaseState, call: Call, event: m.Acquired) -> Commands:
    granted_s = event.protection.until_s
    leases.never_expires = granted_s is None
    leases.expires_at = None if granted_s is None else event.now + granted_s
    if call.renewal or leases.renew_at is None:
        period = leases.policy.duration_s if granted_s is None else min(leases.policy.duration_s, granted_s)
        pause = min(period / 3, leases.policy.renew_most_s)
        leases.renew_at = None if granted_s is None else call.sent_at + pause
    for table, buckets in _by_table(leases, call):
        leases.put(_move(leases, table, buckets, event), changed=False)
    unavailable = event.protection.unavailable
    gone = [s for s in call.snapshots if unavailable.get(s.bucket) == s.snapshot_id]
    return _lose(leases, call, gone, "the source says that it is not available")


def note_verified(leases: LeaseState, event: m.Verified) -> Commands:
    """Note what the source has, and what it has not."""
    call = settle(leases, event)
    for table, buckets in _by_table(leases, call):
        moved = _move(leases, replace(table, failures=0), buckets, event)
        granted = {bucket: moved.leases[bucket].granted_to_checkpoint() for bucket in buckets}
        leases.put(replace(moved, leases={**moved.leases, **granted}), changed=False)
    return _lose(leases, call, event.missing.intersection(call.snapshots), "the source has cleaned it up")


def _by_table(leases: LeaseState, call: Call) -> list[tuple[TableLease, list[TableBucket]]]:
    """Return what the call was for and is still wanted."""
    found: dict[int, list[TableBucket]] = {}
    for snapshot in leases.still_wanted(call):
        found.setdefault(snapshot.bucket.table_id, []).append(snapshot.bucket)
    return [(leases.tables[table_id], buckets) for table_id, buckets in found.items()]


def _move(leases: LeaseState, table: TableLease, buckets: Collection[TableBucket], event: m.LeasesEvent) -> TableLease:
    """Move the leases of these buckets."""
    statuses = {bucket: table.leases[bucket].status for bucket in buckets}
    for bucket in buckets:
        BUCKET_RULES.step(leases, statuses, bucket, event)
    moved = {bucket: replace(table.leases[bucket], status=status) for bucket, status in statuses.items()}
    return replace(table, leases={**table.leases, **moved})


def note_released(leases: LeaseState, event: m.Done) -> Commands:
    """The server does not hold them any more."""
    call = settle(leases, event)
    for table in leases.tables_of(call):
        leases.put(replace(table, on_server=table.on_server - call.buckets, release_failures=0))
    return ()


def fail_release(leases: LeaseState, event: Failure) -> Commands:
    """Try again after a growing pause."""
    for table in leases.tables_of(settle(leases, event)):
        failures = table.release_failures + 1
        release_at = event.now + leases.retry_pause_s(failures)
        leases.put(replace(table, release_failures=failures, release_at=release_at), changed=False)
    return ()


def fail_acquire(leases: LeaseState, event: m.CallFailed) -> Commands:
    """Nothing was acquired: try again after a growing pause, and refuse the request."""
    call = settle(leases, event)
    for table in leases.tables_of(call):
        leases.put(replace(table, on_server=table.on_server - call.buckets))
    return _retry(leases, call, event)


def fail_call(leases: LeaseState, event: Failure) -> Commands:
    """Try again after a growing pause, and refuse the request that the call was for."""
    return _retry(leases, settle(leases, event), event)


def _retry(leases: LeaseState, call: Call, event: Failure) -> Commands:
    commands: Commands = ()
    for table in leases.tables_of(call):
        failures = table.failures + 1
        paused = replace(table, failures=failures, retry_at=event.now + leases.retry_pause_s(failures))
        leases.put(paused, changed=False)
        asked = table.requested or frozenset()
        if any(snapshot.bucket in asked for snapshot in leases.still_wanted(call)):
            commands += _reject(leases, paused, frozenset(), event.reason)
    return commands


def replace_id(leases: LeaseState, event: m.CallFailed) -> Commands:
    """Acquire everything under a new id: the renewal failed."""
    settle(leases, event)
    return start_generation(leases, event) if is_on_server(leases, event) else ()


def replace_unsettled_id(leases: LeaseState, event: m.CallOutcomeUnknown) -> Commands:
    """The same, after a renewal of unknown outcome."""
    settle(leases, event)
    return start_generation(leases, event, unsettled=True)


def fail_and_replace_id(leases: LeaseState, event: m.CallOutcomeUnknown) -> Commands:
    """The same, after an acquire of unknown outcome; refuse the request."""
    return (*fail_call(leases, event), *start_generation(leases, event, unsettled=True))


def fail_release_and_replace_id(leases: LeaseState, event: m.CallOutcomeUnknown) -> Commands:
    """The same, after a release of unknown outcome."""
    return (*fail_release(leases, event), *start_generation(leases, event, unsettled=True))


def fail_while_stopping(leases: LeaseState, event: Failure) -> Commands:
    """Wait for it no longer; start no new id."""
    call = leases.calls[event.call]
    if call.kind is CallKind.RELEASE:
        return fail_release(leases, event)
    if call.renewal:
        settle(leases, event)
        return ()
    return fail_acquire(leases, event) if isinstance(event, m.CallFailed) else fail_call(leases, event)


def note_old_call(leases: LeaseState, event: Answer) -> Commands:
    """A call under a retired id has ended: it may have taken effect only now."""
    retired = leases.retired[settle(leases, event).lease_id]
    leases.put_retired(
        replace(
            retired,
            open_call=None,
            expires=max(retired.expires, leases.expiry(event.now)),
            unsettled=retired.unsettled or isinstance(event, m.CallOutcomeUnknown),
        )
    )
    return ()


def note_dropped(leases: LeaseState, event: m.Done) -> Commands:
    """Forget the id."""
    leases.forget_retired(leases.retired[settle(leases, event).lease_id])
    return ()


def drop_later(leases: LeaseState, event: m.Done) -> Commands:
    """Drop the id a second time, when no call under it may take effect any more."""
    retired = leases.retired[settle(leases, event).lease_id]
    retry_at = event.now + leases.policy.retry_most_s
    leases.put_retired(replace(retired, open_call=None, unsettled=False, failures=0, retry_at=retry_at))
    return ()


def retry_drop(leases: LeaseState, event: Failure) -> Commands:
    """Try again after a growing pause."""
    retired = leases.retired[settle(leases, event).lease_id]
    failures = retired.failures + 1
    retry_at = event.now + leases.retry_pause_s(failures)
    leases.put_retired(replace(retired, open_call=None, failures=failures, retry_at=retry_at))
    return ()


def drop_what_came_late(leases: LeaseState, event: m.Acquired) -> Commands:
    """Drop what was acquired under a retired id after all."""
    call = leases.unknown[event.call]
    del leases.unknown[event.call]
    expires = leases.expiry(event.now)
    retired = leases.retired.get(call.lease_id) or RetiredLease(call.lease_id, call.generation, expires)
    leases.put_retired(
        replace(
            retired,
            expires=max(retired.expires, expires),
            unsettled=retired.open_call is not None,
            retry_at=event.now,
        )
    )
    leases.retry_while_stopping(call.lease_id)
    leases.changed = True
    return ()


def forget_late_answer(leases: LeaseState, event: Answer) -> Commands:
    """Expect no other answer of the call."""
    leases.unknown.drop(event.call)
    return ()


BUCKET_RULES: Rules[LeaseState, m.LeasesCommand] = Rules(
    "bucket_leases",
    LeaseStatus,
    Rule(tuple(LeaseStatus), m.Acquired, to=LeaseStatus.ACQUIRED),
    Rule(LeaseStatus.ACQUIRED, m.Verified, to=LeaseStatus.VERIFIED),
    Rule(LeaseStatus.WANTED, m.Verified),  # it was released and requested again meanwhile
    Rule(tuple(LeaseStatus), (*NEW_IDS, m.CallFailed, m.CallOutcomeUnknown), to=LeaseStatus.WANTED),
)
CALLING = (ACQUIRING, RENEWING, VERIFYING, RELEASING)
IN_USE = (IDLE, *CALLING)
RUNNING = (*IN_USE, STOPPING)
RULES: Rules[LeaseState, m.LeasesCommand] = Rules(
    "leases",
    CallState,
    # What is needed.
    Rule(FRESH, m.Restored, to=IDLE, do=restore),
    Rule(FRESH, m.Protect, to=IDLE, do=request),
    Rule(IN_USE, m.Protect, do=request),
    Rule(STOPPING, m.Protect, do=refuse),
    Rule(FRESH, m.Retain, when=lambda _, event: not event.snapshots),
    Rule(FRESH, m.Retain, to=IDLE, do=retain),
    Rule(IN_USE, m.Retain, do=retain),
    Rule(STOPPING, m.Retain, do=retain_what_is_held),
    Rule(RUNNING, m.Unprotect, do=unprotect),
    Rule(RUNNING, m.AbandonLease, do=abandon),
    Rule(RUNNING, m.CheckpointsRead, do=note_checkpoints_read),
    Rule(FRESH, (m.Unprotect, m.AbandonLease, m.CheckpointsRead)),
    # Another id.
    Rule(IN_USE, NEW_IDS, when=is_on_server, to=IDLE, do=start_generation),
    Rule((FRESH, IDLE, STOPPING), NEW_IDS),
    # Answers of the open call.
    Rule((ACQUIRING, RENEWING), m.Acquired, when=answers_open_call, to=IDLE, do=note_acquired_and_verify),
    Rule(VERIFYING, m.Verified, when=answers_open_call, to=IDLE, do=note_verified),
    Rule(RELEASING, m.Done, when=answers_open_call, to=IDLE, do=note_released),
    Rule(ACQUIRING, m.CallFailed, when=answers_open_call, to=IDLE, do=fail_acquire),
    Rule(ACQUIRING, m.CallOutcomeUnknown, when=answers_open_call, to=IDLE, do=fail_and_replace_id),
    Rule(RENEWING, m.CallFailed, when=answers_open_call, to=IDLE, do=replace_id),
    Rule(RENEWING, m.CallOutcomeUnknown, when=answers_open_call, to=IDLE, do=replace_unsettled_id),
    Rule(VERIFYING, FAILED, when=answers_open_call, to=IDLE, do=fail_call),
    Rule(RELEASING, m.CallFailed, when=answers_open_call, to=IDLE, do=fail_release),
    Rule(RELEASING, m.CallOutcomeUnknown, when=answers_open_call, to=IDLE, do=fail_release_and_replace_id),
    Rule(STOPPING, m.Acquired, when=answers_open_call, do=note_acquired),
    Rule(STOPPING, m.Done, when=answers_open_call, do=note_released),
    Rule(STOPPING, FAILED, when=answers_open_call, do=fail_while_stopping),
    # Other answers.
    Rule(IN_USE, m.Done, when=is_of_first_drop, do=drop_later),
    Rule(RUNNING, m.Done, when=is_of_drop, do=note_dropped),
    Rule(RUNNING, FAILED, when=is_of_drop, do=retry_drop),
    Rule(RUNNING, (m.Acquired, m.Done, *FAILED), when=is_of_retired_id, do=note_old_call),
    Rule(RUNNING, (m.Verified, *FAILED), when=is_given_up, do=forget_call),
    Rule(RUNNING, m.Acquired, when=acquires_too_late, do=drop_what_came_late),
    Rule(RUNNING, ANSWERED, when=is_late, do=forget_late_answer),
    # The next call.
    Rule((FRESH, *RUNNING), m.LeaseTick),
    Rule(IDLE, m.SnapshotsAcquired, to=VERIFYING, do=planner.verify),
    Rule(IDLE, m.CallDue, when=planner.renewal_is_due, to=RENEWING, do=planner.renew),
    Rule(IDLE, m.CallDue, when=planner.verification_is_due, to=VERIFYING, do=planner.verify_next),
    Rule(IDLE, m.CallDue, when=planner.acquire_is_due, to=ACQUIRING, do=planner.acquire_next),
    Rule(IDLE, m.CallDue, when=planner.release_is_due, to=RELEASING, do=planner.release_next),
    Rule(STOPPING, m.CallDue, when=planner.release_is_left, do=planner.release_next),
    Rule((FRESH, *RUNNING), m.CallDue),
    # The end.
    Rule((FRESH, *RUNNING), m.LeaseStop, to=STOPPING, do=stop),
    Rule(
        STOPPING,
        m.StepEnded,
        when=lambda leases, _: not leases.lease_calls_open(),
        to=STOPPED,
        then=(m.LeaseStopped(),),
    ),
    Rule((FRESH, *RUNNING), m.StepEnded),
    Rule(STOPPED, ANSWERED, when=was_made),
    Rule(STOPPED, (m.Unprotect, m.AbandonLease, m.Retain, m.CheckpointsRead, m.CoordinatorChanged, m.LeaseTick)),
)


class Leases(LeaseState):
    """The machine. See the module's rules."""

    rules = RULES

    def __init__(self, policy: LeasesPolicy, base_id: str) -> None:
        """Start with nothing held; `base_id` is service and incarnation."""
        super().__init__(policy, base_id)
        self._next_due: tuple[float | None] | None = None
        """Kept since the last step, None until first read: it is read more often than steps happen."""

    @property
    def next_due(self) -> float | None:
        """When the next `LeaseTick` has something to do."""
        if self._next_due is None:
            self._next_due = (None if self.stopping else min(planner.due_times(self), default=None),)
        return self._next_due[0]

    def take(self, event: m.LeasesEvent) -> tuple[m.LeasesCommand, ...]:
        """Do what an event asks for, and what is due after it.

        Raises:
            UsageError: a round asks for another table's snapshots; nothing was changed.
        """
        self.changed = False
        self._held_leases = self._next_due = None
        was_stopped = self.phase is STOPPED
        commands = self.follow(event)
        if isinstance(event, m.Protect | m.Retain):
            strange = next((s for s in event.snapshots if s.bucket.table_id != event.table_id), None)
            if strange is not None:
                message = f"leases: expected snapshots of table {event.table_id}, found one of {strange.bucket}"
                raise UsageError(message)
        if was_stopped:
            return commands
        commands += planner.expire(self, event.now)
        commands += planner.grant(self)
        commands += self.follow(m.CallDue(now=event.now))
        commands += planner.drop_retired(self, event.now)
        commands += self.follow(m.StepEnded())
        return (m.Persist(), *commands) if self.changed else commands
