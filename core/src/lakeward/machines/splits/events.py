"""The events of the machine `splits`: what attempts of subtasks and their job report.

An attempt is (subtask, attempt number). The numbers of one subtask grow over the whole round, also from one job to
the next: that is how a late event of an earlier attempt is recognized.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRegistered:
    """A subtask's attempt is ready. An older attempt of the same subtask is replaced: its splits are returned.

    The same attempt once more (it reconnected) changes nothing. `restored` are the withheld splits whose result this
    attempt sends again.
    """

    now: float
    subtask: int
    attempt: int
    restored: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRequested:
    """An attempt has nothing to read, or wants the next split while it still closes files of the last one."""

    now: float
    subtask: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitDone:
    """An attempt closed all files of a split. `end_offset` is the first offset not contained.

    Before `stop` only while finishing early; a snapshot split ends at its log offset, or later if it is a live scan.
    Repeated, it changes nothing.
    """

    now: float
    subtask: int
    attempt: int
    split_id: str
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLost:
    """An attempt failed, was cancelled, or its connection is gone for good: its splits are returned."""

    now: float
    subtask: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptDisconnected:
    """The connection of an attempt closed; it may come back on another one."""

    now: float
    subtask: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptReconnected:
    """The same attempt goes on over another connection."""

    now: float
    subtask: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionsChecked:
    """Time passed: an attempt may have been disconnected for too long."""

    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitsRested:
    """Time passed: a split that failed again and again may be due for its next try."""

    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnded:
    """The job has ended, successfully or not: all attempts are gone, unfinished splits are returned."""

    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishEarlyRequested:
    """The round is to finish early; repeated, it changes nothing."""

    now: float


SplitsEvent = (
    AttemptRegistered
    | SplitRequested
    | SplitDone
    | AttemptLost
    | AttemptDisconnected
    | AttemptReconnected
    | ConnectionsChecked
    | SplitsRested
    | JobEnded
    | FinishEarlyRequested
)
