"""The machine of one gang: the subtasks of a launch that exchange rows, which run and end together."""

from __future__ import annotations

from lakeward.machines.gang.messages import (
    AllWritten,
    DeployMembers,
    EndLaunch,
    GangCommand,
    GangEvent,
    MemberConnected,
    MemberFinished,
    MemberLost,
    MemberRegistered,
    RefuseMember,
)
from lakeward.machines.gang.rules import RULES, GangMachine
from lakeward.machines.gang.state import GangPhase

__all__ = [
    "RULES",
    "AllWritten",
    "DeployMembers",
    "EndLaunch",
    "GangCommand",
    "GangEvent",
    "GangMachine",
    "GangPhase",
    "MemberConnected",
    "MemberFinished",
    "MemberLost",
    "MemberRegistered",
    "RefuseMember",
]
