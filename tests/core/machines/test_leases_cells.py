"""Every cell of state x event of the lease machine."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, get_args

import pytest

from lakeward.errors import IllegalEventError
from lakeward.machines.leases import (
    TRANSITIONS,
    Acquired,
    CallFailed,
    CallUnknown,
    CoordinatorChanged,
    Done,
    Forsake,
    Leases,
    LeasesEvent,
    LeasesPolicy,
    LeaseStop,
    LeaseTick,
    Protect,
    Renumber,
    Restored,
    Retain,
    State,
    Unprotect,
    Verified,
)
from lakeward.model.leases import Protection, RestoredLease
from lakeward.model.tables import KvSnapshot, TableBucket

if TYPE_CHECKING:
    from collections.abc import Callable

ONE, TWO = TableBucket(1, None, 0), TableBucket(2, None, 0)
SNAPSHOT = KvSnapshot(ONE, 5, 50)


def _machine(*events: LeasesEvent) -> Leases:
    machine = Leases(LeasesPolicy(duration_s=600.0), "svc-1-aa")
    for event in events:
        machine.step(event)
    return machine


_PROTECT = Protect(now=0.0, table_id=1, snapshots=(SNAPSHOT,))
_ACQUIRED = Acquired(now=0.0, call=1, protection=Protection(600.0))
_VERIFIED = Verified(now=0.0, call=2, missing=frozenset())
_UNPROTECT = Unprotect(now=0.0, buckets=frozenset({ONE}))
STATES: dict[State, tuple[LeasesEvent, ...]] = {
    State.FRESH: (),
    State.IDLE: (_PROTECT, _ACQUIRED, _VERIFIED),
    State.ACQUIRING: (_PROTECT,),
    State.VERIFYING: (_PROTECT, _ACQUIRED),
    State.RENEWING: (_PROTECT, _ACQUIRED, _VERIFIED, LeaseTick(now=200.0)),
    State.RELEASING: (_PROTECT, _ACQUIRED, _VERIFIED, _UNPROTECT),
    State.STOPPING: (_PROTECT, _ACQUIRED, _VERIFIED, LeaseStop(now=0.0, final=True)),
    State.STOPPED: (_PROTECT, _ACQUIRED, _VERIFIED, LeaseStop(now=0.0, final=False)),
}
"""How each state is reached."""
EVENTS: dict[type[LeasesEvent], Callable[[int], LeasesEvent]] = {
    Restored: lambda _: Restored(now=200.0, lease=RestoredLease("svc-0-aa-1", 1, {ONE: 5}), snapshots=(SNAPSHOT,)),
    Protect: lambda _: Protect(now=200.0, table_id=2, snapshots=(KvSnapshot(TWO, 6, 60),)),
    Unprotect: lambda _: Unprotect(now=200.0, buckets=frozenset({TWO})),
    Retain: lambda _: Retain(now=200.0, table_id=2, snapshots=(KvSnapshot(TWO, 6, 60),)),
    Forsake: lambda _: Forsake(now=200.0, buckets=frozenset({TWO})),
    Acquired: lambda call: Acquired(now=200.0, call=call, protection=Protection(600.0)),
    Verified: lambda call: Verified(now=200.0, call=call, missing=frozenset()),
    Done: lambda call: Done(now=200.0, call=call),
    CallFailed: lambda call: CallFailed(now=200.0, call=call, reason="refused"),
    CallUnknown: lambda call: CallUnknown(now=200.0, call=call, reason="no answer"),
    CoordinatorChanged: lambda _: CoordinatorChanged(now=200.0),
    Renumber: lambda _: Renumber(now=200.0),
    LeaseTick: lambda _: LeaseTick(now=200.0),
    LeaseStop: lambda _: LeaseStop(now=200.0, final=False),
}
WAITED_FOR = {
    State.ACQUIRING: (Acquired, 1),
    State.VERIFYING: (Verified, 2),
    State.RENEWING: (Acquired, 3),
    State.RELEASING: (Done, 3),
    State.STOPPING: (Done, 3),
}
"""Which answer a state waits for, and its call's number."""
ANSWERS = (Acquired, Verified, Done, CallFailed, CallUnknown)


