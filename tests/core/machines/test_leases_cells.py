"""Every cell of state x event of the lease machine."""

from __future__ import annotations

import copy
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, get_args

import pytest

from lakeward.errors import IllegalEventError
from lakeward.machines.leases import (
    TRANSITIONS,
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
    LeasesEvent,
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
STATES: dict[CallState, tuple[LeasesEvent, ...]] = {
    CallState.FRESH: (),
    CallState.IDLE: (_PROTECT, _ACQUIRED, _VERIFIED),
    CallState.ACQUIRING: (_PROTECT,),
    CallState.VERIFYING: (_PROTECT, _ACQUIRED),
    CallState.RENEWING: (_PROTECT, _ACQUIRED, _VERIFIED, LeaseTick(now=200.0)),
    CallState.RELEASING: (_PROTECT, _ACQUIRED, _VERIFIED, _UNPROTECT),
    CallState.STOPPING: (_PROTECT, _ACQUIRED, _VERIFIED, LeaseStop(now=0.0, final=True)),
    CallState.STOPPED: (_PROTECT, _ACQUIRED, _VERIFIED, LeaseStop(now=0.0, final=False)),
}
"""How each state is reached."""
EVENTS: dict[type[LeasesEvent], Callable[[int], LeasesEvent]] = {
    Restored: lambda _: Restored(now=200.0, lease=RestoredLease("svc-0-aa-1", 1, {ONE: 5}), snapshots=(SNAPSHOT,)),
    Protect: lambda _: Protect(now=200.0, table_id=2, snapshots=(KvSnapshot(TWO, 6, 60),)),
    Unprotect: lambda _: Unprotect(now=200.0, buckets=frozenset({TWO})),
    Retain: lambda _: Retain(now=200.0, table_id=2, snapshots=(KvSnapshot(TWO, 6, 60),)),
    CheckpointsRead: lambda _: CheckpointsRead(now=200.0),
    AbandonLease: lambda _: AbandonLease(now=200.0, buckets=frozenset({TWO})),
    Acquired: lambda call: Acquired(now=200.0, call=call, protection=Protection(600.0)),
    Verified: lambda call: Verified(now=200.0, call=call, missing=frozenset()),
    Done: lambda call: Done(now=200.0, call=call),
    CallFailed: lambda call: CallFailed(now=200.0, call=call, reason="refused"),
    CallOutcomeUnknown: lambda call: CallOutcomeUnknown(now=200.0, call=call, reason="no answer"),
    CoordinatorChanged: lambda _: CoordinatorChanged(now=200.0),
    StartGeneration: lambda _: StartGeneration(now=200.0),
    LeaseTick: lambda _: LeaseTick(now=200.0),
    LeaseStop: lambda _: LeaseStop(now=200.0, final=False),
}
WAITED_FOR = {
    CallState.ACQUIRING: (Acquired, 1),
    CallState.VERIFYING: (Verified, 2),
    CallState.RENEWING: (Acquired, 3),
    CallState.RELEASING: (Done, 3),
    CallState.STOPPING: (Done, 3),
}
"""Which answer a state waits for, and its call's number."""
_SEED, _STEPS = 1, 25
ANSWERS = (Acquired, Verified, Done, CallFailed, CallOutcomeUnknown)


def _calls(state: CallState, event: type[LeasesEvent]) -> int:
    """Return the call that an answer is for: the one waited for where it fits, else the settled call 1."""
    answer, call = WAITED_FOR.get(state, (None, 1))
    return call if event in (answer, CallFailed, CallOutcomeUnknown) else 1


def _frozen(machine: Leases) -> object:
    return copy.deepcopy((machine.state, machine.held_leases, machine.next_due))


def test_every_event_and_every_state_is_in_this_test() -> None:
    assert set(EVENTS) == set(get_args(LeasesEvent))
    assert set(STATES) == set(CallState)


@pytest.mark.parametrize("state", CallState, ids=lambda state: state.value)
def test_each_state_is_reached(state: CallState) -> None:
    assert _machine(*STATES[state]).state is state


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
@pytest.mark.parametrize("state", CallState, ids=lambda state: state.value)
def test_a_cell_leads_where_the_table_says_or_changes_nothing(state: CallState, event: type[LeasesEvent]) -> None:
    # An answer to a settled call needs one: call 1 is given up first.
    settled = (_PROTECT, CallOutcomeUnknown(now=0.0, call=1, reason="no answer"), _PROTECT)
    machine = _machine(
        *(
            settled
            if (state, event) in ((CallState.ACQUIRING, Verified), (CallState.ACQUIRING, Done))
            else STATES[state]
        )
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
        assert machine.state in allowed.values()


@pytest.mark.parametrize("event", ANSWERS, ids=lambda event: event.__name__)
@pytest.mark.parametrize("state", [s for s in CallState if s is not CallState.FRESH], ids=lambda state: state.value)
def test_an_answer_to_a_settled_call_changes_nothing(state: CallState, event: type[LeasesEvent]) -> None:
    if state is CallState.ACQUIRING:
        machine = _machine(_PROTECT, CallOutcomeUnknown(now=0.0, call=1, reason="no answer"), _PROTECT)
        assert machine.state is CallState.ACQUIRING
    else:
        machine = _machine(*STATES[state])
    held = dict(machine.held_leases.held)

    machine.step(EVENTS[event](1))

    assert dict(machine.held_leases.held) == held
    assert machine.held_leases.lease_id not in {lease_id for lease_id, _ in machine.held_leases.old_ids}


@pytest.mark.parametrize(
    ("state", "event"),
    [(s, e) for s, (right, _) in WAITED_FOR.items() for e in (Acquired, Verified, Done) if e is not right],
    ids=lambda value: getattr(value, "value", getattr(value, "__name__", "")),
)
def test_an_answer_that_does_not_fit_its_call_is_illegal(state: CallState, event: type[LeasesEvent]) -> None:
    machine = _machine(*STATES[state])
    before = _frozen(machine)

    with pytest.raises(IllegalEventError):
        machine.step(EVENTS[event](WAITED_FOR[state][1]))

    assert _frozen(machine) == before


@pytest.mark.parametrize("event", ANSWERS, ids=lambda event: event.__name__)
@pytest.mark.parametrize("state", CallState, ids=lambda state: state.value)
def test_an_answer_to_a_call_that_was_never_made_is_illegal(state: CallState, event: type[LeasesEvent]) -> None:
    machine = _machine(*STATES[state])
    before = _frozen(machine)

    for call in (0, 99):
        with pytest.raises(IllegalEventError):
            machine.step(EVENTS[event](call))

    assert _frozen(machine) == before


class Walk:
    """A machine that is given one legal event after the other, and the calls that it has made."""

    def __init__(self, random: Random) -> None:
        """Start with a fresh machine at 0 seconds."""
        self._random = random
        self.machine = _machine()
        self._now = 0.0
        self._calls: dict[int, type[LeasesEvent]] = {}

    def step(self) -> tuple[CallState, type[LeasesEvent], CallState]:
        """Take an event that is legal; return the cell and where it led."""
        before = self.machine.state
        self._now += self._random.choice([0.0, 0.0, 0.5, 3.0, 70.0, 200.0, 700.0])
        event = self._random.choice([e for e in EVENTS if (before, e) in TRANSITIONS and e is not LeaseStop])
        if event in ANSWERS or self._random.random() < 0.4:
            event = self._answer(before) or LeaseTick
        elif self._random.random() < 0.02 and (before, LeaseStop) in TRANSITIONS:
            event = LeaseStop
        for command in self.machine.step(self._event(event)):
            if isinstance(command, CallAcquire | CallVerify | CallRelease | CallDrop):
                kinds = {CallAcquire: Acquired, CallVerify: Verified, CallRelease: Done, CallDrop: Done}
                self._calls[command.call] = kinds[type(command)]
        return before, event, self.machine.state

    def _answer(self, state: CallState) -> type[LeasesEvent] | None:
        """Choose a call and how it is answered; one of unknown outcome may be answered again."""
        if not self._calls or state is CallState.FRESH:
            return None
        self._call = self._random.choice([max(self._calls), *self._calls])
        event = self._random.choice([self._calls[self._call]] * 3 + [CallFailed, CallOutcomeUnknown])
        if event is not CallOutcomeUnknown:
            del self._calls[self._call]
        return event

    def _event(self, kind: type[LeasesEvent]) -> LeasesEvent:
        """Make an event: about one bucket of two tables, or the answer that was chosen."""
        event = replace(EVENTS[kind](getattr(self, "_call", 1)), now=self._now)
        bucket = self._random.choice([ONE, TWO])
        snapshots = (KvSnapshot(bucket, self._random.choice([5, 6]), 50),) * self._random.choice([0, 1, 1, 1])
        match event:
            case Protect() | Retain():
                event = replace(event, table_id=bucket.table_id, snapshots=snapshots)
            case Unprotect() | AbandonLease():
                event = replace(event, buckets=frozenset({bucket}))
            case Restored() if self._random.random() < 0.5:
                event = replace(event, lease=replace(event.lease, held={}), snapshots=())
            case Acquired() if self._random.random() < 0.2:
                event = replace(event, protection=Protection(600.0, {one.bucket: one.snapshot_id for one in snapshots}))
            case Verified():
                event = replace(event, missing=frozenset(snapshots if self._random.random() < 0.3 else ()))
            case LeaseStop():
                event = replace(event, final=self._random.random() < 0.5)
        return event


def test_every_next_state_of_the_table_is_reached() -> None:
    """A row that promises more than the machine does would hide a mistake; the rarest take some thousand walks."""
    missing = {(state, event, after) for (state, event), row in TRANSITIONS.items() for after in row.values()}
    random = Random(_SEED)  # noqa: S311 - a walk that is the same each time
    for _ in range(40_000):
        walk = Walk(random)
        missing -= {walk.step() for _ in range(_STEPS)}
        if not missing:
            break
    assert {(state.value, event.__name__, after.value) for state, event, after in missing} == set()
