"""The machine of one gang: the subtasks of a launch that exchange rows, which run and end together."""

from __future__ import annotations

from lakeward.machines.gang.machine import GangMachine
from lakeward.machines.gang.protocol import (
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
from lakeward.machines.gang.transitions import TRANSITIONS, GangGuard, GangPhase

__all__ = [
    "TRANSITIONS",
    "AllWritten",
    "DeployMembers",
    "EndLaunch",
    "GangCommand",
    "GangEvent",
    "GangGuard",
    "GangMachine",
    "GangPhase",
    "MemberConnected",
    "MemberFinished",
    "MemberLost",
    "MemberRegistered",
    "RefuseMember",
]