def _calls(state: State, event: type[LeasesEvent]) -> int:
    """Return the call that an answer is for: the one waited for where it fits, else the settled call 1."""
    answer, call = WAITED_FOR.get(state, (None, 1))
    return call if event in (answer, CallFailed, CallUnknown) else 1


def _frozen(machine: Leases) -> object:
    return copy.deepcopy((machine.state, machine.books, machine.next_due))


def test_every_event_and_every_state_is_in_this_test() -> None:
    assert set(EVENTS) == set(get_args(LeasesEvent))
    assert set(STATES) == set(State)


@pytest.mark.parametrize("state", State, ids=lambda state: state.value)
def test_each_state_is_reached(state: State) -> None:
    assert _machine(*STATES[state]).state is state


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
@pytest.mark.parametrize("state", State, ids=lambda state: state.value)
def test_a_cell_leads_where_the_table_says_or_changes_nothing(state: State, event: type[LeasesEvent]) -> None:
    # An answer to a settled call needs one: call 1 is given up first.
    settled = (_PROTECT, CallUnknown(now=0.0, call=1, reason="no answer"), _PROTECT)
    machine = _machine(
        *(settled if (state, event) in ((State.ACQUIRING, Verified), (State.ACQUIRING, Done)) else STATES[state])
    )
    before = _frozen(machine)
    allowed = TRANSITIONS.get((state, event))

    if allowed is None:
        with pytest.raises(IllegalEventError) as caught:
            machine.step(EVENTS[event](_calls(state, event)))
        assert (caught.value.machine, caught.value.state) == ("leases", state.value)
        assert _frozen(machine) == before
    else:
        machine.step(EVENTS[event](_calls(state, event)))
        assert machine.state in allowed


@pytest.mark.parametrize("event", ANSWERS, ids=lambda event: event.__name__)
@pytest.mark.parametrize("state", [s for s in State if s is not State.FRESH], ids=lambda state: state.value)
def test_an_answer_to_a_settled_call_changes_nothing(state: State, event: type[LeasesEvent]) -> None:
    if state is State.ACQUIRING:
        machine = _machine(_PROTECT, CallUnknown(now=0.0, call=1, reason="no answer"), _PROTECT)
        assert machine.state is State.ACQUIRING
    else:
        machine = _machine(*STATES[state])
    held = dict(machine.books.held)

    machine.step(EVENTS[event](1))

    assert dict(machine.books.held) == held
    assert machine.books.lease_id not in {lease_id for lease_id, _ in machine.books.old_ids}


@pytest.mark.parametrize(
    ("state", "event"),
    [(s, e) for s, (right, _) in WAITED_FOR.items() for e in (Acquired, Verified, Done) if e is not right],
    ids=lambda value: getattr(value, "value", getattr(value, "__name__", "")),
)
def test_an_answer_that_does_not_fit_its_call_is_illegal(state: State, event: type[LeasesEvent]) -> None:
    machine = _machine(*STATES[state])
    before = _frozen(machine)

    with pytest.raises(IllegalEventError):
        machine.step(EVENTS[event](WAITED_FOR[state][1]))

    assert _frozen(machine) == before


@pytest.mark.parametrize("event", ANSWERS, ids=lambda event: event.__name__)
@pytest.mark.parametrize("state", State, ids=lambda state: state.value)
def test_an_answer_to_a_call_that_was_never_made_is_illegal(state: State, event: type[LeasesEvent]) -> None:
    machine = _machine(*STATES[state])
    before = _frozen(machine)

    for call in (0, 99):
        with pytest.raises(IllegalEventError):
            machine.step(EVENTS[event](call))

    assert _frozen(machine) == before
