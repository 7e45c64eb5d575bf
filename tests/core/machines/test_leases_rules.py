"""The rules of the lease machine, one by one."""

from __future__ import annotations

import itertools
import sys

import pytest

from lakeward.errors import UsageError
from lakeward.machines.leases import (
    AbandonLease,
    Acquired,
    CallAcquire,
    CallDrop,
    CallFailed,
    CallOutcomeUnknown,
    CallRelease,
    CallState,
    CallVerify,
    CheckpointsRead,
    CoordinatorChanged,
    Done,
    Leases,
    LeasesPolicy,
    LeaseStop,
    LeaseStopped,
    LeaseTick,
    NotProtected,
    Persist,
    Protect,
    Protected,
    ProtectionLost,
    Restored,
    Retain,
    Unprotect,
    Verified,
)
from lakeward.model.leases import Protection, RestoredLease
from lakeward.model.tables import KvSnapshot, TableBucket

A, B = TableBucket(1, None, 0), TableBucket(2, None, 0)
SNAP_A, SNAP_B = KvSnapshot(A, 5, 50), KvSnapshot(B, 6, 60)
NONE: frozenset[KvSnapshot] = frozenset()
GRANTED = Protection(600.0)


def _fresh() -> Leases:
    return Leases(LeasesPolicy(duration_s=600.0), "svc-1-aa")


def _holding() -> Leases:
    """Table 1 holds snapshot 5 under generation 1; calls 1 and 2 are settled."""
    machine = _fresh()
    machine.step(Protect(now=0.0, table_id=1, snapshots=(SNAP_A,)))
    machine.step(Acquired(now=0.0, call=1, protection=GRANTED))
    machine.step(Verified(now=0.0, call=2, missing=NONE))
    return machine


def test_a_round_is_told_after_persist_acquire_and_verify() -> None:
    machine = _fresh()

    asked = machine.step(Protect(now=0.0, table_id=1, snapshots=(SNAP_A,)))
    acquired = machine.step(Acquired(now=1.0, call=1, protection=GRANTED))
    verified = machine.step(Verified(now=2.0, call=2, missing=NONE))

    assert asked == (Persist(), CallAcquire(1, "svc-1-aa-1", 1, {A: 5}))
    assert acquired == (CallVerify(2, (SNAP_A,)),)
    assert verified == (Protected(1),)


def test_a_round_without_snapshots_is_protected_at_once() -> None:
    assert Protected(1) in _fresh().step(Protect(now=0.0, table_id=1, snapshots=()))


def test_a_snapshot_that_is_gone_is_told_and_given_back() -> None:
    machine = _fresh()
    machine.step(Protect(now=0.0, table_id=1, snapshots=(SNAP_A,)))
    machine.step(Acquired(now=0.0, call=1, protection=GRANTED))

    answer = machine.step(Verified(now=0.0, call=2, missing=frozenset({SNAP_A})))

    assert NotProtected(1, frozenset({SNAP_A}), "the source has cleaned it up") in answer
    assert CallRelease(3, "svc-1-aa-1", 1, frozenset({A})) in answer


def test_an_unavailable_snapshot_is_not_even_verified() -> None:
    machine = _fresh()
    machine.step(Protect(now=0.0, table_id=1, snapshots=(SNAP_A,)))

    answer = machine.step(Acquired(now=0.0, call=1, protection=Protection(600.0, {A: 5})))

    assert [type(command) for command in answer] == [Persist, NotProtected, CallRelease]


def test_a_refused_acquire_fails_its_round_alone() -> None:
    machine = _holding()
    machine.step(Protect(now=1.0, table_id=2, snapshots=(SNAP_B,)))

    answer = machine.step(CallFailed(now=1.0, call=3, reason="table 2 is unknown"))

    assert answer == (Persist(), NotProtected(2, NONE, "table 2 is unknown"))
    assert machine.held_leases.held == {A: 5}


