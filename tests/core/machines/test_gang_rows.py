"""The rules of a gang, written out by hand: what it does next, and what it must not do.

Nothing here is taken from the machine's own table, so a wrong row of that table is a failure here.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from lakeward.errors import IllegalEventError
from lakeward.machines.gang import (
    AllWritten,
    DeployMembers,
    EndLaunch,
    GangCommand,
    GangEvent,
    GangMachine,
    GangPhase,
    MemberConnected,
    MemberFinished,
    MemberLost,
    MemberRegistered,
    RefuseMember,
)

ILLEGAL = None
GATHERING, CONNECTING, EXCHANGING = GangPhase.GATHERING, GangPhase.CONNECTING, GangPhase.EXCHANGING
WRITTEN, BROKEN = GangPhase.WRITTEN, GangPhase.BROKEN
ATTEMPTS = tuple((subtask, attempt) for subtask in (0, 1, 2) for attempt in range(1, 5))


def registers(subtask: int, attempt: int) -> MemberRegistered:
    return MemberRegistered(subtask=subtask, attempt=attempt)


def connects(subtask: int, attempt: int) -> MemberConnected:
    return MemberConnected(subtask=subtask, attempt=attempt)


def finishes(subtask: int, attempt: int, *, all_read: bool = True) -> MemberFinished:
    return MemberFinished(subtask=subtask, attempt=attempt, all_read=all_read)


def lost(subtask: int, attempt: int) -> MemberLost:
    return MemberLost(subtask=subtask, attempt=attempt, reason="silent")


ONE = (registers(1, 1),)
DEPLOYED = (*ONE, registers(0, 2))
ONE_CONNECTED = (*DEPLOYED, connects(0, 2))
CONNECTED = (*ONE_CONNECTED, connects(1, 1))
ONE_FINISHED = (*CONNECTED, finishes(1, 1))
FINISHED = (*ONE_FINISHED, finishes(0, 2))
ENDED = (*CONNECTED, lost(0, 2))
REPLACED = (*ONE, registers(1, 3))
"""A task of a gang that gathers has registered again: attempt 1 is no member."""
DEPLOYED_WITH_THE_NEWER = (*REPLACED, registers(0, 4))


class Row(NamedTuple):
    """A rule of a gang of two: after a story, an event leads to a phase and to commands. Without them it is illegal."""

    rule: str
    story: tuple[GangEvent, ...]
    event: GangEvent
    phase: GangPhase
    commands: tuple[GangCommand, ...] | None


ROWS = (
    # --- gathering --------------------------------------------------------------------------------------------------
    Row("nobody is deployed before all have registered", (), registers(1, 1), GATHERING, ()),
    Row(
        "once all have registered they are deployed, by subtask",
        ONE,
        registers(0, 2),
        CONNECTING,
        (DeployMembers(((0, 2), (1, 1))),),
    ),
    Row("a task that registers again is not two members", ONE, registers(1, 3), GATHERING, (RefuseMember(1, 1),)),
    Row(
        "the newer attempt of a task is deployed",
        REPLACED,
        registers(0, 4),
        CONNECTING,
        (DeployMembers(((0, 4), (1, 3))),),
    ),
    Row("the loss of one that is not deployed ends nothing", ONE, lost(1, 1), GATHERING, ()),
    Row("who was lost is awaited again", (*ONE, lost(1, 1)), registers(0, 2), GATHERING, ()),
    Row(
        "who was lost and registers again completes the gang",
        (*ONE, lost(1, 1), registers(0, 2)),
        registers(1, 3),
        CONNECTING,
        (DeployMembers(((0, 2), (1, 3))),),
    ),
    Row(
        "the loss of an attempt that was replaced takes its successor not along",
        (*REPLACED, lost(1, 1)),
        registers(0, 4),
        CONNECTING,
        (DeployMembers(((0, 4), (1, 3))),),
    ),
    Row("the loss of one for which another was refused ends the launch: Spark may try neither again", REPLACED,
        lost(1, 3), BROKEN, (EndLaunch("silent"),)),
    Row(
        "the loss of one does so though it was awaited again between",
        (*REPLACED, registers(1, 4)),
        lost(1, 4),
        BROKEN,
        (EndLaunch("silent"),),
    ),
    Row("who is not deployed cannot have connected", ONE, connects(1, 1), GATHERING, ILLEGAL),
    Row("who is not deployed cannot have finished", ONE, finishes(1, 1), GATHERING, ILLEGAL),
    Row("a subtask that the launch does not have cannot register", ONE, registers(2, 2), GATHERING, ILLEGAL),
    Row("what an attempt that was replaced says while all gather is late", REPLACED, connects(1, 1), GATHERING, ()),
    Row("a finish of an attempt that was replaced while all gather is late", REPLACED, finishes(1, 1), GATHERING, ()),
    # --- connecting -------------------------------------------------------------------------------------------------
    Row("one that has connected is not all", DEPLOYED, connects(0, 2), CONNECTING, ()),
    Row("one that connects twice is not two", ONE_CONNECTED, connects(0, 2), CONNECTING, ()),
    Row(
        "a connection of an attempt that was replaced counts for nothing",
        (*DEPLOYED_WITH_THE_NEWER, connects(0, 4)),
        connects(1, 1),
        CONNECTING,
        (),
    ),
    Row("rows are exchanged once all have connected", ONE_CONNECTED, connects(1, 1), EXCHANGING, ()),
    Row("nobody has finished before all are connected", ONE_CONNECTED, finishes(0, 2), CONNECTING, ILLEGAL),
    Row("a member that is lost before all are connected ends the launch", DEPLOYED, lost(0, 2), BROKEN,
        (EndLaunch("silent"),)),
    Row(
        "the loss of an attempt that was replaced ends no launch",
        DEPLOYED_WITH_THE_NEWER,
        lost(1, 1),
        CONNECTING,
        (),
    ),
    Row(
        "a task that registers after the deployment is refused, and the launch ends",
        DEPLOYED,
        registers(0, 3),
        BROKEN,
        (RefuseMember(0, 3), EndLaunch("subtask 0 registered again after the launch was deployed")),
    ),
    Row(
        "a finish of an attempt that was replaced is late before all are connected",
        DEPLOYED_WITH_THE_NEWER,
        finishes(1, 1),
        CONNECTING,
        (),
    ),
    # --- exchanging -------------------------------------------------------------------------------------------------
    Row("a member that is lost in the exchange ends the launch", CONNECTED, lost(1, 1), BROKEN,
        (EndLaunch("silent"),)),
    Row("a member that is lost after it finished ends the launch", ONE_FINISHED, lost(1, 1), BROKEN,
        (EndLaunch("silent"),)),
    Row("the loss of an attempt that is no member ends no exchange", CONNECTED, lost(0, 1), EXCHANGING, ()),
    Row("a member that says again that it is connected changes nothing", CONNECTED, connects(0, 2), EXCHANGING, ()),
    Row(
        "a task that registers in the exchange is refused, and the launch ends",
        CONNECTED,
        registers(1, 3),
        BROKEN,
        (RefuseMember(1, 3), EndLaunch("subtask 1 registered again after the launch was deployed")),
    ),
    Row("one that has finished is not all", CONNECTED, finishes(1, 1), EXCHANGING, ()),
    Row("one that finishes twice is not two", ONE_FINISHED, finishes(1, 1), EXCHANGING, ()),
    Row("a finish of an attempt that is no member counts for nothing", ONE_FINISHED, finishes(0, 1), EXCHANGING, ()),
    Row("the last finish writes the round", ONE_FINISHED, finishes(0, 2), WRITTEN, (AllWritten(),)),
    Row(
        "who finishes before every split is finished breaks the protocol",
        ONE_FINISHED,
        finishes(0, 2, all_read=False),
        EXCHANGING,
        ILLEGAL,
    ),
    # --- after the end ----------------------------------------------------------------------------------------------
    Row("a round is written once", FINISHED, finishes(0, 2), WRITTEN, ()),
    Row("who is lost after all is written takes nothing along", FINISHED, lost(0, 2), WRITTEN, ()),
    Row("who registers after all is written is refused and ends nothing", FINISHED, registers(0, 3), WRITTEN,
        (RefuseMember(0, 3),)),
    Row("a connection after all is written changes nothing", FINISHED, connects(0, 2), WRITTEN, ()),
    Row("a launch ends once", ENDED, lost(1, 1), BROKEN, ()),
    Row("who registers after the launch has ended is refused, and nothing more", ENDED, registers(0, 3), BROKEN,
        (RefuseMember(0, 3),)),
    Row(
        "a launch that has ended is not connected any more",
        (*ONE_CONNECTED, lost(0, 2)),
        connects(1, 1),
        BROKEN,
        (),
    ),
    Row(
        "a launch that has ended writes no round",
        (*ONE_FINISHED, lost(1, 1)),
        finishes(0, 2),
        BROKEN,
        (),
    ),
)  # fmt: skip


def observed(machine: GangMachine) -> tuple[object, ...]:
    """All that a gang shows."""
    members = [(machine.is_member(*attempt), machine.is_connected(*attempt)) for attempt in ATTEMPTS]
    return (machine.phase, machine.size, machine.there, members)


@pytest.mark.parametrize("row", ROWS, ids=[row.rule for row in ROWS])
def test_a_gang_keeps_this_rule(row: Row) -> None:
    machine = GangMachine(2)
    for event in row.story:
        machine.step(event)
    if row.commands is ILLEGAL:
        before = observed(machine)
        with pytest.raises(IllegalEventError):
            machine.step(row.event)
        assert observed(machine) == before
    else:
        assert machine.step(row.event) == row.commands
    assert machine.phase is row.phase
