"""The states of splits, of attempts and of their connections, and every transition between them.

A row gives the next state of one state and event, by guard. One step may make several moves: a split may be returned
and assigned again. An attempt's row is also used for events of other attempts that affect it.

An event without a row is illegal, and so is a guard that is not in its row. An event of an attempt that was replaced
or lost is late, not illegal: it is rejected and changes nothing.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from lakeward.machines.machine_state import MachineState
from lakeward.machines.splits.events import (
    AttemptDisconnected,
    AttemptLost,
    AttemptReconnected,
    AttemptRegistered,
    ConnectionsChecked,
    FinishEarlyRequested,
    JobEnded,
    SplitDone,
    SplitRequested,
    SplitsEvent,
    SplitsRested,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class SplitPhase(MachineState):
    """The phase of a split."""

    UNASSIGNED = "unassigned"
    WITHHELD = "withheld"
    """Finished before a restore; the attempt that it is assigned to sends its result again."""
    ASSIGNED = "assigned"
    FINISHED = "finished"
    SKIPPED = "skipped"
    """Not read, because the round finishes early."""


class AttemptPhase(MachineState):
    """The phase of a subtask's attempt."""

    UNKNOWN = "unknown"
    """It never registered, and no newer attempt of its subtask did."""
    READY = "ready"
    """It registered, holds no split and has not requested one."""
    READING = "reading"
    """It holds at least one split."""
    IDLE = "idle"
    """It requested a split and got none; it is served when a split is returned."""
    DISMISSED = "dismissed"
    """`NoMore` was sent to it."""
    GONE = "gone"
    """It was lost or replaced, or its job ended."""


class ConnectionPhase(MachineState):
    """Where the connection of an attempt stands; an attempt that is gone has none."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    """It closed; the attempt may reconnect."""
    GIVEN_UP = "given_up"
    """It was closed for too long: the attempt is about to be reported as lost."""


class SplitGuard(MachineState):
    """The condition in which an event finds the machine; it selects the next state in the row of the event."""

    ALWAYS = "always"
    """The row has one next state."""
    UNCHANGED = "unchanged"
    """The event does not concern it, or comes late, or is repeated."""
    ASSIGNED = "split assigned"
    """The split is assigned to the attempt."""
    COUNTS = "finish counts"
    """The attempt holds the split and read all of it, or as much as a round that finishes early needs."""
    NOT_ALLOWED = "finish not allowed"
    """The split is not of this round, its attempt does not hold it, or its end offset is wrong. It is in no row."""
    RETURNED = "split returned"
    """The attempt that held it is gone."""
    RETURNED_WITHHELD = "withheld split returned"
    """The attempt that held it is gone; only its result has to be sent again."""
    RETURNED_EARLY = "split returned while finishing early"
    """The attempt that held it is gone, and the round finishes early."""
    LOST = "attempt lost"
    """The attempt is gone."""
    NONE_HELD = "no split held"
    """The attempt finished its last split and has not requested another one."""
    NONE_FREE = "no split free"
    """The attempt requested a split and none is free."""
    ALL_DONE = "all done"
    """Every split is finished or skipped."""
    OVERDUE = "overdue"
    """The attempt has not reconnected in time."""


State = SplitPhase | AttemptPhase | ConnectionPhase
Row = dict[SplitGuard, State]
Table = dict[tuple[State, type[SplitsEvent]], Row]

_UNASSIGNED, _ASSIGNED, _WITHHELD = SplitPhase.UNASSIGNED, SplitPhase.ASSIGNED, SplitPhase.WITHHELD
_FINISHED, _SKIPPED = SplitPhase.FINISHED, SplitPhase.SKIPPED
_UNKNOWN, _READY, _READING = AttemptPhase.UNKNOWN, AttemptPhase.READY, AttemptPhase.READING
_IDLE, _DISMISSED, _GONE = AttemptPhase.IDLE, AttemptPhase.DISMISSED, AttemptPhase.GONE
_CONNECTED, _DISCONNECTED, _GIVEN_UP = (
    ConnectionPhase.CONNECTED,
    ConnectionPhase.DISCONNECTED,
    ConnectionPhase.GIVEN_UP,
)
_G = SplitGuard

_ASSIGNMENT: dict[State, Row] = {_UNASSIGNED: {_G.ASSIGNED: _ASSIGNED}}
_RETURNED: dict[State, Row] = {
    _ASSIGNED: {
        _G.RETURNED: _UNASSIGNED,
        _G.RETURNED_WITHHELD: _WITHHELD,
        _G.RETURNED_EARLY: _SKIPPED,
    }
}
_LOST: dict[State, Row] = {phase: {_G.LOST: _GONE} for phase in (_READY, _READING, _IDLE, _DISMISSED)}
_ENDED = (_FINISHED, _SKIPPED)


def _rows(event: type[SplitsEvent], moves: Mapping[State, Row], stay: Iterable[State] = ()) -> Table:
    """Make one event's rows: `moves` by state, and `stay` for states in which it may also change nothing."""
    table: Table = {(state, event): {_G.UNCHANGED: state} for state in stay}
    for state, row in moves.items():
        table[state, event] = {**table.get((state, event), {}), **row}
    return table


