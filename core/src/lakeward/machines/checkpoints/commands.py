"""The commands of the machine `checkpoints`: what the coordinator does, in the order in which they are returned."""

from __future__ import annotations

from dataclasses import dataclass

from lakeward.machines.checkpoints.events import Attempt


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
class SendClose:
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
    """Take the coordinator's snapshot now, without a call to another system; answer before any other event."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class SendTrigger:
    """Send `TriggerCheckpoint` to this attempt."""

    subtask: int
    attempt: int
    checkpoint: int


@dataclass(frozen=True, slots=True)
class OpenDownGateway:
    """Open the coordinator's gateway to this attempt only."""

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
class SendComplete:
    """Send `CheckpointComplete` to this attempt."""

    subtask: int
    attempt: int
    checkpoint: int


@dataclass(frozen=True, slots=True)
class SendAborted:
    """Send `CheckpointAborted` to this attempt."""

    subtask: int
    attempt: int
    checkpoint: int


@dataclass(frozen=True, slots=True)
class Complete:
    """The checkpoint is complete; all gateways are open by now."""

    checkpoint: int


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


@dataclass(frozen=True, slots=True)
class DiscardCheckpoint:
    """This checkpoint failed after its round had ended, or completed and is superseded: delete it."""

    checkpoint: int


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
