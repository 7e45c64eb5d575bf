"""The states of a round's checkpoints and of each attempt in them, and every transition between them.

A row gives the next state of one state and event, by guard. One step may make several moves: the last close
acknowledgement ends CLOSING, and the same event ends CUTTING when all data events were processed. An attempt's row
is also used for events of other attempts that affect it.

An event without a row is illegal, and so is a guard that is not in its row. A message about a checkpoint that has
ended is late, not illegal: it changes nothing. A message of an attempt that is gone is rejected.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from lakeward.machines.checkpoints.events import (
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
from lakeward.machines.machine_state import MachineState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class CheckpointPhase(MachineState):
    """The phase of a round's checkpoints."""

    IDLE = "idle"
    """No checkpoint runs."""
    CLOSING = "closing"
    """`Close` was sent to all participants; not all have acknowledged it."""
    CUTTING = "cutting"
    """All participants are closed; data events that they sent before are still in transit."""
    SNAPPING = "snapping"
    """The coordinator's gateways close and its snapshot is taken, in this very step of the loop."""
    DRAINING = "draining"
    """The snapshot is taken; not all data events that the coordinator sent before are acknowledged."""
    COLLECTING = "collecting"
    """All participants were triggered; not all parts are stored."""
    STORING = "storing"
    """`_metadata` is being written. All gateways are open."""
    ENDING = "ending"
    """The round has ended, `_metadata` is still being written; it counts unless it is superseded meanwhile."""
    ENDED = "ended"
    """The round has ended."""


class ParticipantPhase(MachineState):
    """The phase of an attempt in the running checkpoint."""

    UNKNOWN = "unknown"
    """It never registered, and no newer attempt of its subtask did."""
    NOT_PARTICIPATING = "not_participating"
    """It is alive; no checkpoint runs, or it is not part of the running one."""
    CLOSE_SENT = "close_sent"
    """`Close` was sent to it."""
    CLOSED = "closed"
    """It sends no data event."""
    TRIGGERED = "triggered"
    """`TriggerCheckpoint` was sent to it."""
    TAKEN = "taken"
    """It took its snapshot and sends again; both gateways are open."""
    STORED = "stored"
    """Its part is in the store."""
    FINISHED = "finished"
    """It finished; everything that it did is in the coordinator's part."""
    GONE = "gone"
    """It was lost or replaced."""


class CheckpointGuard(MachineState):
    """The condition in which an event finds the machine; it selects the next state in the row of the event."""

    ALWAYS = "always"
    """The row has one next state."""
    UNCHANGED = "unchanged"
    """The message is late or repeated, or something is still awaited."""
    DUE = "checkpoint due"
    """A checkpoint starts."""
    BEFORE_CUT = "before the cut"
    """A checkpoint runs and the coordinator's snapshot is still to come."""
    AFTER_CUT = "after the cut"
    """The coordinator's snapshot was taken, or no checkpoint runs."""
    COUNTS = "message counts"
    """The message is this attempt's own; if it is about a checkpoint, that one runs and the attempt is part of it."""
    ALL_CLOSED = "all closed"
    """Every participant has closed its gateway."""
    ALL_RECEIVED = "all received"
    """The coordinator has processed what every participant sent before it closed."""
    ALL_ACKED = "all acknowledged"
    """Every participant has acknowledged what the coordinator sent before its cut."""
    ALL_STORED = "all stored"
    """Every participant's part is stored."""
    CHECKPOINT_ENDS = "checkpoint ends"
    """The running checkpoint completes or is aborted."""
    LOST = "attempt lost"
    """The attempt is gone."""
    UNKNOWN_CHECKPOINT = "unknown checkpoint"
    """The event is about a checkpoint that does not run or never did. This guard is in no row."""


State = CheckpointPhase | ParticipantPhase
Row = dict[CheckpointGuard, State]
Table = dict[tuple[State, type[CheckpointsEvent]], Row]

