"""The states of a round's checkpointing and of each attempt in it, and every transition between them.

A row lists where something may go with one event, move by move: the last acknowledgement closes the round of acks and
takes the cut in one step. An attempt's row counts for its own events and for what befalls it through another one's.
No row = the event is illegal there. What an attempt says of a checkpoint that is over is late, not illegal; what an
attempt says that is gone is rejected. Neither moves anything.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from lakeward.machines.checkpoint_protocol import (
    CheckpointAsked,
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
    SubtaskLeft,
    SubtaskLost,
    SubtaskReconnected,
    SubtaskRegistered,
    TimePassed,
)
from lakeward.machines.machine_state import MachineState

if TYPE_CHECKING:
    from collections.abc import Mapping


class CheckpointPhase(MachineState):
    """Where the round's checkpointing stands."""

    IDLE = "idle"
    """None runs."""
    CLOSING = "closing"
    """All were told to close; not all have acknowledged it."""
    CUTTING = "cutting"
    """All are closed; data events that they sent before are still on their way."""
    SNAPPING = "snapping"
    """The coordinator's gateways close and its snapshot is taken, in this very step of the loop."""
    DRAINING = "draining"
    """The snapshot is taken; what the coordinator sent before is not acknowledged everywhere."""
    COLLECTING = "collecting"
    """All were triggered; not all parts are stored."""
    STORING = "storing"
    """`_metadata` is being written. All gateways are open."""
    ENDING = "ending"
    """The round is over, `_metadata` is still being written; it counts unless it is superseded meanwhile."""
    ENDED = "ended"
    """The round is over."""


class AttemptPhase(MachineState):
    """Where an attempt stands towards the checkpoint that runs."""

    UNKNOWN = "unknown"
    """Never registered, and no newer one of its subtask was."""
    OUTSIDE = "outside"
    """Lives; no checkpoint runs, or the running one is not its own."""
    TOLD = "told"
    """Was told to close."""
    SHUT = "shut"
    """Sends no data event."""
    TRIGGERED = "triggered"
    """Was told to take its snapshot."""
    TAKEN = "taken"
    """Took it and sends again; both gateways are open."""
    STORED = "stored"
    """Its part is in the store."""
    LEFT = "left"
    """Was done; everything that it did is in the coordinator's part."""
    GONE = "gone"
    """Lost or replaced."""


State = CheckpointPhase | AttemptPhase
Table = dict[tuple[State, type[CheckpointsEvent]], frozenset[State]]

_IDLE, _CLOSING, _CUTTING = CheckpointPhase.IDLE, CheckpointPhase.CLOSING, CheckpointPhase.CUTTING
_SNAPPING, _DRAINING = CheckpointPhase.SNAPPING, CheckpointPhase.DRAINING
_COLLECTING, _STORING = CheckpointPhase.COLLECTING, CheckpointPhase.STORING
_ENDING, _ENDED = CheckpointPhase.ENDING, CheckpointPhase.ENDED
_UNKNOWN, _OUTSIDE, _TOLD = AttemptPhase.UNKNOWN, AttemptPhase.OUTSIDE, AttemptPhase.TOLD
_SHUT, _TRIGGERED = AttemptPhase.SHUT, AttemptPhase.TRIGGERED
_TAKEN, _STORED = AttemptPhase.TAKEN, AttemptPhase.STORED
_LEFT, _GONE = AttemptPhase.LEFT, AttemptPhase.GONE

CUT_AHEAD = frozenset({_CLOSING, _CUTTING})
"""The coordinator's snapshot is still to come."""
ABORTABLE = CUT_AHEAD | {_SNAPPING, _DRAINING, _COLLECTING}
"""A checkpoint runs and has a deadline; what is being stored is settled by the store's answer alone."""
MEMBERS = frozenset({_TOLD, _SHUT, _TRIGGERED, _TAKEN, _STORED})
"""The attempts that the running checkpoint is made of."""
ALIVE = MEMBERS | {_OUTSIDE}


def _row(*states: State) -> frozenset[State]:
    return frozenset(states)


