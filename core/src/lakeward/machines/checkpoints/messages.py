"""The events and commands of the machine `checkpoints`; commands are executed in the order in which they come.

An attempt is (subtask, attempt number); the numbers of one subtask grow over the whole round. Snapshots and parts are
opaque here.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from lakeward.machines.machine import AtTime

Attempt = tuple[int, int]
"""Subtask and attempt number."""


# --- events -----------------------------------------------------------------------------------------------------


class _OfAttempt(AtTime, frozen=True, kw_only=True):
    subtask: int
    attempt: int

    @property
    def key(self) -> Attempt:
        """The attempt."""
        return self.subtask, self.attempt


class _About(AtTime, frozen=True, kw_only=True):
    checkpoint: int


class _OfParticipation(_OfAttempt, frozen=True, kw_only=True):
    checkpoint: int


class TimePassed(AtTime, frozen=True, kw_only=True):
    """Time passed: it is `next_due`, or any other time.

    `at_once`: if none runs, a checkpoint starts now, whatever the schedule says; not where none are taken at all.
    `recovers`: the launch recovers, and its first checkpoint starts now, likewise.
    """

    at_once: bool = False
    recovers: bool = False


class SubtaskRegistered(_OfAttempt, frozen=True):
    """A new attempt registered; an older one of the same subtask is lost by that."""


class SubtaskReconnected(_OfAttempt, frozen=True):
    """An attempt has a new connection: control events on the old one may be lost."""


class SubtaskLost(_OfAttempt, frozen=True):
    """An attempt failed, was cancelled, or is gone for good. Repeated, it changes nothing."""


class SubtaskFinished(_OfAttempt, frozen=True):
    """An attempt finished: the coordinator has everything that it did."""


class CloseAcked(_OfParticipation, frozen=True, kw_only=True):
    """An attempt closed its gateway; `sent` is the number of its last data event before that."""

    sent: int


class DataReceived(_OfAttempt, frozen=True, kw_only=True):
    """The coordinator has processed the data events of an attempt up to `number`. Given after each of them."""

    number: int


class DataAcked(_OfAttempt, frozen=True, kw_only=True):
    """An attempt has processed the data events of the coordinator up to `number`."""

    number: int


class SnapshotTaken(_About, frozen=True, kw_only=True):
    """The coordinator's snapshot; `sent` is the number of the last data event that was sent to each attempt.

    `step_due`: a commit is to be made of this checkpoint while the round goes on, and needs all files closed.
    """

    snapshot: object
    sent: Mapping[Attempt, int]
    step_due: bool = False


class SnapshotFailed(_About, frozen=True, kw_only=True):
    """The coordinator could not take its snapshot: this checkpoint fails, nothing else."""

    reason: str


class GatewayOpened(_OfParticipation, frozen=True):
    """An attempt took its snapshot and sends again."""


class PartStored(_OfParticipation, frozen=True, kw_only=True):
    """An attempt's snapshot is stored, and so it was taken."""

    part: object
    snapshot: object


class Declined(_OfParticipation, frozen=True, kw_only=True):
    """An attempt took no snapshot, or could not store it."""

    reason: str


class CheckpointStored(_About, frozen=True):
    """The checkpoint is complete on disk."""


class StoreFailed(_About, frozen=True, kw_only=True):
    """The checkpoint is not on disk, and will not appear there later: an unknown outcome was settled first."""

    reason: str


class LaunchEnded(AtTime, frozen=True):
    """The job's launch is over: all attempts are gone."""


class RoundEnded(AtTime, frozen=True, kw_only=True):
    """The round is committed, failed or cancelled: it takes no more checkpoints.

    `superseded`: no round will be restored from the checkpoint that is being stored, because its rows are in the lake
    or can no longer be read. The event may be repeated when that becomes known.
    """

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


class ParticipantsChanged(Struct, frozen=True):
    """An attempt has come so far that the checkpoint may go on."""


