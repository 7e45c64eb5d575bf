"""The states of the lease machine, and the table of their transitions.

A row of the table is a state and an event. It maps what is open at the end of the step (a `LeaseGuard`) to the next
state. The machine evaluates the guard and looks the next state up; an event without a row is illegal there.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

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
from lakeward.machines.machine_state import MachineState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class CallState(MachineState):
    """What is open under the current lease id. Calls under retired ids run beside it, in every state."""

    FRESH = "fresh"
    """No snapshot was ever requested."""
    IDLE = "idle"
    ACQUIRING = "acquiring"
    RENEWING = "renewing"
    VERIFYING = "verifying"
    RELEASING = "releasing"
    STOPPING = "stopping"
    """The service stops: wait for open calls, and try remaining releases and drops once more."""
    STOPPED = "stopped"


class LeaseGuard(MachineState):
    """What is open at the end of a step; it selects the next state in the row of the event."""

    NOTHING_ASKED = "nothing asked"
    NO_CALL = "no call"
    ACQUIRE = "acquire"
    RENEWAL = "renewal"
    VERIFICATION = "verification"
    RELEASE = "release"
    CALLS_OPEN = "stopping, calls open"
    ALL_SETTLED = "stopping, all settled"


Row = dict[LeaseGuard, CallState]
_Rows = dict[tuple[CallState, type[LeasesEvent]], Row]

_C = CallState
_G = LeaseGuard
_ANY: Row = {
    _G.NO_CALL: _C.IDLE,
    _G.ACQUIRE: _C.ACQUIRING,
    _G.RENEWAL: _C.RENEWING,
    _G.VERIFICATION: _C.VERIFYING,
    _G.RELEASE: _C.RELEASING,
}
_ACQUIRE_OR_NOTHING: Row = {_G.NO_CALL: _C.IDLE, _G.ACQUIRE: _C.ACQUIRING}
"""Right after a generation starts nothing is acquired yet, so there is nothing to renew, verify or release."""
_UNUSED: Row = {_G.NOTHING_ASKED: _C.FRESH}
_STOP: Row = {_G.CALLS_OPEN: _C.STOPPING, _G.ALL_SETTLED: _C.STOPPED}
_NEEDS = (Protect, Unprotect, Retain, CheckpointsRead, AbandonLease)
_ANSWERS = (Acquired, Verified, Done, CallFailed, CallOutcomeUnknown)
_GENERATIONS = (CoordinatorChanged, StartGeneration)


def _rows(state: CallState, events: Iterable[type[LeasesEvent]], row: Row) -> _Rows:
    return {(state, event): row for event in events}


def _busy(state: CallState, guard: LeaseGuard, settled_by: type[LeasesEvent]) -> _Rows:
    """Make the rows of a state with an open call: its answer, a new generation or a stop ends the state.

    Other events wait for the answer; the answer of an earlier call changes nothing.
    """
    return {
        **_rows(state, (*_NEEDS, *_ANSWERS, LeaseTick), {guard: state}),
        **_rows(state, (settled_by, CallFailed), _ANY),
        **_rows(state, _GENERATIONS, _ACQUIRE_OR_NOTHING),
        (state, CallOutcomeUnknown): {guard: state, **_ACQUIRE_OR_NOTHING},
        (state, LeaseStop): {_G.CALLS_OPEN: _C.STOPPING},
    }


TRANSITIONS: Mapping[tuple[CallState, type[LeasesEvent]], Mapping[LeaseGuard, CallState]] = MappingProxyType(
    {
        **_rows(_C.FRESH, (Unprotect, Retain, CheckpointsRead, AbandonLease, *_GENERATIONS, LeaseTick), _UNUSED),
        **_rows(_C.FRESH, (Restored, Protect), _ACQUIRE_OR_NOTHING),
        (_C.FRESH, Retain): {**_UNUSED, _G.ACQUIRE: _C.ACQUIRING},
        (_C.FRESH, LeaseStop): {_G.ALL_SETTLED: _C.STOPPED},
        **_rows(_C.IDLE, (*_NEEDS, *_ANSWERS, LeaseTick), _ANY),
        **_rows(_C.IDLE, _GENERATIONS, _ACQUIRE_OR_NOTHING),
        (_C.IDLE, LeaseStop): _STOP,
        **_busy(_C.ACQUIRING, _G.ACQUIRE, Acquired),
        **_busy(_C.RENEWING, _G.RENEWAL, Acquired),
        **_busy(_C.VERIFYING, _G.VERIFICATION, Verified),
        **_busy(_C.RELEASING, _G.RELEASE, Done),
        # A renewal that fails starts a generation.
        (_C.RENEWING, CallFailed): {_G.RENEWAL: _C.RENEWING, **_ACQUIRE_OR_NOTHING},
        # A verification changes nothing on the server: no outcome of it starts a generation, and no stop waits for it.
        (_C.VERIFYING, CallOutcomeUnknown): _ANY,
        (_C.VERIFYING, LeaseStop): _STOP,
        **_rows(_C.STOPPING, (*_NEEDS, Verified, *_GENERATIONS, LeaseTick, LeaseStop), {_G.CALLS_OPEN: _C.STOPPING}),
        **_rows(_C.STOPPING, (Acquired, Done, CallFailed, CallOutcomeUnknown), _STOP),
        **_rows(
            _C.STOPPED,
            (Unprotect, Retain, CheckpointsRead, AbandonLease, *_ANSWERS, CoordinatorChanged, LeaseTick),
            {_G.ALL_SETTLED: _C.STOPPED},
        ),
    }
)
"""(state, event) to the next state by guard. Complete: an event without a row is illegal."""
