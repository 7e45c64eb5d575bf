"""The events of the machine `alignment`: what a consumer's channels, its coordinator and the clock report.

A channel is the number of its producer. `now` is in seconds on the subtask's clock. Batches stay outside: a machine
sees their channel and their sequence, which counts from 0 in each channel.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReceived:
    """The next batch of a channel has arrived."""

    channel: int
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchConsumed:
    """The writer takes the oldest batch of a channel that it has not taken yet; only where `may_consume` allows it."""

    channel: int
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BarrierReceived:
    """A channel's barrier arrived, `age_s` seconds after the checkpoint was triggered."""

    now: float
    channel: int
    checkpoint: int
    first_after: int
    age_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OvertakenReceived:
    """A channel's producer keeps the batches from `first` up to its barrier for the checkpoint."""

    now: float
    channel: int
    checkpoint: int
    first: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndReceived:
    """Nothing comes in a channel after the batch before `first_after`."""

    channel: int
    first_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTriggered:
    """The subtask begins a checkpoint, `age_s` seconds after its coordinator's trigger had come.

    Its readers' state and its own barriers belong to this moment; the time to be aligned counts from the trigger.
    """

    now: float
    checkpoint: int
    age_s: float = 0.0
    close_files: bool = False
    """It is aligned, however long that takes."""
    at_once: bool = False
    """It does not wait to be aligned: channels stand still until restored rows are written."""


@dataclass(frozen=True, slots=True)
class BarrierAborted:
    """A checkpoint will not be: the coordinator, a peer or the store says so. Allowed for any number, also twice.

    The producers' queues take it as well.
    """

    checkpoint: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutChecked:
    """The clock was looked at: it is `deadline`, or any other time."""

    now: float


AlignmentEvent = (
    BatchReceived
    | BatchConsumed
    | BarrierReceived
    | OvertakenReceived
    | EndReceived
    | CheckpointTriggered
    | BarrierAborted
    | TimeoutChecked
)