class ParticipantFailed(AtTime, frozen=True, kw_only=True):
    """An attempt cannot contribute to the running checkpoint. `counts`: as a failure of checkpoints."""

    reason: str
    counts: bool = False


class _OfParticipant(Struct, frozen=True):
    key: Attempt


class CheckpointStarted(_OfParticipant, frozen=True):
    """A checkpoint starts, and this attempt is part of it."""


class CutDelivered(_OfParticipant, frozen=True):
    """Everything that was sent before the coordinator's cut has arrived; this attempt is to take its snapshot."""


class ParticipationEnded(_OfParticipant, frozen=True):
    """The checkpoint of this attempt has completed, or its round has ended while it is being stored."""


class CheckpointFailed(_OfParticipant, frozen=True):
    """The checkpoint of this attempt is aborted."""


class AttemptGone(_OfParticipant, frozen=True):
    """This attempt is lost or replaced."""


# --- commands ---------------------------------------------------------------------------------------------------


class _OfAttemptGone(Struct, frozen=True):
    subtask: int
    attempt: int
    reason: str


class Admit(Struct, frozen=True):
    """Deploy this attempt, with a new gateway; both gateways start closed for `closed_for` unless it is None."""

    subtask: int
    attempt: int
    latest: int
    closed_for: int | None


class ReturnSplits(Struct, frozen=True):
    """Return the splits of a lost attempt; once for each attempt, before the next one of its subtask is admitted.

    `snapshot` is its part in the newest completed checkpoint (None: it has none); files that it closed later belong to
    no split. A split that was finished in the meantime stays finished, whatever is in the part.
    """

    subtask: int
    attempt: int
    checkpoint: int | None
    snapshot: object


class _ToAttempt(Struct, frozen=True):
    subtask: int
    attempt: int
    checkpoint: int


class SendClose(_ToAttempt, frozen=True):
    """Send `Close` to this attempt."""


class CloseDownGateways(Struct, frozen=True):
    """Close the coordinator's gateways to these; `TakeSnapshot` follows in the same step."""

    checkpoint: int
    attempts: tuple[Attempt, ...]


class _OfCheckpoint(Struct, frozen=True):
    checkpoint: int


class TakeSnapshot(_OfCheckpoint, frozen=True):
    """Take the coordinator's snapshot now, without a call to another system; answer before any other event."""


class SendTrigger(_ToAttempt, frozen=True):
    """Send `TriggerCheckpoint` to this attempt. `close_files`: with it all files are closed, for a commit."""

    close_files: bool = False


class OpenDownGateway(_ToAttempt, frozen=True):
    """Open the coordinator's gateway to this attempt only."""


class StoreCheckpoint(Struct, frozen=True):
    """Write `_metadata`, on a worker: the coordinator's snapshot, and (part, snapshot) of each subtask."""

    checkpoint: int
    snapshot: object
    parts: tuple[tuple[object, object], ...]


class SendComplete(_ToAttempt, frozen=True):
    """Send `CheckpointComplete` to this attempt."""


class SendAborted(_ToAttempt, frozen=True):
    """Send `CheckpointAborted` to this attempt."""


class Complete(_OfCheckpoint, frozen=True):
    """The checkpoint is complete; all gateways are open by now."""


class Abort(Struct, frozen=True):
    """The checkpoint is aborted: delete its parts. All gateways are open by now."""

    checkpoint: int
    reason: str


class DiscardPart(Struct, frozen=True):
    """This part came too late to count: delete it."""

    checkpoint: int
    part: object


class DiscardCheckpoint(_OfCheckpoint, frozen=True):
    """This checkpoint failed after its round had ended, or completed and is superseded: delete it."""


class FailAttempt(_OfAttemptGone, frozen=True):
    """Fail this attempt over: it lives, but did not acknowledge what was sent to it before the cut."""


class RejectMessage(_OfAttemptGone, frozen=True):
    """Reject the message of this attempt, which is gone, and cancel the attempt."""


class FailRound(Struct, frozen=True):
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
