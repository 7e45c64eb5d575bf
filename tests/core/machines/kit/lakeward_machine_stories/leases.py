"""Stories of the service's lease, with snapshots of two tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.machines.leases import (
    AbandonLease,
    Acquired,
    CallFailed,
    CallOutcomeUnknown,
    CallState,
    CheckpointsRead,
    CoordinatorChanged,
    Done,
    Leases,
    LeasesPolicy,
    LeaseStop,
    LeaseTick,
    Protect,
    Restored,
    Retain,
    StartGeneration,
    Unprotect,
    Verified,
)
from lakeward.machines.leases.state import LeaseStatus
from lakeward.model.leases import Protection, RestoredLease
from lakeward.model.tables import KvSnapshot, TableBucket

if TYPE_CHECKING:
    from lakeward.machines.leases import LeasesEvent

ONE, TWO = TableBucket(1, None, 0), TableBucket(2, None, 0)
SNAPSHOT, OTHER = KvSnapshot(ONE, 5, 50), KvSnapshot(TWO, 6, 60)


def acquired(call: int, now: float = 200.0) -> Acquired:
    """The call has acquired its snapshots for ten minutes."""
    return Acquired(now=now, call=call, protection=Protection(600.0))


def verified(call: int, now: float = 200.0) -> Verified:
    """Nothing is gone."""
    return Verified(now=now, call=call, missing=frozenset())


def done(call: int, now: float = 200.0) -> Done:
    """A release or drop is done."""
    return Done(now=now, call=call)


def failed(call: int, now: float = 200.0) -> CallFailed:
    """A call had no effect."""
    return CallFailed(now=now, call=call, reason="refused")


def unknown(call: int, now: float = 200.0) -> CallOutcomeUnknown:
    """A call may still take effect."""
    return CallOutcomeUnknown(now=now, call=call, reason="no answer")


PROTECT = Protect(now=0.0, table_id=1, snapshots=(SNAPSHOT,))
RESTORED = Restored(now=0.0, lease=RestoredLease("svc-0-aa-1", 1, {ONE: 5}), snapshots=(SNAPSHOT,))
STOP = LeaseStop(now=0.0, final=True)
_HELD = (PROTECT, acquired(1, 0.0), verified(2, 0.0))
STATES: dict[CallState, tuple[LeasesEvent, ...]] = {
    CallState.FRESH: (),
    CallState.IDLE: _HELD,
    CallState.ACQUIRING: (PROTECT,),
    CallState.VERIFYING: (PROTECT, acquired(1, 0.0)),
    CallState.RENEWING: (*_HELD, LeaseTick(now=200.0)),
    CallState.RELEASING: (*_HELD, Unprotect(now=0.0, buckets=frozenset({ONE}))),
    CallState.STOPPING: (*_HELD, STOP),
    CallState.STOPPED: (*_HELD, LeaseStop(now=0.0, final=False)),
}
"""How each state is reached."""
_FREE = Unprotect(now=0.0, buckets=frozenset({ONE}))
_ANOTHER = Protect(now=0.0, table_id=2, snapshots=(OTHER,))
_NEW_ID = CoordinatorChanged(now=0.0)
_ENDS = LeaseStop(now=0.0, final=False)


def through(story: tuple[LeasesEvent, ...], call: int, verify: int) -> tuple[tuple[LeasesEvent, ...], ...]:
    """The story goes on from an open acquire through every state."""
    held = (*story, acquired(call, 0.0), verified(verify, 0.0))
    return (
        story,
        (*story, acquired(call, 0.0)),
        held,
        (*held, LeaseTick(now=200.0)),
        (*held, Unprotect(now=0.0, buckets=frozenset({ONE, TWO}))),
    )


_AGAIN = (*_HELD, _NEW_ID, acquired(3, 0.0))
STORIES: tuple[tuple[LeasesEvent, ...], ...] = (
    *STATES.values(),
    (PROTECT, failed(1, 0.0)),
    # Meanwhile a call of a retired id, a given up one, a late one, or a drop is open.
    *through((PROTECT, _NEW_ID), 2, 3),
    *through((*_HELD, _FREE, _NEW_ID, PROTECT), 4, 5),
    *through((PROTECT, acquired(1, 0.0), _NEW_ID), 3, 5),
    *through((PROTECT, unknown(1, 0.0), PROTECT), 3, 4),
    *through((RESTORED, CheckpointsRead(now=0.0), acquired(1, 0.0), verified(2, 0.0), _ANOTHER), 4, 5),
    *through((*_AGAIN, verified(4, 0.0), _ANOTHER), 6, 7),
    (RESTORED, CheckpointsRead(now=0.0), acquired(1, 0.0), verified(2, 0.0)),
    # A renewal meets snapshots that are not verified, or wanted.
    (*_AGAIN, failed(4, 0.0)),
    (*_AGAIN, failed(4, 199.5), LeaseTick(now=200.0)),
    (*_HELD, LeaseTick(now=200.0), Protect(now=200.0, table_id=2, snapshots=(OTHER,))),
    (PROTECT, acquired(1, 0.0), _FREE, PROTECT),
    # It stops.
    (PROTECT, _ENDS),
    (PROTECT, STOP),
    (PROTECT, acquired(1, 0.0), _ENDS),
    (PROTECT, unknown(1, 0.0), _ENDS),
    (*_HELD, _FREE, _ENDS),
    (*_HELD, _FREE, _NEW_ID, _ENDS),
    (PROTECT, _FREE, _ENDS),
    (PROTECT, acquired(1, 0.0), _FREE, PROTECT, _FREE, _ENDS),
    (*_HELD, LeaseTick(now=200.0), LeaseStop(now=200.0, final=False)),
)
TRIED: tuple[LeasesEvent, ...] = (
    Restored(now=200.0, lease=RESTORED.lease, snapshots=RESTORED.snapshots),
    Protect(now=200.0, table_id=2, snapshots=(OTHER,)),
    Protect(now=200.0, table_id=1, snapshots=(OTHER,)),
    Unprotect(now=200.0, buckets=frozenset({ONE})),
    Retain(now=200.0, table_id=2, snapshots=(OTHER,)),
    Retain(now=200.0, table_id=2, snapshots=()),
    CheckpointsRead(now=200.0),
    AbandonLease(now=200.0, buckets=frozenset({ONE, TWO})),
    CoordinatorChanged(now=200.0),
    StartGeneration(now=200.0),
    LeaseTick(now=50.0),
    LeaseTick(now=200.0),
    LeaseStop(now=200.0, final=False),
    LeaseStop(now=200.0, final=True),
    *(kind(call) for kind in (acquired, verified, done, failed, unknown) for call in (0, 1, 2, 3, 4, 5, 6, 99)),
)
_ANSWERS = (Acquired, Verified, Done, CallFailed, CallOutcomeUnknown)
ILLEGAL = (
    *((state, Restored) for state in CallState if state is not CallState.FRESH),
    *((CallState.FRESH, answer) for answer in _ANSWERS),
    *((CallState.STOPPED, event) for event in (Protect, StartGeneration, LeaseStop)),
    (LeaseStatus.VERIFIED, Verified),
)


def new() -> Leases:
    """A lease that nobody has asked for."""
    return Leases(LeasesPolicy(duration_s=600.0), "svc-1-aa")
