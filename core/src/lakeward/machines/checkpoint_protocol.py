"""What is said to and by the machine `checkpoints`: its events and its commands.

An attempt is (subtask, attempt number); the numbers of one subtask grow over the whole round. Snapshots and parts are
opaque here: they pass through.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Attempt = tuple[int, int]
"""Subtask and attempt number."""

# --- events -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePassed:
    """It is `next_due`, or any other time."""

    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointAsked:
    """Take one now, without waiting for interval and pause; while one runs it changes nothing."""

    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskRegistered:
    """A new attempt is there; an older one of the same subtask is lost with that."""

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
    """An attempt failed, was cancelled, or is gone for good. Said again, it changes nothing."""

    now: float
    subtask: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskLeft:
    """An attempt is done: everything that it did is with the coordinator."""

    now: float
    subtask: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseAcked:
    """An attempt closed its gateway; `sent` is the number of its last data event before the cut."""

    now: float
    subtask: int
    attempt: int
    checkpoint: int
    sent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DataReceived:
    """So many data events of an attempt were processed. Said after each of them."""

    now: float
    subtask: int
    attempt: int
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DataAcked:
    """So many data events were processed by an attempt."""

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
    """An attempt's snapshot is stored; this also says that it was taken."""

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
    """The checkpoint is whole on disk."""

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
    """The round is committed, given up or cancelled: no checkpoint any more.

    `superseded`: nobody will go on from what is being stored, for its rows are in the lake or cannot be had any more.
    May be said again once that is known.
    """

    now: float
    superseded: bool = False


SubtaskWord = (
    SubtaskReconnected
    | SubtaskLost
    | SubtaskLeft
    | CloseAcked
    | DataReceived
    | DataAcked
    | GatewayOpened
    | PartStored
    | Declined
)
"""What an attempt that registered says, or what befalls it."""

CheckpointsEvent = (
    TimePassed
    | CheckpointAsked
    | SubtaskRegistered
    | SubtaskWord
    | SnapshotTaken
    | SnapshotFailed
    | CheckpointStored
    | StoreFailed
    | LaunchEnded
    | RoundEnded
)

# --- commands ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Admit:
    """Deploy this attempt, with a new gateway; both gateways start closed for `closed_for` unless it is None."""

    subtask: int
    attempt: int
    latest: int
    closed_for: int | None


@dataclass(frozen=True, slots=True)
class GiveBack:
    """The splits of a lost attempt come back; once for each, before the next attempt of its subtask is admitted.

    `snapshot` is its newest part that counts (None: it has none); files that it closed later are nobody's. A split
    that was finished in the meantime stays finished, whatever the part says.
    """

    subtask: int
    attempt: int
    checkpoint: int | None
    snapshot: object


@dataclass(frozen=True, slots=True)
class TellClose:
    """Send `Close` to this attempt."""

    subtask: int
    attempt: int
    checkpoint: int


@dataclass(frozen=True, slots=True)
class CloseDownGateways:
    """Close the coordinator's gateways to these; `TakeSnapshot` follows in the same step."""

    checkpoint: int
    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    """Take the coordinator's snapshot now, calling nothing outside; answer before anything else happens."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class TellTrigger:
    """Send `TriggerCheckpoint` to this attempt."""

    subtask: int
    attempt: int
    checkpoint: int


@dataclass(frozen=True, slots=True)
class OpenDownGateway:
    """Open the coordinator's gateway to this attempt alone."""

    subtask: int
    attempt: int
    checkpoint: int


@dataclass(frozen=True, slots=True)
class StoreCheckpoint:
    """Write `_metadata`, on a worker: the coordinator's snapshot, and (part, snapshot) of each subtask."""

    checkpoint: int
    snapshot: object
    parts: tuple[tuple[object, object], ...]


@dataclass(frozen=True, slots=True)
class TellComplete:
    """Send `CheckpointComplete` to this attempt."""

    subtask: int
    attempt: int
    checkpoint: int


@dataclass(frozen=True, slots=True)
class TellAborted:
    """Send `CheckpointAborted` to this attempt."""

    subtask: int
    attempt: int
    checkpoint: int


@dataclass(frozen=True, slots=True)
class Complete:
    """The checkpoint is whole; all gateways are open by now."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class Abort:
    """The checkpoint never happened: delete its parts. All gateways are open by now."""

    checkpoint: int
    reason: str


@dataclass(frozen=True, slots=True)
class DiscardPart:
    """This part came too late to count: delete it."""

    checkpoint: int
    part: object


@dataclass(frozen=True, slots=True)
class DiscardCheckpoint:
    """This checkpoint failed after its round had ended, or became whole and nobody needs it: delete it."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class FailAttempt:
    """Fail this attempt over: it lives, but did not acknowledge what was sent to it before the cut."""

    subtask: int
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class RejectWord:
    """What this attempt said does not count, for it is gone; cancel it."""

    subtask: int
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class FailRound:
    """More checkpoints in a row failed than are tolerated."""

    reason: str


CheckpointsCommand = (
    Admit
    | GiveBack
    | TellClose
    | CloseDownGateways
    | TakeSnapshot
    | TellTrigger
    | OpenDownGateway
    | StoreCheckpoint
    | TellComplete
    | TellAborted
    | Complete
    | Abort
    | DiscardPart
    | DiscardCheckpoint
    | FailAttempt
    | RejectWord
    | FailRound
)
