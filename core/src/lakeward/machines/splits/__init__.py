"""The machine of splits: which subtask reads which split, and which results count."""

from __future__ import annotations

from lakeward.machines.splits.enumeration import Enumeration, enumerate_splits
from lakeward.machines.splits.messages import (
    Accept,
    AllDone,
    Assign,
    AttemptDisconnected,
    AttemptLost,
    AttemptReconnected,
    AttemptRegistered,
    ConnectionsChecked,
    FinishEarlyRequested,
    GiveUp,
    JobEnded,
    NoMore,
    Reject,
    SendFinishEarly,
    SplitDone,
    SplitRequested,
    SplitsCommand,
    SplitsEvent,
    SplitsRested,
    SplitsReturned,
)
from lakeward.machines.splits.rules import ATTEMPTS, CONNECTIONS, ROUND, SPLITS, Splits
from lakeward.machines.splits.state import AttemptPhase, ConnectionPhase, ReadingPhase, SplitPhase

__all__ = [
    "ATTEMPTS",
    "CONNECTIONS",
    "ROUND",
    "SPLITS",
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
    "ReadingPhase",
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