_SPLIT: Table = {
    **_rows(AttemptRegistered, {**_ASSIGNMENT, **_RETURNED, _WITHHELD: {_G.ASSIGNED: _ASSIGNED}}, SplitPhase),
    **_rows(SplitRequested, _ASSIGNMENT, SplitPhase),
    **_rows(SplitDone, {_ASSIGNED: {_G.COUNTS: _FINISHED}}, SplitPhase),
    **_rows(AttemptLost, {**_ASSIGNMENT, **_RETURNED}, SplitPhase),
    **_rows(SplitsRested, _ASSIGNMENT, SplitPhase),
    **_rows(JobEnded, _RETURNED, (_UNASSIGNED, _WITHHELD, *_ENDED)),
    # A split that is being read is still finished, and the result of a withheld one still comes.
    **_rows(FinishEarlyRequested, {_UNASSIGNED: {_G.ALWAYS: _SKIPPED}}, (_WITHHELD, _ASSIGNED, *_ENDED)),
}

_ATTEMPT: Table = {
    **_rows(
        AttemptRegistered,
        {
            **_LOST,
            _UNKNOWN: {_G.ALWAYS: _READY},
            _READY: {_G.ASSIGNED: _READING, _G.LOST: _GONE},
            _READING: {_G.ASSIGNED: _READING, _G.LOST: _GONE},
            _IDLE: {_G.ASSIGNED: _READING, _G.ALL_DONE: _DISMISSED, _G.LOST: _GONE},
        },
        (_READY, _READING, _IDLE, _DISMISSED, _GONE),
    ),
    **_rows(
        SplitRequested,
        {
            _READY: {_G.ASSIGNED: _READING, _G.NONE_FREE: _IDLE, _G.ALL_DONE: _DISMISSED},
            _READING: {_G.ASSIGNED: _READING},
            _DISMISSED: {_G.ALL_DONE: _DISMISSED},
        },
        (_READING, _IDLE, _GONE),
    ),
    **_rows(
        SplitDone,
        {
            _READING: {_G.NONE_HELD: _READY, _G.NONE_FREE: _IDLE},
            _IDLE: {_G.ALL_DONE: _DISMISSED},
        },
        (_READY, _READING, _IDLE, _DISMISSED, _GONE),
    ),
    **_rows(
        AttemptLost,
        {
            **_LOST,
            _READING: {
                _G.LOST: _GONE,
                _G.ASSIGNED: _READING,
            },  # it requested another split and gets one that was returned
            _IDLE: {_G.LOST: _GONE, _G.ASSIGNED: _READING, _G.ALL_DONE: _DISMISSED},
        },
        (_UNKNOWN, _GONE),
    ),
    # Who waits gets a split that has rested: an idle attempt, or one that wants its next split already.
    **_rows(SplitsRested, {_IDLE: {_G.ASSIGNED: _READING}, _READING: {_G.ASSIGNED: _READING}}, AttemptPhase),
    **_rows(JobEnded, _LOST, (_UNKNOWN, _GONE)),
    # Where the only split that was left rests, who waits for it is dismissed.
    **_rows(FinishEarlyRequested, {_IDLE: {_G.ALL_DONE: _DISMISSED}}, AttemptPhase),
}
_CONNECTION: Table = {
    **_rows(AttemptDisconnected, {_CONNECTED: {_G.ALWAYS: _DISCONNECTED}}, (_DISCONNECTED, _GIVEN_UP)),
    **_rows(AttemptReconnected, {_DISCONNECTED: {_G.ALWAYS: _CONNECTED}}, (_CONNECTED, _GIVEN_UP)),
    **_rows(ConnectionsChecked, {_DISCONNECTED: {_G.OVERDUE: _GIVEN_UP}}, ConnectionPhase),
}
_ELSEWHERE: Table = {
    cell: row
    for event in (AttemptDisconnected, AttemptReconnected, ConnectionsChecked)
    for cell, row in _rows(event, {}, (*SplitPhase, *AttemptPhase)).items()
}
"""A connection that closes moves neither its attempt nor a split: only its loss does (`AttemptLost`)."""
TRANSITIONS: Mapping[tuple[State, type[SplitsEvent]], Mapping[SplitGuard, State]] = MappingProxyType(
    {**_SPLIT, **_ATTEMPT, **_CONNECTION, **_ELSEWHERE}
)
"""(state, event) to the next state by guard. Complete: what is not in it is illegal."""
