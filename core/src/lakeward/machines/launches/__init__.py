"""The machine of a round's launches: Spark's jobs, one after the other, until everything is written."""

from __future__ import annotations

from lakeward.machines.launches.messages import (
    AllRead,
    CancelLaunch,
    CountSlots,
    Launch,
    LaunchesCommand,
    LaunchesEvent,
    LaunchFinished,
    LaunchLost,
    LaunchRequested,
    PauseOver,
    ReturnWork,
    RoundOver,
    SlotsKnown,
    StoreAnswered,
    SubtaskDeployed,
    TellAgain,
    TellDrained,
    TellLaunchesFailed,
    TellLost,
    TellOver,
    TellStarted,
    WorkReturned,
)
from lakeward.machines.launches.rules import RULES, Launches
from lakeward.machines.launches.state import LaunchPhase

__all__ = [
    "RULES",
    "AllRead",
    "CancelLaunch",
    "CountSlots",
    "Launch",
    "LaunchFinished",
    "LaunchLost",
    "LaunchPhase",
    "LaunchRequested",
    "Launches",
    "LaunchesCommand",
    "LaunchesEvent",
    "PauseOver",
    "ReturnWork",
    "RoundOver",
    "SlotsKnown",
    "StoreAnswered",
    "SubtaskDeployed",
    "TellAgain",
    "TellDrained",
    "TellLaunchesFailed",
    "TellLost",
    "TellOver",
    "TellStarted",
    "WorkReturned",
]