def test_the_whole_list_is_renewed_every_third_of_the_duration() -> None:
    machine = _holding()
    assert machine.next_due == 200.0

    renewal = machine.step(LeaseTick(now=200.0))
    check = machine.step(Acquired(now=200.0, call=3, protection=GRANTED))
    machine.step(Verified(now=200.0, call=4, missing=NONE))

    assert renewal == (CallAcquire(3, "svc-1-aa-1", 1, {A: 5}),)
    assert check == (CallVerify(4, (SNAP_A,)),)
    assert machine.next_due == 400.0


def test_a_long_lease_is_renewed_so_often_that_nearly_all_of_it_is_left_at_any_moment() -> None:
    hours = 3600.0
    machine = Leases(LeasesPolicy(duration_s=6 * hours), "svc-1-aa")
    granted = Protection(6 * hours)
    asked = machine.step(Protect(now=0.0, table_id=1, snapshots=(SNAP_A,)))
    expiry, now, least_left = 0.0, 0.0, 6 * hours
    while now < 24 * hours:
        for command in asked:
            if isinstance(command, CallAcquire):
                expiry = now + 6 * hours
                asked = machine.step(Acquired(now=now, call=command.call, protection=granted))
        for command in asked:
            if isinstance(command, CallVerify):
                machine.step(Verified(now=now, call=command.call, missing=NONE))
        assert machine.next_due is not None
        now = machine.next_due
        least_left = min(least_left, expiry - now)
        asked = machine.step(LeaseTick(now=now))

    assert least_left == 6 * hours - 300


def test_nothing_is_renewed_where_nothing_runs_out() -> None:
    machine = _fresh()
    machine.step(Protect(now=0.0, table_id=1, snapshots=(SNAP_A,)))
    machine.step(Acquired(now=0.0, call=1, protection=Protection(None, protects=False)))
    machine.step(Verified(now=0.0, call=2, missing=NONE))

    assert machine.next_due is None


def test_a_failed_renewal_starts_a_generation_and_drops_the_old_id_last() -> None:
    machine = _holding()
    machine.step(LeaseTick(now=200.0))

    failed = machine.step(CallFailed(now=200.0, call=3, reason="refused"))
    machine.step(Acquired(now=200.0, call=4, protection=GRANTED))
    verified = machine.step(Verified(now=200.0, call=5, missing=NONE))

    assert failed == (Persist(), CallAcquire(4, "svc-1-aa-2", 2, {A: 5}))
    assert verified == (CallDrop(6, "svc-1-aa-1", 1),)


def test_a_call_of_unknown_outcome_fails_its_round_and_moves_the_others() -> None:
    machine = _holding()
    machine.step(Protect(now=1.0, table_id=2, snapshots=(SNAP_B,)))

    answer = machine.step(CallOutcomeUnknown(now=31.0, call=3, reason="no answer"))

    assert answer == (Persist(), NotProtected(2, NONE, "no answer"), CallAcquire(4, "svc-1-aa-2", 2, {A: 5}))


def test_an_acquire_that_lands_late_is_dropped_again() -> None:
    machine = _fresh()
    machine.step(Protect(now=0.0, table_id=1, snapshots=(SNAP_A,)))
    machine.step(CallOutcomeUnknown(now=30.0, call=1, reason="no answer"))
    machine.step(Done(now=31.0, call=2))
    machine.step(LeaseTick(now=91.0))
    machine.step(Done(now=91.0, call=3))
    assert machine.held_leases.old_ids == ()

    late = machine.step(Acquired(now=500.0, call=1, protection=GRANTED))

    assert late == (Persist(), CallDrop(4, "svc-1-aa-1", 1))


def test_an_id_that_was_taken_late_is_remembered_for_as_long_as_it_lives() -> None:
    machine = _holding()
    machine.step(LeaseTick(now=200.0))
    machine.step(CoordinatorChanged(now=200.0))
    machine.step(CallOutcomeUnknown(now=230.0, call=3, reason="no answer"))

    machine.step(Acquired(now=700.0, call=3, protection=GRANTED))
    machine.step(LeaseTick(now=1200.0))

    assert ("svc-1-aa-1", 1) in machine.held_leases.old_ids