_IDLE, _CLOSING, _CUTTING = CheckpointPhase.IDLE, CheckpointPhase.CLOSING, CheckpointPhase.CUTTING
_SNAPPING, _DRAINING = CheckpointPhase.SNAPPING, CheckpointPhase.DRAINING
_COLLECTING, _STORING = CheckpointPhase.COLLECTING, CheckpointPhase.STORING
_ENDING, _ENDED = CheckpointPhase.ENDING, CheckpointPhase.ENDED
_UNKNOWN, _NOT_PARTICIPATING = ParticipantPhase.UNKNOWN, ParticipantPhase.NOT_PARTICIPATING
_CLOSE_SENT, _CLOSED = ParticipantPhase.CLOSE_SENT, ParticipantPhase.CLOSED
_TRIGGERED, _TAKEN, _STORED = ParticipantPhase.TRIGGERED, ParticipantPhase.TAKEN, ParticipantPhase.STORED
_FINISHED, _GONE = ParticipantPhase.FINISHED, ParticipantPhase.GONE
_ALWAYS, _UNCHANGED, _COUNTS = CheckpointGuard.ALWAYS, CheckpointGuard.UNCHANGED, CheckpointGuard.COUNTS
_DUE, _BEFORE_CUT = CheckpointGuard.DUE, CheckpointGuard.BEFORE_CUT
_AFTER_CUT = CheckpointGuard.AFTER_CUT
_ENDS, _LOST = CheckpointGuard.CHECKPOINT_ENDS, CheckpointGuard.LOST
_ALL_CLOSED, _ALL_RECEIVED = CheckpointGuard.ALL_CLOSED, CheckpointGuard.ALL_RECEIVED
_ALL_ACKED, _ALL_STORED = CheckpointGuard.ALL_ACKED, CheckpointGuard.ALL_STORED

BEFORE_CUT = frozenset({_CLOSING, _CUTTING})
"""The coordinator's snapshot is still to come."""
ABORTABLE = BEFORE_CUT | {_SNAPPING, _DRAINING, _COLLECTING}
"""A checkpoint runs and has a deadline. Once `_metadata` is being written, only the store's answer ends it."""
PARTICIPATING = frozenset({_CLOSE_SENT, _CLOSED, _TRIGGERED, _TAKEN, _STORED})
"""The phases of attempts that are part of the running checkpoint."""
ALIVE = PARTICIPATING | {_NOT_PARTICIPATING}

_WAITING = (_IDLE, _CLOSING, _CUTTING, _DRAINING, _COLLECTING, _STORING, _ENDING, _ENDED)
"""All phases of a round except SNAPPING, in which no other event may come."""
_REGISTERED = (_NOT_PARTICIPATING, _CLOSE_SENT, _CLOSED, _TRIGGERED, _TAKEN, _STORED, _FINISHED, _GONE)
_ABORT: dict[State, Row] = {phase: {_ENDS: _IDLE} for phase in (_CLOSING, _CUTTING, _DRAINING, _COLLECTING)}
_LEAVE: dict[State, Row] = {phase: {_ENDS: _NOT_PARTICIPATING} for phase in PARTICIPATING}
_LOSE: dict[State, Row] = {
    **_LEAVE,
    _STORED: {_ENDS: _NOT_PARTICIPATING, _LOST: _GONE},  # its part is already being stored with the others
    _NOT_PARTICIPATING: {_LOST: _GONE},
}


def _rows(event: type[CheckpointsEvent], moves: Mapping[State, Row], stay: Iterable[State] = ()) -> Table:
    """Make one event's rows: `moves` by state, and `stay` for states in which it may also change nothing."""
    table: Table = {(state, event): {_UNCHANGED: state} for state in stay}
    for state, row in moves.items():
        table[state, event] = {**table.get((state, event), {}), **row}
    return table


