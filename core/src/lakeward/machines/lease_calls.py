"""The lease machine's states, its table of transitions, and what it remembers of calls and of earlier ids."""

from __future__ import annotations

from dataclasses import dataclass

from lakeward.machines.lease_protocol import (
    Acquired,
    CallFailed,
    CallKind,
    CallUnknown,
    CoordinatorChanged,
    Done,
    Forsake,
    LeasesEvent,
    LeaseStop,
    LeaseTick,
    Protect,
    Renumber,
    Restored,
    Retain,
    Unprotect,
    Verified,
)
from lakeward.machines.machine_state import MachineState
from lakeward.model.tables import KvSnapshot, TableBucket


class State(MachineState):
    """What is under way for the current lease id. Calls for earlier ids go on beside it, in every state."""

    FRESH = "fresh"
    """Nothing was ever asked for."""
    IDLE = "idle"
    ACQUIRING = "acquiring"
    RENEWING = "renewing"
    VERIFYING = "verifying"
    RELEASING = "releasing"
    STOPPING = "stopping"
    """Asked to stop; what is under way is settled, what is left over is tried once more."""
    STOPPED = "stopped"


_NEXT = frozenset({State.IDLE, State.ACQUIRING, State.RENEWING, State.VERIFYING, State.RELEASING})
_AFTER_RESTART = frozenset({State.IDLE, State.ACQUIRING})
_END = frozenset({State.STOPPING, State.STOPPED})


def _only(state: State) -> frozenset[State]:
    return frozenset({state})


def _row(state: State) -> dict[tuple[State, type[LeasesEvent]], frozenset[State]]:
    """A busy state: only the answer it waits for, a new generation or a stop moves it; the rest waits its turn."""
    settles: dict[State, type[LeasesEvent]] = {
        State.ACQUIRING: Acquired,
        State.RENEWING: Acquired,
        State.VERIFYING: Verified,
        State.RELEASING: Done,
    }
    row: dict[tuple[State, type[LeasesEvent]], frozenset[State]] = {
        (state, event): _only(state)
        for event in (Protect, Unprotect, Retain, Forsake, Acquired, Verified, Done, LeaseTick)
    }
    row[state, settles[state]] = _NEXT
    row |= {(state, event): _NEXT for event in (CallFailed, CallUnknown)}
    row |= {(state, event): _AFTER_RESTART for event in (CoordinatorChanged, Renumber)}
    # Nobody waits for a verification that is under way; the answer of a call about the lease is waited for.
    row[state, LeaseStop] = _END if state is State.VERIFYING else _only(State.STOPPING)
    return row


TRANSITIONS: dict[tuple[State, type[LeasesEvent]], frozenset[State]] = {
    (State.FRESH, Restored): _AFTER_RESTART,
    (State.FRESH, Protect): _AFTER_RESTART,
    (State.FRESH, Unprotect): _only(State.FRESH),
    (State.FRESH, Retain): frozenset({State.FRESH, *_AFTER_RESTART}),
    (State.FRESH, Forsake): _only(State.FRESH),
    (State.FRESH, CoordinatorChanged): _only(State.FRESH),
    (State.FRESH, Renumber): _only(State.FRESH),
    (State.FRESH, LeaseTick): _only(State.FRESH),
    (State.FRESH, LeaseStop): _only(State.STOPPED),
    **{(State.IDLE, event): _NEXT for event in (Protect, Unprotect, Retain, Forsake, LeaseTick)},
    **{(State.IDLE, event): _NEXT for event in (Acquired, Verified, Done, CallFailed, CallUnknown)},
    **{(State.IDLE, event): _AFTER_RESTART for event in (CoordinatorChanged, Renumber)},
    (State.IDLE, LeaseStop): _END,
    **_row(State.ACQUIRING),
    **_row(State.RENEWING),
    **_row(State.VERIFYING),
    **_row(State.RELEASING),
    **{
        (State.STOPPING, event): _END
        for event in (
            Protect,
            Unprotect,
            Retain,
            Forsake,
            Acquired,
            Verified,
            Done,
            CallFailed,
            CallUnknown,
            CoordinatorChanged,
            Renumber,
            LeaseTick,
            LeaseStop,
        )
    },
    **{
        (State.STOPPED, event): _only(State.STOPPED)
        for event in (
            Unprotect,
            Retain,
            Forsake,
            Acquired,
            Verified,
            Done,
            CallFailed,
            CallUnknown,
            CoordinatorChanged,
            LeaseTick,
        )
    },
}
"""Every legal event of every state, and where it may lead. What is not in it raises and changes nothing."""

ANSWERS: dict[CallKind, type[LeasesEvent]] = {
    CallKind.ACQUIRE: Acquired,
    CallKind.VERIFY: Verified,
    CallKind.RELEASE: Done,
    CallKind.DROP: Done,
}
"""What a call that went well is answered with; any call may be answered by `CallFailed` or `CallUnknown`."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call under way. `tables` it was for; `renewal` marks an acquire of the whole list."""

    kind: CallKind
    lease_id: str
    generation: int
    sent_at: float
    tables: tuple[int, ...] = ()
    snapshots: tuple[KvSnapshot, ...] = ()
    buckets: frozenset[TableBucket] = frozenset()
    """Of a release: what it gives up. Of an acquire: what was not held under this id before."""
    renewal: bool = False


@dataclass(slots=True)
class OldId:
    """An earlier lease id that is still to be dropped.

    `flight` is a call under it that is not answered yet. `unsettled`: a call of unknown outcome may still take
    effect, so that it is dropped a second time later. `expires`: the server has removed it by then.
    """

    lease_id: str
    generation: int
    expires: float
    flight: int | None = None
    unsettled: bool = False
    retry_at: float = float("-inf")
    failures: int = 0