def _each(event: type[CheckpointsEvent], rows: Mapping[State, frozenset[State]]) -> Table:
    return {(state, event): after for state, after in rows.items()}


def _same(*states: State) -> dict[State, frozenset[State]]:
    return {state: _row(state) for state in states}


def _or_outside(*states: State) -> dict[State, frozenset[State]]:
    """An abort lets every member go back outside."""
    return {state: _row(state, _OUTSIDE) for state in states}


_WAITING = (_IDLE, _CLOSING, _CUTTING, _DRAINING, _COLLECTING, _STORING, _ENDING, _ENDED)
"""All but the one in which nothing else may happen."""
_REGISTERED = (_OUTSIDE, *sorted(MEMBERS, key=lambda phase: phase.value), _LEFT, _GONE)

_ROUND: Table = {
    **_each(
        TimePassed,
        {
            **_same(*_WAITING),
            _IDLE: _row(_IDLE, _CLOSING),
            _CLOSING: _row(_CLOSING, _IDLE),
            _CUTTING: _row(_CUTTING, _IDLE),
            _DRAINING: _row(_DRAINING, _IDLE),
            _COLLECTING: _row(_COLLECTING, _IDLE),
        },
    ),
    **_each(CheckpointAsked, {**_same(*_WAITING), _IDLE: _row(_IDLE, _CLOSING)}),
    **_each(
        SubtaskRegistered,
        {
            _IDLE: _row(_IDLE),
            _CLOSING: _row(_CLOSING, _IDLE),  # it replaces a member
            _CUTTING: _row(_CUTTING, _IDLE),
            _DRAINING: _row(_DRAINING, _IDLE),
            _COLLECTING: _row(_COLLECTING, _IDLE),
            _STORING: _row(_STORING),
        },
    ),
    **_each(SubtaskReconnected, _same(*_WAITING)),
    **_each(
        SubtaskLost,
        {
            **_same(*_WAITING),
            _CLOSING: _row(_CLOSING, _IDLE),
            _CUTTING: _row(_CUTTING, _IDLE),
            _DRAINING: _row(_DRAINING, _IDLE),
            _COLLECTING: _row(_COLLECTING, _IDLE),
        },
    ),
    **_each(
        SubtaskLeft,
        {
            **_same(*_WAITING),
            _CLOSING: _row(_CLOSING, _CUTTING),
            _CUTTING: _row(_CUTTING, _SNAPPING),
            _DRAINING: _row(_DRAINING, _COLLECTING),
            _COLLECTING: _row(_COLLECTING, _STORING, _IDLE),  # aborted: it had opened and took what it did with it
        },
    ),
    **_each(CloseAcked, {**_same(*_WAITING), _CLOSING: _row(_CLOSING, _CUTTING), _CUTTING: _row(_CUTTING, _SNAPPING)}),
    **_each(DataReceived, {**_same(*_WAITING), _CUTTING: _row(_CUTTING, _SNAPPING)}),
    **_each(DataAcked, {**_same(*_WAITING), _DRAINING: _row(_DRAINING, _COLLECTING)}),
    **_each(
        SnapshotTaken,
        {_SNAPPING: _row(_DRAINING), _DRAINING: _row(_COLLECTING), _COLLECTING: _row(_STORING)},
    ),
    **_each(SnapshotFailed, {_SNAPPING: _row(_IDLE)}),
    **_each(GatewayOpened, _same(*_WAITING)),
    **_each(PartStored, {**_same(*_WAITING), _COLLECTING: _row(_COLLECTING, _STORING)}),
    **_each(
        Declined,
        {
            **_same(*_WAITING),
            _CLOSING: _row(_CLOSING, _IDLE),
            _CUTTING: _row(_CUTTING, _IDLE),
            _DRAINING: _row(_DRAINING, _IDLE),
            _COLLECTING: _row(_COLLECTING, _IDLE),
        },
    ),
    **_each(CheckpointStored, {_STORING: _row(_IDLE), _ENDING: _row(_ENDED)}),
    **_each(StoreFailed, {_STORING: _row(_IDLE), _ENDING: _row(_ENDED)}),
    **_each(
        LaunchEnded,
        {
            **_same(*_WAITING),
            _CLOSING: _row(_IDLE),
            _CUTTING: _row(_IDLE),
            _DRAINING: _row(_IDLE),
            _COLLECTING: _row(_IDLE),
        },
    ),
    **_each(RoundEnded, {**dict.fromkeys(_WAITING, _row(_ENDED)), _STORING: _row(_ENDING), _ENDING: _row(_ENDING)}),
}

