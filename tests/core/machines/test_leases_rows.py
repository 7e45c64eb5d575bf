"""The rules of the lease machine, written by hand, one row each.

They are those of docs/explanation/why-leases.md, not of the machine's own table: a wrong row there agrees with itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import pytest

from lakeward.errors import IllegalEventError
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
    LeasesCommand,
    LeasesEvent,
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
    StartGeneration,
    Unprotect,
    Verified,
)
from lakeward.model.leases import Protection, RestoredLease
from lakeward.model.tables import KvSnapshot, TableBucket

if TYPE_CHECKING:
    from collections.abc import Mapping

A, B = TableBucket(1, None, 0), TableBucket(2, None, 0)
SNAP_A, SNAP_B, NEWER_A = KvSnapshot(A, 5, 50), KvSnapshot(B, 6, 60), KvSnapshot(A, 7, 70)
ID1, ID2, EARLIER = "svc-1-aa-1", "svc-1-aa-2", "svc-0-zz-1"
NO_SNAPSHOT: frozenset[KvSnapshot] = frozenset()
ILLEGAL: Literal["illegal"] = "illegal"
CLEANED_UP, RAN_OUT, STOPS = (
    "the source has cleaned it up",
    "the lease ran out before it could be taken anew",
    "the service stops",
)


def protect(snapshot: KvSnapshot = SNAP_A, now: float = 0.0) -> Protect:
    return Protect(now=now, table_id=snapshot.bucket.table_id, snapshots=(snapshot,))


def unprotect(bucket: TableBucket = A) -> Unprotect:
    return Unprotect(now=0.0, buckets=frozenset({bucket}))


def retain(*snapshots: KvSnapshot) -> Retain:
    return Retain(now=0.0, table_id=1, snapshots=snapshots)


def acquired(call: int, now: float = 0.0) -> Acquired:
    """The call was answered: the lease lives for 600 seconds from now."""
    return Acquired(now=now, call=call, protection=Protection(600.0))


def verified(call: int, *missing: KvSnapshot, now: float = 0.0) -> Verified:
    return Verified(now=now, call=call, missing=frozenset(missing))


def done(call: int, now: float = 0.0) -> Done:
    return Done(now=now, call=call)


def failed(call: int, now: float = 0.0) -> CallFailed:
    return CallFailed(now=now, call=call, reason="refused")


def unknown(call: int, now: float = 0.0) -> CallOutcomeUnknown:
    return CallOutcomeUnknown(now=now, call=call, reason="no answer")


def restored(lease_id: str = EARLIER) -> Restored:
    return Restored(now=0.0, lease=RestoredLease(lease_id, 1, {A: 5}), snapshots=(SNAP_A,))


def tick(now: float) -> LeaseTick:
    return LeaseTick(now=now)


def stop(*, final: bool = False) -> LeaseStop:
    return LeaseStop(now=0.0, final=final)


CHANGED = CoordinatorChanged(now=0.0)
HOLDING = (protect(), acquired(1), verified(2))
"""A round reads snapshot 5 of table 1 under the first id; three calls come next, from number 3 on."""
RETAINED = (*HOLDING, retain(SNAP_A))
"""A checkpoint needs the same snapshot."""
RELEASING = (*HOLDING, unprotect())
"""Call 3 is the release."""
NEW_ID = (*HOLDING, CHANGED)
"""Call 3 acquires under the second id."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """After `given`, `event` leads to `then` and asks for `commands`; then `held` and `old_ids` are what is left."""

    rule: str
    given: tuple[LeasesEvent, ...]
    event: LeasesEvent
    then: CallState | Literal["illegal"]
    commands: tuple[LeasesCommand, ...] = ()
    held: Mapping[TableBucket, int] = field(default_factory=dict)
    old_ids: tuple[str, ...] = ()


ROWS = (
    # --- a round's snapshots ---
    Row(
        rule="id and buckets are persisted before anything is acquired",
        given=(),
        event=protect(),
        then=CallState.ACQUIRING,
        commands=(Persist(), CallAcquire(1, ID1, 1, {A: 5})),
        held={A: 5},
    ),
    Row(
        rule="a round is not told that its snapshots are protected before they are verified",
        given=(protect(),),
        event=acquired(1),
        then=CallState.VERIFYING,
        commands=(CallVerify(2, (SNAP_A,)),),
        held={A: 5},
    ),
    Row(
        rule="a round is told once the source still has what was acquired",
        given=(protect(), acquired(1)),
        event=verified(2),
        then=CallState.IDLE,
        commands=(Protected(1),),
        held={A: 5},
    ),
    Row(
        rule="a snapshot that was gone before its lease is told to the round and given back",
        given=(protect(), acquired(1)),
        event=verified(2, SNAP_A),
        then=CallState.RELEASING,
        commands=(
            Persist(),
            NotProtected(1, frozenset({SNAP_A}), CLEANED_UP),
            CallRelease(3, ID1, 1, frozenset({A})),
        ),
    ),
    Row(
        rule="an acquire that was refused fails the round that asked, and holds nothing",
        given=(protect(),),
        event=failed(1),
        then=CallState.IDLE,
        commands=(Persist(), NotProtected(1, NO_SNAPSHOT, "refused")),
    ),
    Row(
        rule="a refusal for one table takes nothing from another one",
        given=(*HOLDING, protect(SNAP_B)),
        event=failed(3),
        then=CallState.IDLE,
        commands=(Persist(), NotProtected(2, NO_SNAPSHOT, "refused")),
        held={A: 5},
    ),
    Row(
        rule="a verification does not vouch for a snapshot that was given back and asked for again meanwhile",
        given=(protect(), acquired(1), unprotect(), protect()),
        event=verified(2),
        then=CallState.ACQUIRING,
        commands=(Persist(), CallAcquire(3, ID1, 1, {A: 5})),
        held={A: 5},
    ),
    Row(
        rule="another snapshot of a bucket is acquired and verified before its round is told",
        given=HOLDING,
        event=protect(NEWER_A),
        then=CallState.ACQUIRING,
        commands=(Persist(), CallAcquire(3, ID1, 1, {A: 7})),
        held={A: 7},
    ),
    Row(
        rule="a table asks while another one's call is open: calls run one at a time",
        given=(protect(),),
        event=protect(SNAP_B),
        then=CallState.ACQUIRING,
        commands=(Persist(),),
        held={A: 5, B: 6},
    ),
    # --- renewals ---
    Row(
        rule="nothing is renewed before a third of the duration is over",
        given=HOLDING,
        event=tick(199.0),
        then=CallState.IDLE,
        held={A: 5},
    ),
    Row(
        rule="after a third of the duration the whole list is renewed",
        given=(*HOLDING, protect(SNAP_B), acquired(3), verified(4)),
        event=tick(200.0),
        then=CallState.RENEWING,
        commands=(CallAcquire(5, ID1, 1, {A: 5, B: 6}),),
        held={A: 5, B: 6},
    ),
    Row(
        rule="an empty list is never acquired",
        given=(*RELEASING, done(3)),
        event=tick(200.0),
        then=CallState.IDLE,
    ),
    Row(
        rule="a renewal that fails starts a new id, and the old one stays until that one protects",
        given=(*HOLDING, tick(200.0)),
        event=failed(3, now=200.0),
        then=CallState.ACQUIRING,
        commands=(Persist(), CallAcquire(4, ID2, 2, {A: 5})),
        held={A: 5},
        old_ids=(ID1,),
    ),
    Row(
        rule="what a renewal finds gone is reported as lost and not held any more",
        given=(*HOLDING, tick(200.0), acquired(3, now=200.0)),
        event=verified(4, SNAP_A, now=200.0),
        then=CallState.RELEASING,
        commands=(
            Persist(),
            ProtectionLost(1, frozenset({SNAP_A}), CLEANED_UP),
            CallRelease(5, ID1, 1, frozenset({A})),
        ),
    ),
    # --- new ids ---
    Row(
        rule="an acquire of unknown outcome is not taken for a failed one: its id is retired and dropped",
        given=(protect(),),
        event=unknown(1),
        then=CallState.IDLE,
        commands=(Persist(), NotProtected(1, NO_SNAPSHOT, "no answer"), CallDrop(2, ID1, 1)),
        old_ids=(ID1,),
    ),
    Row(
        rule="a release of unknown outcome retires its id, for it may take effect later",
        given=(*RELEASING, protect(SNAP_B)),
        event=unknown(3),
        then=CallState.ACQUIRING,
        commands=(Persist(), CallAcquire(4, ID2, 2, {B: 6}), CallDrop(5, ID1, 1)),
        held={B: 6},
        old_ids=(ID1,),
    ),
    Row(
        rule="a verification without an answer starts no new id: it changes nothing at the source",
        given=(protect(), acquired(1)),
        event=unknown(2),
        then=CallState.RELEASING,
        commands=(
            Persist(),
            NotProtected(1, NO_SNAPSHOT, "no answer"),
            CallRelease(3, ID1, 1, frozenset({A})),
        ),
    ),
    Row(
        rule="a change of the coordinator has everything acquired under a new id, and drops nothing yet",
        given=HOLDING,
        event=CHANGED,
        then=CallState.ACQUIRING,
        commands=(Persist(), CallAcquire(3, ID2, 2, {A: 5})),
        held={A: 5},
        old_ids=(ID1,),
    ),
    Row(
        rule="an old id is not dropped while what it protects is acquired but not verified under the new one",
        given=NEW_ID,
        event=acquired(3),
        then=CallState.VERIFYING,
        commands=(CallVerify(4, (SNAP_A,)),),
        held={A: 5},
        old_ids=(ID1,),
    ),
    Row(
        rule="an old id is dropped once all that it protects is verified under the new one",
        given=(*NEW_ID, acquired(3)),
        event=verified(4),
        then=CallState.IDLE,
        commands=(CallDrop(5, ID1, 1),),
        held={A: 5},
        old_ids=(ID1,),
    ),
    Row(
        rule="an answer to a call under a retired id changes nothing",
        given=(*HOLDING, tick(200.0), CoordinatorChanged(now=200.0)),
        event=acquired(3, now=200.0),
        then=CallState.ACQUIRING,
        held={A: 5},
        old_ids=(ID1,),
    ),
    Row(
        rule="a verification under a retired id does not vouch for the new one",
        given=(protect(), acquired(1), CHANGED),
        event=verified(2),
        then=CallState.ACQUIRING,
        held={A: 5},
        old_ids=(ID1,),
    ),
    Row(
        rule="an old id is not dropped before its open call has ended, which could come after the drop",
        given=(protect(),),
        event=CHANGED,
        then=CallState.ACQUIRING,
        commands=(Persist(), CallAcquire(2, ID2, 2, {A: 5})),
        held={A: 5},
        old_ids=(ID1,),
    ),
    Row(
        rule="an old id is dropped once its open call has ended, if nothing is read that it protects",
        given=(protect(), CHANGED),
        event=acquired(1),
        then=CallState.ACQUIRING,
        commands=(CallDrop(3, ID1, 1),),
        held={A: 5},
        old_ids=(ID1,),
    ),
    Row(
        rule="a renewal of unknown outcome starts a new id",
        given=(*HOLDING, tick(200.0)),
        event=unknown(3, now=200.0),
        then=CallState.ACQUIRING,
        commands=(Persist(), CallAcquire(4, ID2, 2, {A: 5})),
        held={A: 5},
        old_ids=(ID1,),
    ),
    Row(
        rule="a backend that wants everything acquired again gets a new id for it",
        given=HOLDING,
        event=StartGeneration(now=0.0),
        then=CallState.ACQUIRING,
        commands=(Persist(), CallAcquire(3, ID2, 2, {A: 5})),
        held={A: 5},
        old_ids=(ID1,),
    ),
    Row(
        rule="an id that nothing was ever acquired under is not replaced",
        given=(),
        event=CHANGED,
        then=CallState.FRESH,
    ),
    Row(
        rule="a failure of a call under a retired id starts no third id",
        given=(*HOLDING, tick(200.0), CoordinatorChanged(now=200.0)),
        event=failed(3, now=200.0),
        then=CallState.ACQUIRING,
        held={A: 5},
        old_ids=(ID1,),
    ),
    Row(
        rule="what is not acquired anew before the old lease runs out is lost, not silently unprotected",
        given=(*NEW_ID, failed(3)),
        event=tick(600.0),
        then=CallState.IDLE,
        commands=(Persist(), ProtectionLost(1, frozenset({SNAP_A}), RAN_OUT)),
    ),
    Row(
        rule="an old id whose call may still take effect is dropped a second time",
        given=(protect(), unknown(1), done(2)),
        event=tick(60.0),
        then=CallState.IDLE,
        commands=(CallDrop(3, ID1, 1),),
        old_ids=(ID1,),
    ),
    Row(
        rule="an old id that was dropped is forgotten",
        given=(*NEW_ID, acquired(3), verified(4)),
        event=done(5),
        then=CallState.IDLE,
        commands=(Persist(),),
        held={A: 5},
    ),
    Row(
        rule="a drop that failed is tried again",
        given=(*NEW_ID, acquired(3), verified(4), failed(5)),
        event=tick(1.0),
        then=CallState.IDLE,
        commands=(CallDrop(6, ID1, 1),),
        held={A: 5},
        old_ids=(ID1,),
    ),
    Row(
        rule="an acquire that succeeds after its id was dropped and forgotten is dropped as well",
        given=(protect(), unknown(1), done(2), tick(60.0), done(3, now=60.0)),
        event=acquired(1, now=61.0),
        then=CallState.IDLE,
        commands=(Persist(), CallDrop(4, ID1, 1)),
        old_ids=(ID1,),
    ),
    # --- restarts ---
    Row(
        rule="an earlier start's snapshots are acquired anew under an id that it never had",
        given=(),
        event=restored(ID1),
        then=CallState.ACQUIRING,
        commands=(Persist(), CallAcquire(1, ID2, 2, {A: 5})),
        held={A: 5},
        old_ids=(ID1,),
    ),
    Row(
        rule="an earlier start's id is not dropped before it is known what checkpoints need",
        given=(restored(), acquired(1)),
        event=verified(2),
        then=CallState.IDLE,
        held={A: 5},
        old_ids=(EARLIER,),
    ),
    Row(
        rule="an earlier start's id is dropped once the checkpoints were read",
        given=(restored(), acquired(1), verified(2)),
        event=CheckpointsRead(now=0.0),
        then=CallState.IDLE,
        commands=(CallDrop(3, EARLIER, 1),),
        held={A: 5},
        old_ids=(EARLIER,),
    ),
    Row(
        rule="nothing is restored after a round has asked for snapshots",
        given=(protect(),),
        event=restored(),
        then=ILLEGAL,
    ),
    # --- who needs a snapshot ---
    Row(
        rule="what nothing needs is released",
        given=HOLDING,
        event=unprotect(),
        then=CallState.RELEASING,
        commands=(Persist(), CallRelease(3, ID1, 1, frozenset({A}))),
    ),
    Row(
        rule="what a checkpoint needs outlives its round",
        given=RETAINED,
        event=unprotect(),
        then=CallState.IDLE,
        commands=(Persist(),),
        held={A: 5},
    ),
    Row(
        rule="what a round reads outlives the checkpoint that needed it",
        given=RETAINED,
        event=retain(),
        then=CallState.IDLE,
        held={A: 5},
    ),
    Row(
        rule="what a checkpoint needs is acquired without a round",
        given=(),
        event=retain(SNAP_A),
        then=CallState.ACQUIRING,
        commands=(Persist(), CallAcquire(1, ID1, 1, {A: 5})),
        held={A: 5},
    ),
    Row(
        rule="an abandoned lease is released, whatever needed it",
        given=RETAINED,
        event=AbandonLease(now=0.0, buckets=frozenset({A})),
        then=CallState.RELEASING,
        commands=(Persist(), CallRelease(3, ID1, 1, frozenset({A}))),
    ),
    Row(
        rule="a release that failed is tried again",
        given=(*RELEASING, failed(3)),
        event=tick(1.0),
        then=CallState.RELEASING,
        commands=(CallRelease(4, ID1, 1, frozenset({A})),),
    ),
    Row(
        rule="an acquire cancels the release of the same bucket that is still to be tried again",
        given=(*RELEASING, failed(3), protect(), acquired(4), verified(5)),
        event=tick(1.0),
        then=CallState.IDLE,
        held={A: 5},
    ),
    # --- stops ---
    Row(
        rule="a round that asks after a stop gets no lease",
        given=(*RELEASING, stop()),
        event=protect(SNAP_B),
        then=CallState.STOPPING,
        commands=(NotProtected(2, NO_SNAPSHOT, STOPS),),
    ),
    Row(
        rule="nothing is acquired for a checkpoint after a stop",
        given=(*RELEASING, stop()),
        event=retain(NEWER_A),
        then=CallState.STOPPING,
    ),
    Row(
        rule="no new id is started after a stop",
        given=(*HOLDING, protect(SNAP_B), stop()),
        event=CHANGED,
        then=CallState.STOPPING,
        held={A: 5},
    ),
    Row(
        rule="what is acquired after a stop is neither verified nor given to a round, but released",
        given=(protect(), stop()),
        event=acquired(1),
        then=CallState.STOPPING,
        commands=(CallRelease(2, ID1, 1, frozenset({A})),),
    ),
    Row(
        rule="nothing is verified after a stop, and what a checkpoint needs stays held",
        given=(retain(SNAP_A), stop()),
        event=acquired(1),
        then=CallState.STOPPED,
        commands=(LeaseStopped(),),
        held={A: 5},
    ),
    Row(
        rule="a stop waits for the call that is open, and tells the round that waits for it",
        given=(protect(),),
        event=stop(),
        then=CallState.STOPPING,
        commands=(Persist(), NotProtected(1, NO_SNAPSHOT, STOPS)),
    ),
    Row(
        rule="a stop does not wait for a verification, which changes nothing at the source",
        given=(retain(SNAP_A), acquired(1)),
        event=stop(),
        then=CallState.STOPPED,
        commands=(LeaseStopped(),),
        held={A: 5},
    ),
    Row(
        rule="a stop keeps what is held for the next start",
        given=HOLDING,
        event=stop(),
        then=CallState.STOPPED,
        commands=(LeaseStopped(),),
        held={A: 5},
    ),
    Row(
        rule="a final stop drops the lease, even if a checkpoint needs it",
        given=RETAINED,
        event=stop(final=True),
        then=CallState.STOPPING,
        commands=(Persist(), CallDrop(3, ID1, 1)),
        old_ids=(ID1,),
    ),
    Row(
        rule="a stop tries a release that failed once more",
        given=(*RELEASING, stop()),
        event=failed(3),
        then=CallState.STOPPING,
        commands=(CallRelease(4, ID1, 1, frozenset({A})),),
    ),
    Row(
        rule="a stop ends although its last release failed too",
        given=(*RELEASING, stop(), failed(3)),
        event=failed(4),
        then=CallState.STOPPED,
        commands=(LeaseStopped(),),
    ),
    Row(
        rule="after its end the machine takes no request",
        given=(*HOLDING, stop()),
        event=protect(SNAP_B),
        then=ILLEGAL,
    ),
    Row(
        rule="an answer after the end changes nothing",
        given=(retain(SNAP_A), acquired(1), stop()),
        event=verified(2, SNAP_A),
        then=CallState.STOPPED,
        held={A: 5},
    ),
    # --- answers that cannot be ---
    Row(
        rule="an answer of another kind than its call is illegal",
        given=(protect(),),
        event=verified(1),
        then=ILLEGAL,
    ),
    Row(
        rule="an answer to a call that was never made is illegal",
        given=HOLDING,
        event=done(3),
        then=ILLEGAL,
    ),
)


def seen(machine: Leases) -> object:
    """Everything that the machine shows."""
    return (machine.state, machine.held_leases, machine.next_due, machine.is_waiting(1), machine.is_waiting(2))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.rule)
def test_a_rule_holds(row: Row) -> None:
    machine = Leases(LeasesPolicy(duration_s=600.0), "svc-1-aa")
    for event in row.given:
        machine.step(event)

    if row.then == ILLEGAL:
        before = seen(machine)
        with pytest.raises(IllegalEventError):
            machine.step(row.event)
        assert seen(machine) == before
    else:
        assert machine.step(row.event) == row.commands
        left = machine.held_leases
        assert (machine.state, left.held, tuple(old for old, _ in left.old_ids)) == (row.then, row.held, row.old_ids)
