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
STORIES: tuple[tuple[LeasesEvent, ...], ...] = (
    *STATES.values(),
    (PROTECT, LeaseStop(now=0.0, final=False)),
    (PROTECT, STOP),
    (PROTECT, acquired(1, 0.0), CoordinatorChanged(now=0.0)),
    (PROTECT, unknown(1, 0.0), PROTECT),
    (RESTORED, CheckpointsRead(now=0.0), acquired(1, 0.0), verified(2, 0.0)),
    (RESTORED, CheckpointsRead(now=0.0), acquired(1, 0.0), verified(2, 0.0), done(3, 0.0)),
    (*_HELD, CoordinatorChanged(now=0.0), acquired(3, 0.0), verified(4, 0.0)),
    (*_HELD, Unprotect(now=0.0, buckets=frozenset({ONE})), LeaseStop(now=0.0, final=False)),
    (*_HELD, failed(1, 0.0), LeaseTick(now=200.0), LeaseStop(now=0.0, final=False)),
    (PROTECT, acquired(1, 0.0), LeaseStop(now=0.0, final=False)),
    (PROTECT, Unprotect(now=0.0, buckets=frozenset({ONE})), LeaseStop(now=0.0, final=False)),
    (
        PROTECT,
        acquired(1, 0.0),
        Unprotect(now=0.0, buckets=frozenset({ONE})),
        PROTECT,
        Unprotect(now=0.0, buckets=frozenset({ONE})),
        LeaseStop(now=0.0, final=False),
    ),
    (*_HELD, CoordinatorChanged(now=0.0), acquired(3, 0.0)),
    (*_HELD, CoordinatorChanged(now=0.0), acquired(3, 0.0), failed(4, 0.0)),
    (PROTECT, acquired(1, 0.0), Unprotect(now=0.0, buckets=frozenset({ONE})), PROTECT),
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
    *(kind(call) for kind in (acquired, verified, done, failed, unknown) for call in (0, 1, 2, 3, 4, 5, 99)),
)
_ANSWERS = (Acquired, Verified, Done, CallFailed, CallOutcomeUnknown)
ILLEGAL = (
    *((state, Restored) for state in CallState if state is not CallState.FRESH),
    *((CallState.FRESH, answer) for answer in _ANSWERS),
    *((CallState.STOPPED, event) for event in (Protect, StartGeneration, LeaseStop)),
)


def new() -> Leases:
    """A lease that nobody has asked for."""
    return Leases(LeasesPolicy(duration_s=600.0), "svc-1-aa")
