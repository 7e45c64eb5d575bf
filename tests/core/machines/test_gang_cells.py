"""Every cell of state x event of the machine `gang`: legal ones stay within their row, others change nothing."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from lakeward.errors import IllegalEventError, UsageError
from lakeward.machines.gang import (
    TRANSITIONS,
    AllWritten,
    DeployMembers,
    EndLaunch,
    GangEvent,
    GangMachine,
    GangPhase,
    MemberConnected,
    MemberFinished,
    MemberLost,
    MemberRegistered,
    RefuseMember,
)
from lakeward.machines.machine_state import next_state
from lakeward.model.partitioning import KEY_GROUPS

if TYPE_CHECKING:
    from lakeward.machines.gang import GangCommand


def registered(subtask: int, attempt: int) -> MemberRegistered:
    return MemberRegistered(subtask=subtask, attempt=attempt)


def connected(subtask: int, attempt: int) -> MemberConnected:
    return MemberConnected(subtask=subtask, attempt=attempt)


def finished(subtask: int, attempt: int, *, all_read: bool = True) -> MemberFinished:
    return MemberFinished(subtask=subtask, attempt=attempt, all_read=all_read)


def lost(subtask: int, attempt: int) -> MemberLost:
    return MemberLost(subtask=subtask, attempt=attempt, reason="gone")


THERE = (registered(1, 1), registered(0, 2))
CONNECTED = (*THERE, connected(0, 2), connected(1, 1))
STORIES: tuple[tuple[GangEvent, ...], ...] = (
    (),
    (registered(1, 1),),
    (registered(1, 1), lost(1, 1)),
    THERE,
    (*THERE, connected(0, 2)),
    CONNECTED,
    (*CONNECTED, finished(1, 1)),
    (*CONNECTED, finished(1, 1), finished(0, 2)),
    (*THERE, lost(0, 2)),
    (*CONNECTED, registered(0, 3)),
)
"""From each of them every event is tried; together they stand in every state."""
TRIED: tuple[GangEvent, ...] = (
    registered(0, 4),
    registered(1, 5),
    registered(2, 6),
    connected(0, 2),
    connected(1, 1),
    connected(0, 9),
    finished(0, 2),
    finished(1, 1),
    finished(0, 2, all_read=False),
    finished(0, 9),
    lost(0, 2),
    lost(1, 1),
    lost(0, 9),
)


def after(*story: GangEvent) -> GangMachine:
    machine = GangMachine(2)
    for event in story:
        machine.step(event)
    return machine


def last_of(*story: GangEvent) -> tuple[GangCommand, ...]:
    """What the last event of a story commands."""
    return after(*story[:-1]).step(story[-1])


def test_the_stories_stand_in_every_state() -> None:
    assert {after(*story).phase for story in STORIES} == {*GangPhase}


@pytest.mark.parametrize("event", TRIED, ids=str)
@pytest.mark.parametrize("story", STORIES, ids=len)
def test_an_event_stays_within_its_row_or_changes_nothing(story: tuple[GangEvent, ...], event: GangEvent) -> None:
    machine = after(*story)
    before = copy.deepcopy(vars(machine))
    try:
        machine.step(event)
    except IllegalEventError:
        assert vars(machine) == before
    else:
        assert machine.phase in TRANSITIONS[before["_phase"], type(event)].values()


def test_every_row_is_taken_and_every_guard_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: set[object] = set()

    def watched(*args: Any, detail: str = "") -> GangPhase:  # noqa: ANN401 - as it is called
        _, _, state, event, guard = args
        found: GangPhase = next_state(*args, detail=detail)
        taken.add((state, type(event), guard))
        return found

    monkeypatch.setattr("lakeward.machines.gang.machine.next_state", watched)
    for story in STORIES:
        for event in TRIED:
            machine = after(*story)
            try:
                machine.step(event)
            except IllegalEventError:
                continue
    assert taken == {(*cell, guard) for cell, row in TRANSITIONS.items() for guard in row}


# --- what it commands -----------------------------------------------------------------------------------------------


def test_nobody_is_deployed_before_all_are_there_and_then_all_are_in_order() -> None:
    assert last_of(registered(1, 1)) == ()
    assert last_of(*THERE) == (DeployMembers(((0, 2), (1, 1))),)


def test_a_task_that_registers_again_while_others_are_awaited_takes_its_place() -> None:
    assert last_of(registered(1, 1), registered(1, 3)) == (RefuseMember(1, 1),)
    assert last_of(registered(1, 1), registered(1, 3), registered(0, 4)) == (DeployMembers(((0, 4), (1, 3))),)


def test_a_task_that_leaves_while_others_are_awaited_is_awaited_again() -> None:
    assert last_of(registered(1, 1), lost(1, 1), registered(0, 2)) == ()
    assert last_of(registered(1, 1), lost(1, 1), registered(0, 2), registered(1, 3)) == (
        DeployMembers(((0, 2), (1, 3))),
    )


@pytest.mark.parametrize("story", [THERE, CONNECTED, (*CONNECTED, finished(0, 2))], ids=len)
def test_any_loss_ends_the_launch_once(story: tuple[GangEvent, ...]) -> None:
    assert last_of(*story, lost(0, 2)) == (EndLaunch("gone"),)
    assert last_of(*story, lost(0, 2), lost(1, 1)) == ()


@pytest.mark.parametrize("story", [THERE, CONNECTED], ids=len)
def test_a_registration_after_the_deployment_is_refused_and_ends_the_launch(story: tuple[GangEvent, ...]) -> None:
    refuse, end = last_of(*story, registered(0, 3))
    assert refuse == RefuseMember(0, 3)
    assert isinstance(end, EndLaunch)
    assert last_of(*story, registered(0, 3), registered(1, 4)) == (RefuseMember(1, 4),)


def test_all_is_written_once_every_member_has_said_so() -> None:
    assert last_of(*CONNECTED, finished(1, 1)) == ()
    assert last_of(*CONNECTED, finished(1, 1), finished(1, 1)) == ()
    assert last_of(*CONNECTED, finished(1, 1), finished(0, 2)) == (AllWritten(),)
    assert last_of(*CONNECTED, finished(1, 1), finished(0, 2), finished(0, 2)) == ()


def test_who_is_lost_after_all_is_written_takes_nothing_along() -> None:
    assert last_of(*CONNECTED, finished(1, 1), finished(0, 2), lost(0, 2)) == ()


@pytest.mark.parametrize(
    "story",
    [
        (*CONNECTED, finished(0, 2, all_read=False)),
        (*THERE, finished(0, 2)),
        (registered(0, 1), connected(0, 1)),
        (registered(2, 1),),
    ],
    ids=["not all read", "not connected", "not deployed", "no such subtask"],
)
def test_what_breaks_the_protocol_is_illegal(story: tuple[GangEvent, ...]) -> None:
    with pytest.raises(IllegalEventError):
        last_of(*story)


@pytest.mark.parametrize("size", [0, KEY_GROUPS + 1])
def test_a_gang_has_no_more_members_than_there_are_key_groups(size: int) -> None:
    with pytest.raises(UsageError, match=f"found {size}"):
        GangMachine(size)