_ROUND: Table = {
    **_rows(TimePassed, {**_ABORT, _IDLE: {_DUE: _CLOSING}}, _WAITING),
    **_rows(SubtaskRegistered, _ABORT, (_IDLE, _CLOSING, _CUTTING, _DRAINING, _COLLECTING, _STORING)),
    **_rows(SubtaskReconnected, {}, _WAITING),
    **_rows(SubtaskLost, _ABORT, _WAITING),
    **_rows(
        SubtaskFinished,
        {
            _CLOSING: {_ALL_CLOSED: _CUTTING},
            _CUTTING: {_ALL_RECEIVED: _SNAPPING},
            _DRAINING: {_ALL_ACKED: _COLLECTING},
            # Aborted where the attempt sent something after its snapshot and its part is not stored.
            _COLLECTING: {_ALL_STORED: _STORING, _ENDS: _IDLE},
        },
        _WAITING,
    ),
    **_rows(CloseAcked, {_CLOSING: {_ALL_CLOSED: _CUTTING}, _CUTTING: {_ALL_RECEIVED: _SNAPPING}}, _WAITING),
    **_rows(DataReceived, {_CUTTING: {_ALL_RECEIVED: _SNAPPING}}, _WAITING),
    **_rows(DataAcked, {_DRAINING: {_ALL_ACKED: _COLLECTING}}, _WAITING),
    **_rows(
        SnapshotTaken,
        {
            _SNAPPING: {_ALWAYS: _DRAINING},
            _DRAINING: {_ALL_ACKED: _COLLECTING},
            _COLLECTING: {_ALL_STORED: _STORING},  # there is no participant
        },
    ),
    **_rows(SnapshotFailed, {_SNAPPING: {_ENDS: _IDLE}}),
    **_rows(GatewayOpened, {}, _WAITING),
    **_rows(PartStored, {_COLLECTING: {_ALL_STORED: _STORING}}, _WAITING),
    **_rows(Declined, _ABORT, _WAITING),
    **_rows(CheckpointStored, {_STORING: {_ENDS: _IDLE}, _ENDING: {_ENDS: _ENDED}}),
    **_rows(StoreFailed, {_STORING: {_ENDS: _IDLE}, _ENDING: {_ENDS: _ENDED}}),
    **_rows(LaunchEnded, _ABORT, (_IDLE, _STORING, _ENDING, _ENDED)),
    **_rows(
        RoundEnded,
        {
            **{phase: {_ENDS: _ENDED} for phase in _ABORT},
            **{phase: {_ALWAYS: _ENDED} for phase in (_IDLE, _ENDED)},
            **{phase: {_ALWAYS: _ENDING} for phase in (_STORING, _ENDING)},
        },
    ),
}

_ATTEMPT: Table = {
    **_rows(TimePassed, {**_LEAVE, _NOT_PARTICIPATING: {_DUE: _CLOSE_SENT}}, ALIVE),
    **_rows(SubtaskRegistered, {**_LOSE, _UNKNOWN: {_BEFORE_CUT: _CLOSED, _AFTER_CUT: _NOT_PARTICIPATING}}),
    **_rows(SubtaskReconnected, {}, _REGISTERED),
    **_rows(SubtaskLost, _LOSE, (_UNKNOWN, _FINISHED, _GONE)),
    **_rows(
        SubtaskFinished,
        {
            _NOT_PARTICIPATING: {_COUNTS: _FINISHED},
            _CLOSE_SENT: {_COUNTS: _FINISHED},
            # It was the last one that had not acknowledged what was sent to it: the others are triggered.
            _CLOSED: {_COUNTS: _FINISHED, _ALL_ACKED: _TRIGGERED},
            _TRIGGERED: {_COUNTS: _FINISHED, _ENDS: _NOT_PARTICIPATING},
            _TAKEN: {_ENDS: _NOT_PARTICIPATING},
            _STORED: {_COUNTS: _FINISHED, _ENDS: _NOT_PARTICIPATING},
        },
        (_FINISHED, _GONE),
    ),
    **_rows(CloseAcked, {_CLOSE_SENT: {_COUNTS: _CLOSED}}, _REGISTERED),
    **_rows(DataReceived, {}, _REGISTERED),
    **_rows(DataAcked, {_CLOSED: {_ALL_ACKED: _TRIGGERED}}, _REGISTERED),
    **_rows(SnapshotTaken, {_CLOSED: {_ALL_ACKED: _TRIGGERED}}, (_CLOSED,)),
    **_rows(SnapshotFailed, {_CLOSED: {_ENDS: _NOT_PARTICIPATING}}),
    **_rows(
        GatewayOpened,
        {_TRIGGERED: {_COUNTS: _TAKEN}, _TAKEN: {_COUNTS: _TAKEN}, _STORED: {_COUNTS: _STORED}},
        _REGISTERED,
    ),
    **_rows(
        PartStored,
        {_TRIGGERED: {_COUNTS: _TAKEN}, _TAKEN: {_COUNTS: _STORED}, _STORED: {_COUNTS: _STORED}},
        _REGISTERED,
    ),
    **_rows(Declined, _LEAVE, _REGISTERED),
    **_rows(CheckpointStored, {_STORED: {_ENDS: _NOT_PARTICIPATING}}),
    **_rows(StoreFailed, {_STORED: {_ENDS: _NOT_PARTICIPATING}}),
    **_rows(LaunchEnded, _LOSE),
    **_rows(RoundEnded, _LEAVE),
}
TRANSITIONS: Mapping[tuple[State, type[CheckpointsEvent]], Mapping[CheckpointGuard, State]] = MappingProxyType(
    {**_ROUND, **_ATTEMPT}
)
"""(state, event) to the next state by guard. Complete: what is not in it is illegal."""