def test_calls_under_the_new_id_do_not_wait_for_the_old_one_and_its_drop_does() -> None:
    machine = _holding()
    machine.step(LeaseTick(now=200.0))

    changed = machine.step(CoordinatorChanged(now=201.0))
    machine.step(Acquired(now=202.0, call=4, protection=GRANTED))
    verified = machine.step(Verified(now=203.0, call=5, missing=NONE))
    settled = machine.step(Acquired(now=204.0, call=3, protection=GRANTED))

    assert changed == (Persist(), CallAcquire(4, "svc-1-aa-2", 2, {A: 5}))
    assert verified == ()
    assert settled == (CallDrop(6, "svc-1-aa-1", 1),)


def test_what_cannot_be_taken_over_before_the_old_lease_runs_out_is_lost() -> None:
    machine = _holding()
    machine.step(CoordinatorChanged(now=100.0))
    machine.step(CallFailed(now=100.0, call=3, reason="down"))
    told: list[object] = []
    while not told:
        now = machine.next_due
        assert now is not None
        assert now <= 600.0
        for command in machine.step(LeaseTick(now=now)):
            if isinstance(command, CallAcquire):
                machine.step(CallFailed(now=now, call=command.call, reason="down"))
            elif isinstance(command, ProtectionLost):
                told.append(command)

    assert told == [ProtectionLost(1, frozenset({SNAP_A}), "the lease ran out before it could be taken anew")]
    assert machine.held_leases.held == {}


def test_a_snapshot_that_a_renewal_shows_as_gone_is_lost() -> None:
    machine = _holding()
    machine.step(LeaseTick(now=200.0))
    machine.step(Acquired(now=200.0, call=3, protection=GRANTED))

    answer = machine.step(Verified(now=200.0, call=4, missing=frozenset({SNAP_A})))

    assert ProtectionLost(1, frozenset({SNAP_A}), "the source has cleaned it up") in answer


def test_a_failed_release_is_tried_again_with_a_growing_pause() -> None:
    machine = _holding()
    machine.step(Unprotect(now=0.0, buckets=frozenset({A})))
    now, pauses = 0.0, []
    for call in range(3, 9):
        machine.step(CallFailed(now=now, call=call, reason="down"))
        assert machine.held_leases.releasing == {A}
        assert machine.next_due is not None
        pauses.append(machine.next_due - now)
        now = machine.next_due
        machine.step(LeaseTick(now=now))

    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]


def test_asking_again_cancels_a_pending_release() -> None:
    machine = _holding()
    machine.step(Unprotect(now=0.0, buckets=frozenset({A})))
    machine.step(CallFailed(now=0.0, call=3, reason="down"))

    again = machine.step(Protect(now=0.5, table_id=1, snapshots=(SNAP_A,)))

    assert again == (Persist(), CallAcquire(4, "svc-1-aa-1", 1, {A: 5}))
    assert machine.held_leases.releasing == frozenset()


def test_a_taken_over_snapshot_is_persisted_again_before_each_try() -> None:
    machine = _holding()
    machine.step(CoordinatorChanged(now=100.0))
    machine.step(CallFailed(now=100.0, call=3, reason="the state could not be written"))

    again = machine.step(LeaseTick(now=101.0))

    assert again == (Persist(), CallAcquire(4, "svc-1-aa-2", 2, {A: 5}))


def test_a_bucket_moves_to_another_snapshot_by_one_acquire() -> None:
    machine = _holding()

    moved = machine.step(Protect(now=1.0, table_id=1, snapshots=(KvSnapshot(A, 9, 90),)))

    assert moved == (Persist(), CallAcquire(3, "svc-1-aa-1", 1, {A: 9}))


def test_a_restored_lease_is_taken_over_verified_and_then_dropped() -> None:
    machine = _fresh()
    lease = RestoredLease("svc-0-aa-3", 3, {A: 5}, (("svc-0-aa-2", 2),))

    restored = machine.step(Restored(now=0.0, lease=lease, snapshots=(SNAP_A,)))
    machine.step(Acquired(now=0.0, call=1, protection=GRANTED))
    machine.step(CheckpointsRead(now=0.0))
    verified = machine.step(Verified(now=0.0, call=2, missing=NONE))

    assert restored == (Persist(), CallAcquire(1, "svc-1-aa-1", 1, {A: 5}))
    assert verified == (CallDrop(3, "svc-0-aa-2", 2), CallDrop(4, "svc-0-aa-3", 3))


