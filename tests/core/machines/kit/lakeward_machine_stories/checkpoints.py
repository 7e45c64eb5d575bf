"""Stories of the checkpoints of a round with up to three subtasks."""

from __future__ import annotations

from lakeward.machines.checkpoints import CheckpointCoordinator, CheckpointPhase, ParticipantPhase
from lakeward.machines.checkpoints.messages import (
    CheckpointsEvent,
    CheckpointStored,
    CloseAcked,
    DataAcked,
    DataReceived,
    Declined,
    GatewayOpened,
    LaunchEnded,
    PartStored,
    RoundEnded,
    SnapshotFailed,
    SnapshotTaken,
    StoreFailed,
    SubtaskFinished,
    SubtaskLost,
    SubtaskReconnected,
    SubtaskRegistered,
    TimePassed,
)
from lakeward.model.settings import CheckpointSettings

POLICY = CheckpointSettings(interval_s=30, timeout_s=10, pause_s=1, tolerated=1)
NOW = 100.0
"""The first checkpoint is due at 1; all events of the stories below happen then."""


def registered(subtask: int, attempt: int = 1) -> SubtaskRegistered:
    """A new attempt registers."""
    return SubtaskRegistered(now=1, subtask=subtask, attempt=attempt)


def acked_close(subtask: int, attempt: int = 1, sent: int = 2, checkpoint: int = 1) -> CloseAcked:
    """An attempt has closed its gateway."""
    return CloseAcked(now=1, subtask=subtask, attempt=attempt, checkpoint=checkpoint, sent=sent)


def received(subtask: int, attempt: int = 1) -> DataReceived:
    """Two data events of an attempt have arrived."""
    return DataReceived(now=1, subtask=subtask, attempt=attempt, number=2)


def acked(subtask: int, attempt: int = 1) -> DataAcked:
    """An attempt has processed three data events."""
    return DataAcked(now=1, subtask=subtask, attempt=attempt, number=3)


def opened(subtask: int, attempt: int = 1, checkpoint: int = 1) -> GatewayOpened:
    """An attempt has taken its snapshot."""
    return GatewayOpened(now=1, subtask=subtask, attempt=attempt, checkpoint=checkpoint)


def stored(subtask: int, attempt: int = 1, checkpoint: int = 1) -> PartStored:
    """An attempt's part is stored."""
    return PartStored(now=1, subtask=subtask, attempt=attempt, checkpoint=checkpoint, part="p", snapshot="s")


def declined(subtask: int, attempt: int = 1, checkpoint: int = 1) -> Declined:
    """An attempt takes no snapshot."""
    return Declined(now=1, subtask=subtask, attempt=attempt, checkpoint=checkpoint, reason="no")


def lost(subtask: int, attempt: int = 1) -> SubtaskLost:
    """An attempt is lost."""
    return SubtaskLost(now=1, subtask=subtask, attempt=attempt)


def finished(subtask: int, attempt: int = 1) -> SubtaskFinished:
    """An attempt has finished."""
    return SubtaskFinished(now=1, subtask=subtask, attempt=attempt)


def again(subtask: int, attempt: int = 1) -> SubtaskReconnected:
    """An attempt has a new connection."""
    return SubtaskReconnected(now=1, subtask=subtask, attempt=attempt)


DUE, LATE = TimePassed(now=1), TimePassed(now=NOW)
TAKEN = SnapshotTaken(now=1, checkpoint=1, snapshot="c", sent={(0, 1): 3, (1, 1): 0, (0, 2): 3, (2, 1): 0})
FAILED = SnapshotFailed(now=1, checkpoint=1, reason="no")
COMPLETE, BROKEN = CheckpointStored(now=1, checkpoint=1), StoreFailed(now=1, checkpoint=1, reason="no")
LAUNCH_ENDED, ROUND_ENDED = LaunchEnded(now=1), RoundEnded(now=1)

