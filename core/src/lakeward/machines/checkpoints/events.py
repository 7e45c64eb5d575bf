"""The events of the machine `checkpoints`: what subtasks, the store, the job and the clock report.

An attempt is (subtask, attempt number); the numbers of one subtask grow over the whole round. Snapshots and parts are
opaque here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Attempt = tuple[int, int]
"""Subtask and attempt number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePassed:
    """Time passed: it is `next_due`, or any other time.

    `at_once`: if none runs, a checkpoint starts now, whatever the schedule says; not where none are taken at all.
    """

    now: float
    at_once: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskRegistered:
    """A new attempt registered; an older one of the same subtask is lost by that."""

    now: float
    subtask: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskReconnected:
    """An attempt has a new connection: control events on the old one may be lost."""

    now: float
    subtask: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskLost:
    """An attempt failed, was cancelled, or is gone for good. Repeated, it changes nothing."""

    now: float
    subtask: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskFinished:
    """An attempt finished: the coordinator has everything that it did."""

    now: float
    subtask: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseAcked:
    """An attempt closed its gateway; `sent` is the number of its last data event before that."""

    now: float
    subtask: int
    attempt: int
    checkpoint: int
    sent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DataReceived:
    """The coordinator has processed the data events of an attempt up to `number`. Given after each of them."""

    now: float
    subtask: int
    attempt: int
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DataAcked:
    """An attempt has processed the data events of the coordinator up to `number`."""

    now: float
    subtask: int
    attempt: int
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotTaken:
    """The coordinator's snapshot; `sent` is the number of the last data event that was sent to each attempt."""

    now: float
    checkpoint: int
    snapshot: object
    sent: Mapping[Attempt, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFailed:
    """The coordinator could not take its snapshot: this checkpoint fails, nothing else."""

    now: float
    checkpoint: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOpened:
    """An attempt took its snapshot and sends again."""

    now: float
    subtask: int
    attempt: int
    checkpoint: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartStored:
    """An attempt's snapshot is stored, and so it was taken."""

    now: float
    subtask: int
    attempt: int
    checkpoint: int
    part: object
    snapshot: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Declined:
    """An attempt took no snapshot, or could not store it. `counts`: as a failure."""

    now: float
    subtask: int
    attempt: int
    checkpoint: int
    reason: str
    counts: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointStored:
    """The checkpoint is complete on disk."""

    now: float
    checkpoint: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFailed:
    """The checkpoint is not on disk, and will not appear there later: an unknown outcome was settled first."""

    now: float
    checkpoint: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchEnded:
    """The job's launch is over: all attempts are gone."""

    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundEnded:
    """The round is committed, failed or cancelled: it takes no more checkpoints.

    `superseded`: no round will be restored from the checkpoint that is being stored, because its rows are in the lake
    or can no longer be read. The event may be repeated when that becomes known.
    """

    now: float
    superseded: bool = False


SubtaskEvent = (
    SubtaskReconnected
    | SubtaskLost
    | SubtaskFinished
    | CloseAcked
    | DataReceived
    | DataAcked
    | GatewayOpened
    | PartStored
    | Declined
)
"""What an attempt that registered sends, and what happens to it."""

CheckpointsEvent = (
    TimePassed
    | SubtaskRegistered
    | SubtaskEvent
    | SnapshotTaken
    | SnapshotFailed
    | CheckpointStored
    | StoreFailed
    | LaunchEnded
    | RoundEnded
)
