"""What a gang commands, and what breaks its protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.errors import IllegalEventError, UsageError
from lakeward.machines.gang import AllWritten, DeployMembers, EndLaunch, GangEvent, GangMachine, RefuseMember
from lakeward.model.partitioning import KEY_GROUPS
from lakeward_machine_stories.gang import CONNECTED, THERE, connected, finished, lost, new, registered

if TYPE_CHECKING:
    from lakeward.machines.gang import GangCommand


def last_of(*story: GangEvent) -> tuple[GangCommand, ...]:
    """What the last event of a story commands."""
    machine = new()
    for event in story[:-1]:
        machine.step(event)
    return machine.step(story[-1])


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
