"""The events and commands of the machine `checkpoints`; commands are executed in the order in which they come.

An attempt is (subtask, attempt number); the numbers of one subtask grow over the whole round. Snapshots and parts are
opaque here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Attempt = tuple[int, int]
"""Subtask and attempt number."""


# --- events -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePassed:
    """Time passed: it is `next_due`, or any other time.

    `at_once`: if none runs, a checkpoint starts now, whatever the schedule says; not where none are taken at all.
    `recovers`: the launch recovers, and its first checkpoint starts now, likewise.
    """

    now: float
    at_once: bool = False
    recovers: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfAttempt:
    now: float
    subtask: int
    attempt: int


class SubtaskRegistered(_OfAttempt):
    """A new attempt registered; an older one of the same subtask is lost by that."""


class SubtaskReconnected(_OfAttempt):
    """An attempt has a new connection: control events on the old one may be lost."""


class SubtaskLost(_OfAttempt):
    """An attempt failed, was cancelled, or is gone for good. Repeated, it changes nothing."""


class SubtaskFinished(_OfAttempt):
    """An attempt finished: the coordinator has everything that it did."""


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
    """The coordinator's snapshot; `sent` is the number of the last data event that was sent to each attempt.

    `step_due`: a commit is to be made of this checkpoint while the round goes on, and needs all files closed.
    """

    now: float
    checkpoint: int
    snapshot: object
    sent: Mapping[Attempt, int]
    step_due: bool = False


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
    """An attempt took no snapshot, or could not store it."""

    now: float
    subtask: int
    attempt: int
    checkpoint: int
    reason: str


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

# --- events that follow from others -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ParticipantsChanged:
    """An attempt has come so far that the checkpoint may go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParticipantFailed:
    """An attempt cannot contribute to the running checkpoint. `counts`: as a failure of checkpoints."""

    now: float
    reason: str
    counts: bool = False


@dataclass(frozen=True, slots=True)
class _OfParticipant:
    attempt: Attempt


class CheckpointStarted(_OfParticipant):
    """A checkpoint starts, and this attempt is part of it."""


class CutDelivered(_OfParticipant):
    """Everything that was sent before the coordinator's cut has arrived; this attempt is to take its snapshot."""


class ParticipationEnded(_OfParticipant):
    """The checkpoint of this attempt has completed, or its round has ended while it is being stored."""


class CheckpointFailed(_OfParticipant):
    """The checkpoint of this attempt is aborted."""


class AttemptGone(_OfParticipant):
    """This attempt is lost or replaced."""


# --- commands ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Admit:
    """Deploy this attempt, with a new gateway; both gateways start closed for `closed_for` unless it is None."""

    subtask: int
    attempt: int
    latest: int
    closed_for: int | None


@dataclass(frozen=True, slots=True)
class ReturnSplits:
    """Return the splits of a lost attempt; once for each attempt, before the next one of its subtask is admitted.

    `snapshot` is its part in the newest completed checkpoint (None: it has none); files that it closed later belong to
    no split. A split that was finished in the meantime stays finished, whatever is in the part.
    """

    subtask: int
    attempt: int
    checkpoint: int | None
    snapshot: object


@dataclass(frozen=True, slots=True)
class _ToAttempt:
    subtask: int
    attempt: int
    checkpoint: int


class SendClose(_ToAttempt):
    """Send `Close` to this attempt."""


@dataclass(frozen=True, slots=True)
class CloseDownGateways:
    """Close the coordinator's gateways to these; `TakeSnapshot` follows in the same step."""

    checkpoint: int
    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class _OfCheckpoint:
    checkpoint: int


class TakeSnapshot(_OfCheckpoint):
    """Take the coordinator's snapshot now, without a call to another system; answer before any other event."""


@dataclass(frozen=True, slots=True)
class SendTrigger:
    """Send `TriggerCheckpoint` to this attempt. `close_files`: with it all files are closed, for a commit."""

    subtask: int
    attempt: int
    checkpoint: int
    close_files: bool = False


class OpenDownGateway(_ToAttempt):
    """Open the coordinator's gateway to this attempt only."""


@dataclass(frozen=True, slots=True)
class StoreCheckpoint:
    """Write `_metadata`, on a worker: the coordinator's snapshot, and (part, snapshot) of each subtask."""

    checkpoint: int
    snapshot: object
    parts: tuple[tuple[object, object], ...]


class SendComplete(_ToAttempt):
    """Send `CheckpointComplete` to this attempt."""


class SendAborted(_ToAttempt):
    """Send `CheckpointAborted` to this attempt."""


class Complete(_OfCheckpoint):
    """The checkpoint is complete; all gateways are open by now."""


@dataclass(frozen=True, slots=True)
class Abort:
    """The checkpoint is aborted: delete its parts. All gateways are open by now."""

    checkpoint: int
    reason: str


@dataclass(frozen=True, slots=True)
class DiscardPart:
    """This part came too late to count: delete it."""

    checkpoint: int
    part: object


class DiscardCheckpoint(_OfCheckpoint):
    """This checkpoint failed after its round had ended, or completed and is superseded: delete it."""


@dataclass(frozen=True, slots=True)
class FailAttempt:
    """Fail this attempt over: it lives, but did not acknowledge what was sent to it before the cut."""

    subtask: int
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class RejectMessage:
    """Reject the message of this attempt, which is gone, and cancel the attempt."""

    subtask: int
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class FailRound:
    """More checkpoints in a row failed than are tolerated."""

    reason: str


CheckpointsCommand = (
    Admit
    | ReturnSplits
    | SendClose
    | CloseDownGateways
    | TakeSnapshot
    | SendTrigger
    | OpenDownGateway
    | StoreCheckpoint
    | SendComplete
    | SendAborted
    | Complete
    | Abort
    | DiscardPart
    | DiscardCheckpoint
    | FailAttempt
    | RejectMessage
    | FailRound
)