TWO = (registered(0), registered(1))
CLOSING = (*TWO, DUE)
CUTTING = (*CLOSING, acked_close(0), acked_close(1, sent=0))
SNAPPING = (*CUTTING, received(0))
DRAINING = (*SNAPPING, TAKEN)
COLLECTING = (*DRAINING, acked(0))
STORING = (*COLLECTING, opened(0), stored(0), stored(1))
STORIES: tuple[tuple[CheckpointsEvent, ...], ...] = (
    (),
    TWO,
    (registered(0), lost(0)),
    (registered(0), finished(0)),
    (registered(0, 2),),
    CLOSING,
    (*CLOSING, acked_close(0)),
    (*CLOSING, registered(2)),
    (*CLOSING, finished(1)),
    (*CLOSING, received(0), acked_close(0)),
    (*CLOSING, received(0), acked_close(1, sent=0)),
    (*CLOSING, finished(0), finished(1)),
    CUTTING,
    (*CUTTING, finished(1)),
    SNAPPING,
    DRAINING,
    (*DRAINING, finished(1)),
    (*DRAINING, registered(2)),
    COLLECTING,
    (*COLLECTING, opened(0)),
    (*COLLECTING, stored(0)),
    (*COLLECTING, opened(0), stored(1)),
    (*COLLECTING, stored(0), finished(0)),
    (*COLLECTING, stored(0), lost(1)),
    STORING,
    (*STORING, finished(0)),
    (*STORING, lost(0)),
    (*STORING, COMPLETE),
    (*STORING, BROKEN),
    (*STORING, ROUND_ENDED),
    (*STORING, ROUND_ENDED, COMPLETE),
    (*STORING, ROUND_ENDED, RoundEnded(now=1, superseded=True)),
    (*COLLECTING, declined(0)),
    (*COLLECTING, ROUND_ENDED),
    (*TWO, ROUND_ENDED),
)
"""From each of them every event is tried; together they stand in every state."""

BOTH = [(subtask, attempt) for subtask in (0, 1, 2) for attempt in (1, 2)]
TRIED: tuple[CheckpointsEvent, ...] = (
    LATE,
    DUE,
    TimePassed(now=0),
    TAKEN,
    FAILED,
    COMPLETE,
    BROKEN,
    SnapshotTaken(now=1, checkpoint=1, snapshot="c", sent={}),
    SnapshotTaken(now=1, checkpoint=1, snapshot="c", sent={(0, 1): 0, (1, 1): 0, (0, 2): 0, (2, 1): 0}),
    CheckpointStored(now=1, checkpoint=7),
    LAUNCH_ENDED,
    ROUND_ENDED,
    *(kind(*attempt) for attempt in BOTH for kind in (registered, again, lost, finished, received, acked)),
    *(kind(*attempt) for attempt in BOTH for kind in (acked_close, opened, stored, declined)),
    *(kind(0, checkpoint=number) for number in (0, 2) for kind in (acked_close, opened, stored, declined)),
    acked_close(0, sent=9),
)

_HEARD = (
    SubtaskReconnected,
    SubtaskFinished,
    CloseAcked,
    DataReceived,
    DataAcked,
    GatewayOpened,
    PartStored,
    Declined,
)
_EVENTS = {type(event) for event in TRIED}
_SNAPS, _ENDS = {SnapshotTaken, SnapshotFailed}, {CheckpointStored, StoreFailed}
_ELSEWHERE = set(CheckpointPhase) - {CheckpointPhase.SNAPPING}
ILLEGAL = (
    # While the snapshot is taken nothing else happens; only what is being stored can have been stored.
    *((CheckpointPhase.SNAPPING, event) for event in _EVENTS - _SNAPS),
    *((phase, event) for phase in _ELSEWHERE for event in _SNAPS),
    *((phase, event) for phase in _ELSEWHERE - {CheckpointPhase.STORING, CheckpointPhase.ENDING} for event in _ENDS),
    *((phase, SubtaskRegistered) for phase in (CheckpointPhase.ENDING, CheckpointPhase.ENDED)),
    # An attempt registers once, before anything else.
    *((phase, SubtaskRegistered) for phase in set(ParticipantPhase) - {ParticipantPhase.UNKNOWN}),
    *((ParticipantPhase.UNKNOWN, event) for event in _HEARD),
)


def new() -> CheckpointCoordinator:
    """The checkpoints of a round in which nobody has registered."""
    return CheckpointCoordinator(POLICY, now=1 - POLICY.interval_s)