def test_an_id_of_an_earlier_start_stays_until_what_checkpoints_need_is_known_and_verified() -> None:
    machine = _fresh()
    lease = RestoredLease("svc-0-aa-3", 3, {}, ())

    restored = machine.step(Restored(now=0.0, lease=lease, snapshots=()))
    retained = machine.step(Retain(now=0.0, table_id=1, snapshots=(SNAP_A,)))
    read = machine.step(CheckpointsRead(now=0.0))
    acquired = machine.step(Acquired(now=0.0, call=1, protection=GRANTED))
    verified = machine.step(Verified(now=0.0, call=2, missing=NONE))

    assert restored == (Persist(),)
    assert retained == (Persist(), CallAcquire(1, "svc-1-aa-1", 1, {A: 5}))
    assert read == ()
    assert acquired == (CallVerify(2, (SNAP_A,)),)
    assert verified == (CallDrop(3, "svc-0-aa-3", 3),)


def test_an_id_of_an_earlier_start_goes_once_it_is_known_that_no_checkpoint_needs_anything() -> None:
    machine = _fresh()
    machine.step(Restored(now=0.0, lease=RestoredLease("svc-0-aa-3", 3, {}, ()), snapshots=()))

    assert machine.step(CheckpointsRead(now=1.0)) == (CallDrop(1, "svc-0-aa-3", 3),)


def test_a_stop_before_the_checkpoints_were_read_leaves_the_earlier_id_to_the_next_start() -> None:
    machine = _fresh()
    machine.step(Restored(now=0.0, lease=RestoredLease("svc-0-aa-3", 3, {}, ()), snapshots=()))

    assert machine.step(LeaseStop(now=1.0, final=False)) == (LeaseStopped(),)
    assert machine.held_leases.old_ids == (("svc-0-aa-3", 3),)


def test_a_final_stop_before_the_checkpoints_were_read_drops_the_earlier_id() -> None:
    machine = _fresh()
    machine.step(Restored(now=0.0, lease=RestoredLease("svc-0-aa-3", 3, {}, ()), snapshots=()))

    assert machine.step(LeaseStop(now=1.0, final=True)) == (CallDrop(1, "svc-0-aa-3", 3),)


def test_a_round_finds_what_was_restored_for_it_protected_at_once() -> None:
    machine = _fresh()
    machine.step(Restored(now=0.0, lease=RestoredLease("svc-0-aa-3", 3, {A: 5}), snapshots=(KvSnapshot(A, 5, 0),)))
    machine.step(Acquired(now=0.0, call=1, protection=GRANTED))
    machine.step(Verified(now=0.0, call=2, missing=NONE))

    assert Protected(1) in machine.step(Protect(now=1.0, table_id=1, snapshots=(SNAP_A,)))


def test_a_stop_keeps_what_is_held_and_releases_what_is_not_needed() -> None:
    machine = _holding()
    machine.step(Protect(now=1.0, table_id=2, snapshots=(SNAP_B,)))
    machine.step(Acquired(now=1.0, call=3, protection=GRANTED))
    machine.step(Verified(now=1.0, call=4, missing=NONE))
    machine.step(Unprotect(now=1.0, buckets=frozenset({B})))

    stopping = machine.step(LeaseStop(now=2.0, final=False))
    stopped = machine.step(Done(now=3.0, call=5))

    assert stopping == ()
    assert stopped == (Persist(), LeaseStopped())
    assert machine.held_leases.held == {A: 5}


def test_a_final_stop_drops_the_lease() -> None:
    machine = _holding()

    stopping = machine.step(LeaseStop(now=2.0, final=True))
    stopped = machine.step(Done(now=3.0, call=3))

    assert stopping == (Persist(), CallDrop(3, "svc-1-aa-1", 1))
    assert stopped == (Persist(), LeaseStopped())


