"""The machine of splits: which subtask reads which split, and which results count."""

from __future__ import annotations

from lakeward.machines.splits.commands import (
    Accept,
    AllDone,
    Assign,
    GiveUp,
    NoMore,
    Reject,
    SendFinishEarly,
    SplitsCommand,
    SplitsReturned,
)
from lakeward.machines.splits.enumeration import Enumeration, enumerate_splits
from lakeward.machines.splits.events import (
    AttemptDisconnected,
    AttemptLost,
    AttemptReconnected,
    AttemptRegistered,
    ConnectionsChecked,
    FinishEarlyRequested,
    JobEnded,
    SplitDone,
    SplitRequested,
    SplitsEvent,
    SplitsRested,
)
from lakeward.machines.splits.machine import Splits
from lakeward.machines.splits.transitions import TRANSITIONS, AttemptPhase, ConnectionPhase, SplitPhase

__all__ = [
    "TRANSITIONS",
    "Accept",
    "AllDone",
    "Assign",
    "AttemptDisconnected",
    "AttemptLost",
    "AttemptPhase",
    "AttemptReconnected",
    "AttemptRegistered",
    "ConnectionPhase",
    "ConnectionsChecked",
    "Enumeration",
    "FinishEarlyRequested",
    "GiveUp",
    "JobEnded",
    "NoMore",
    "Reject",
    "SendFinishEarly",
    "SplitDone",
    "SplitPhase",
    "SplitRequested",
    "Splits",
    "SplitsCommand",
    "SplitsEvent",
    "SplitsRested",
    "SplitsReturned",
    "enumerate_splits",
]