_ATTEMPT: Table = {
    **_each(TimePassed, {**_or_outside(_TOLD, _SHUT, _TRIGGERED, _TAKEN, _STORED), _OUTSIDE: _row(_OUTSIDE, _TOLD)}),
    **_each(CheckpointAsked, {_OUTSIDE: _row(_OUTSIDE, _TOLD)}),
    **_each(
        SubtaskRegistered,
        {
            _UNKNOWN: _row(_OUTSIDE, _SHUT),
            _OUTSIDE: _row(_GONE),  # replaced
            **dict.fromkeys(MEMBERS, _row(_OUTSIDE)),  # it, or another member, is replaced: aborted
            _STORED: _row(_OUTSIDE, _GONE),  # gone at once where its part is already being stored with the others
        },
    ),
    **_each(SubtaskReconnected, _same(*_REGISTERED)),
    **_each(
        SubtaskLost,
        {
            **_same(_UNKNOWN, _LEFT, _GONE),
            _OUTSIDE: _row(_GONE),
            _TOLD: _row(_OUTSIDE),
            _SHUT: _row(_OUTSIDE),
            _TRIGGERED: _row(_OUTSIDE),
            _TAKEN: _row(_OUTSIDE),
            _STORED: _row(_OUTSIDE, _GONE),
        },
    ),
    **_each(
        SubtaskLeft,
        {
            **_same(_LEFT, _GONE),
            _OUTSIDE: _row(_LEFT),
            _TOLD: _row(_LEFT),
            _SHUT: _row(_LEFT, _TRIGGERED),  # the last one that did not acknowledge what was sent to it left
            _TRIGGERED: _row(_LEFT, _OUTSIDE),
            _TAKEN: _row(_OUTSIDE),
            _STORED: _row(_LEFT, _OUTSIDE),
        },
    ),
    **_each(CloseAcked, {**_same(*_REGISTERED), _TOLD: _row(_TOLD, _SHUT)}),
    **_each(DataReceived, _same(*_REGISTERED)),
    **_each(DataAcked, {**_same(*_REGISTERED), _SHUT: _row(_SHUT, _TRIGGERED)}),
    **_each(SnapshotTaken, {_SHUT: _row(_SHUT, _TRIGGERED)}),
    **_each(SnapshotFailed, {_SHUT: _row(_OUTSIDE)}),
    **_each(GatewayOpened, {**_same(*_REGISTERED), _TRIGGERED: _row(_TRIGGERED, _TAKEN)}),
    **_each(
        PartStored,
        {**_same(*_REGISTERED), _TRIGGERED: _row(_TRIGGERED, _TAKEN), _TAKEN: _row(_TAKEN, _STORED)},
    ),
    **_each(Declined, {**_same(_LEFT, _GONE, _OUTSIDE), **_or_outside(_TOLD, _SHUT, _TRIGGERED, _TAKEN, _STORED)}),
    **_each(CheckpointStored, {_STORED: _row(_OUTSIDE)}),
    **_each(StoreFailed, {_STORED: _row(_OUTSIDE)}),
    **_each(
        LaunchEnded, {**dict.fromkeys(MEMBERS, _row(_OUTSIDE)), _STORED: _row(_OUTSIDE, _GONE), _OUTSIDE: _row(_GONE)}
    ),
    **_each(RoundEnded, dict.fromkeys(MEMBERS, _row(_OUTSIDE))),
}
TRANSITIONS: Mapping[tuple[State, type[CheckpointsEvent]], frozenset[State]] = MappingProxyType({**_ROUND, **_ATTEMPT})
"""(state, event) to the states that may follow; complete: what has no row is illegal."""