def test_a_stop_does_not_wait_for_a_dead_server_and_keeps_the_books() -> None:
    machine = _holding()
    machine.step(Unprotect(now=0.0, buckets=frozenset({A})))

    machine.step(LeaseStop(now=2.0, final=False))
    stopped = machine.step(CallFailed(now=3.0, call=3, reason="down"))
    if machine.state is CallState.STOPPING:
        stopped = machine.step(CallFailed(now=4.0, call=4, reason="down"))

    assert LeaseStopped() in stopped
    assert machine.held_leases.releasing == {A}


def test_a_stop_waits_for_no_verification() -> None:
    machine = _holding()
    machine.step(LeaseTick(now=200.0))
    machine.step(Acquired(now=200.0, call=3, protection=GRANTED))
    assert machine.state is CallState.VERIFYING

    assert machine.step(LeaseStop(now=200.0, final=False)) == (LeaseStopped(),)
    assert machine.held_leases.held == {A: 5}


def test_a_stop_refuses_who_still_waits() -> None:
    machine = _fresh()
    machine.step(Protect(now=0.0, table_id=1, snapshots=(SNAP_A,)))

    assert NotProtected(1, NONE, "the service stops") in machine.step(LeaseStop(now=1.0, final=False))


def _kept() -> Leases:
    """As `_holding`, and a checkpoint needs the same snapshot."""
    machine = _holding()
    machine.step(Retain(now=1.0, table_id=1, snapshots=(SNAP_A,)))
    return machine


def test_what_a_checkpoint_needs_is_held_after_its_round() -> None:
    machine = _kept()

    assert machine.step(Unprotect(now=2.0, buckets=frozenset({A}))) == (Persist(),)
    assert machine.held_leases.held == {A: 5}
    assert machine.held_leases.for_checkpoints == {A}


def test_what_a_round_reads_is_held_after_its_checkpoint() -> None:
    machine = _kept()

    assert machine.step(Retain(now=2.0, table_id=1, snapshots=())) == ()
    assert (machine.held_leases.held, machine.held_leases.for_checkpoints) == ({A: 5}, frozenset())


def test_what_neither_a_round_nor_a_checkpoint_needs_is_released() -> None:
    machine = _kept()
    machine.step(Unprotect(now=2.0, buckets=frozenset({A})))

    released = machine.step(Retain(now=3.0, table_id=1, snapshots=()))

    assert released == (Persist(), CallRelease(3, "svc-1-aa-1", 1, frozenset({A})))


def test_a_newer_checkpoint_lets_go_what_it_no_longer_needs() -> None:
    other = KvSnapshot(TableBucket(1, None, 1), 6, 60)
    machine = _fresh()
    machine.step(Retain(now=0.0, table_id=1, snapshots=(SNAP_A, other)))
    machine.step(Acquired(now=0.0, call=1, protection=GRANTED))
    machine.step(Verified(now=0.0, call=2, missing=NONE))

    assert CallRelease(3, "svc-1-aa-1", 1, frozenset({A})) in machine.step(
        Retain(now=1.0, table_id=1, snapshots=(other,))
    )


def test_what_a_checkpoint_needs_is_acquired_where_nothing_of_the_lease_was_kept() -> None:
    asked = _fresh().step(Retain(now=0.0, table_id=1, snapshots=(SNAP_A,)))

    assert asked == (Persist(), CallAcquire(1, "svc-1-aa-1", 1, {A: 5}))


def test_what_a_checkpoint_needs_is_renewed_and_taken_over_like_everything_else() -> None:
    machine = _kept()
    machine.step(Unprotect(now=2.0, buckets=frozenset({A})))

    assert machine.step(LeaseTick(now=200.0)) == (CallAcquire(3, "svc-1-aa-1", 1, {A: 5}),)
    assert machine.step(CoordinatorChanged(now=201.0)) == (Persist(), CallAcquire(4, "svc-1-aa-2", 2, {A: 5}))


def test_a_checkpoint_is_told_that_its_snapshot_is_gone() -> None:
    machine = _fresh()
    machine.step(Retain(now=0.0, table_id=1, snapshots=(SNAP_A,)))
    machine.step(Acquired(now=0.0, call=1, protection=GRANTED))

    answer = machine.step(Verified(now=0.0, call=2, missing=frozenset({SNAP_A})))

    assert ProtectionLost(1, frozenset({SNAP_A}), "the source has cleaned it up") in answer
    assert machine.held_leases.held == {}


