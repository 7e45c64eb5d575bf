"""What an answer to a call of the lease machine may say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.errors import IllegalEventError
from lakeward.machines.leases import Acquired, CallState, Done, Leases, LeasesEvent, Verified
from lakeward_machine_stories.leases import PROTECT, STATES, acquired, done, failed, new, unknown, verified

if TYPE_CHECKING:
    from collections.abc import Callable

WAITED_FOR = {
    CallState.ACQUIRING: (Acquired, 1),
    CallState.VERIFYING: (Verified, 2),
    CallState.RENEWING: (Acquired, 3),
    CallState.RELEASING: (Done, 3),
    CallState.STOPPING: (Done, 3),
}
"""Which answer a state waits for, and its call's number."""
EVENTS: dict[type[LeasesEvent], Callable[[int], LeasesEvent]] = {Acquired: acquired, Verified: verified, Done: done}
ANSWERS = (acquired, verified, done, failed, unknown)


def _machine(*events: LeasesEvent) -> Leases:
    machine = new()
    for event in events:
        machine.step(event)
    return machine


def _frozen(machine: Leases) -> object:
    return machine.state, machine.held_leases, machine.next_due


@pytest.mark.parametrize("state", CallState, ids=lambda state: state.value)
def test_each_state_is_reached(state: CallState) -> None:
    assert _machine(*STATES[state]).state is state


@pytest.mark.parametrize("event", ANSWERS, ids=lambda event: event.__name__)
@pytest.mark.parametrize("state", [s for s in CallState if s is not CallState.FRESH], ids=lambda state: state.value)
def test_an_answer_to_a_settled_call_changes_nothing(state: CallState, event: Callable[[int], LeasesEvent]) -> None:
    if state is CallState.ACQUIRING:
        machine = _machine(PROTECT, unknown(1, 0.0), PROTECT)
        assert machine.state is CallState.ACQUIRING
    else:
        machine = _machine(*STATES[state])
    held = dict(machine.held_leases.held)

    machine.step(event(1))

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
def test_an_answer_to_a_call_that_was_never_made_is_illegal(
    state: CallState, event: Callable[[int], LeasesEvent]
) -> None:
    machine = _machine(*STATES[state])
    before = _frozen(machine)

    for call in (0, 99):
        with pytest.raises(IllegalEventError):
            machine.step(event(call))

    assert _frozen(machine) == before