def test_a_round_that_is_refused_takes_nothing_from_its_checkpoint() -> None:
    machine = _fresh()
    machine.step(Retain(now=0.0, table_id=1, snapshots=(SNAP_A,)))
    machine.step(Protect(now=0.0, table_id=1, snapshots=(SNAP_A,)))

    answer = machine.step(CallFailed(now=0.0, call=1, reason="refused"))

    assert NotProtected(1, NONE, "refused") in answer
    assert machine.held_leases.held == {A: 5}


def test_a_round_that_starts_afresh_moves_the_bucket_from_the_checkpoints_snapshot_to_its_own() -> None:
    newer = KvSnapshot(A, 9, 90)
    machine = _kept()
    machine.step(Protect(now=2.0, table_id=1, snapshots=(newer,)))
    machine.step(Retain(now=2.0, table_id=1, snapshots=(SNAP_A,)))

    assert (machine.held_leases.held, machine.held_leases.for_checkpoints) == ({A: 9}, frozenset())


def test_a_checkpoints_snapshot_is_acquired_once_nobody_holds_another_one_of_its_bucket() -> None:
    newer = KvSnapshot(A, 9, 90)
    machine = _holding()
    machine.step(Retain(now=1.0, table_id=1, snapshots=(newer,)))
    assert machine.held_leases.held == {A: 5}

    answer = machine.step(Unprotect(now=2.0, buckets=frozenset({A})))

    assert answer == (Persist(), CallAcquire(3, "svc-1-aa-1", 1, {A: 9}))
    assert (machine.held_leases.held, machine.held_leases.for_checkpoints) == ({A: 9}, frozenset({A}))


def test_what_is_abandoned_makes_no_room_for_what_a_checkpoint_needs() -> None:
    machine = _holding()
    machine.step(Retain(now=1.0, table_id=1, snapshots=(KvSnapshot(A, 9, 90),)))
    machine.step(AbandonLease(now=2.0, buckets=frozenset({A})))

    assert machine.held_leases.held == {}


def test_a_stop_keeps_what_a_checkpoint_needs_and_a_final_one_does_not() -> None:
    for final in (False, True):
        machine = _kept()
        machine.step(Unprotect(now=2.0, buckets=frozenset({A})))

        commands = machine.step(LeaseStop(now=3.0, final=final))
        machine.step(Retain(now=3.0, table_id=1, snapshots=(SNAP_A,)))

        assert commands == ((Persist(), CallDrop(3, "svc-1-aa-1", 1)) if final else (LeaseStopped(),))
        assert machine.held_leases.held == ({} if final else {A: 5})


def test_what_is_abandoned_is_released_whoever_needed_it() -> None:
    machine = _kept()

    assert machine.step(AbandonLease(now=2.0, buckets=frozenset({A}))) == (
        Persist(),
        CallRelease(3, "svc-1-aa-1", 1, frozenset({A})),
    )


def test_another_tables_snapshot_is_refused() -> None:
    with pytest.raises(UsageError, match="expected snapshots of table 2"):
        _fresh().step(Protect(now=0.0, table_id=2, snapshots=(SNAP_A,)))


def _calls_that_protect(count: int) -> int:
    """Return how many functions are called until that many snapshots are protected."""
    machine, calls = _fresh(), itertools.count()
    snapshots = tuple(KvSnapshot(TableBucket(1, None, n), n, n) for n in range(count))
    sys.setprofile(lambda *_: next(calls))
    try:
        machine.step(Protect(now=0.0, table_id=1, snapshots=snapshots))
        machine.step(Acquired(now=0.0, call=1, protection=GRANTED))
        told = machine.step(Verified(now=0.0, call=2, missing=NONE))
    finally:
        sys.setprofile(None)
    assert told == (Protected(1),)
    return next(calls)


def test_the_work_for_ten_times_the_snapshots_is_ten_times_as_much() -> None:
    assert _calls_that_protect(10_000) < 11 * _calls_that_protect(1000)
