"""The states of a table, of the service and of its heartbeat, and the table of their transitions.

A row of the table is a state and an event. It maps a guard (`RoundsGuard`) to the next state. The machine
evaluates the guard and looks the next state up; an event without a row is illegal there.

An answer about a round (`Opened` ... `RoundFenced`) can be late. It is ignored (`RoundsGuard.UNCHANGED`) wherever the
table has no round: ABSENT, WAITING, REPORTING, BACKOFF, SUSPENDED, PAUSED, RETURNING. Where the table has a round, an
answer that this round cannot give is illegal, with two exceptions that reach the next round after `SnapshotsGone`
opened the table again: a second `SnapshotsGone`, and `Drained` of the round that was ended. `SnapshotsGone` after
everything was read is ignored.

What follows from an event for other tables and for the service is looked up as a `Tick` (a waiting table is opened
where another one's round ended, the heartbeat is sent) or as a `StopRequested` (the last target of `once` is settled).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from lakeward.machines.machine_state import MachineState
from lakeward.machines.rounds.events import (
    Committed,
    Drained,
    HeartbeatAnswered,
    HeartbeatFailed,
    JobStarted,
    Leased,
    Opened,
    PauseRequested,
    Resumed,
    ResumeRequested,
    RoundFailed,
    RoundFenced,
    RoundsEvent,
    SnapshotsGone,
    SplitsFailing,
    StopRequested,
    StopTimedOut,
    TableGone,
    TargetReached,
    Targets,
    Tick,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Phase(MachineState):
    """The state of a table."""

    ABSENT = "absent"
    """Not assigned to this service; `Rounds.tables` never shows it."""
    WAITING = "waiting"
    """Assigned, without a round."""
    OPENING = "opening"
    """The lake table is opened and stamped, buckets are listed, splits enumerated."""
    LEASING = "leasing"
    """Its snapshots are acquired and verified."""
    RUNNING = "running"
    """The journal is written; the Spark job runs."""
    SETTLING = "settling"
    """All splits are done; the commit waits for a fresh renewal."""
    COMMITTING = "committing"
    """Prepare, lake commit, source commit."""
    REPORTING = "reporting"
    """Finished; the next heartbeat reports it."""
    BACKOFF = "backoff"
    """Failed; stays assigned and waits until `retry_at`."""
    SUSPENDED = "suspended"
    """Failed permanently; stays assigned and waits for a person or for a restart."""
    PAUSED = "paused"
    """A person paused it; stays assigned."""
    RETURNING = "returning"
    """The service stops; the next heartbeat gives the table back (reports it as failed)."""


class ServicePhase(MachineState):
    """The state of the service."""

    STARTING = "starting"
    """No `Tick` yet: nothing is sent and nothing opened."""
    SERVING = "serving"
    STOPPING = "stopping"
    STOPPED = "stopped"


class HeartbeatPhase(MachineState):
    """The state of the heartbeat."""

    RESTING = "resting"
    UNDER_WAY = "under_way"


class RoundsGuard(MachineState):
    """The condition in which an event finds the machine; it selects the next state in the row of the event."""

    ALWAYS = "always"
    """The row has one next state."""
    UNCHANGED = "unchanged"
    """The event does not concern this table, or comes too late."""
    ASSIGNED = "assigned"
    NEWER_EPOCH = "newer epoch"
    """The source assigned the table again while it is still assigned."""
    REFUSED = "refused"
    """The source refused to renew the table."""
    REPORTED = "reported"
    REPORT_GIVEN_UP = "report given up"
    RENEWED = "renewed"
    """A renewal is younger than the fence time."""
    RENEWAL_TOO_OLD = "renewal too old"
    SNAPSHOTS = "snapshots to lease"
    SPLITS = "splits, no snapshots"
    NO_SPLITS = "no splits"
    ENUMERATE_AGAIN = "enumerate again"
    RETRY_LATER = "retry later"
    PERMANENT = "permanent"
    LOST = "another service has it"
    PAUSED = "paused"
    """A person paused the table."""
    STOPPING = "stopping"
    """The service stops, and the table has no round or its round is given up."""
    RETRY_DUE = "retry due"
    MAY_OPEN = "may open"
    """Fewer rounds are open than may be, and no waiting table is nearer to its deadline."""
    DUE = "due"
    NOTHING_ASSIGNED = "nothing assigned"


State = Phase | ServicePhase | HeartbeatPhase
Row = dict[RoundsGuard, State]
_Rows = dict[tuple[State, type[RoundsEvent]], Row]

ACTIVE = frozenset({Phase.OPENING, Phase.LEASING, Phase.RUNNING, Phase.SETTLING, Phase.COMMITTING})
"""The phases of an open round."""
WORKING = frozenset({Phase.OPENING, Phase.LEASING, Phase.RUNNING})
"""The phases in which a round counts for `service.rounds`; one that commits, or waits to, needs none of Spark."""
REPORTED = frozenset({Phase.REPORTING, Phase.RETURNING})
"""The phases that end with the answer of a heartbeat."""
_RESTING = frozenset(Phase) - ACTIVE
"""The phases without a round."""


def _rows(event: type[RoundsEvent], unchanged: Iterable[State], changed: Mapping[State, Row]) -> _Rows:
    """Make the rows of one event: states that it never changes, and those that it may change."""
    rows: _Rows = {(state, event): {_G.UNCHANGED: state} for state in unchanged}
    return rows | {(state, event): row for state, row in changed.items()}


def _or_unchanged(rows: Mapping[Phase, Row]) -> dict[State, Row]:
    """Make rows of states that the event may leave unchanged."""
    return {phase: {_G.UNCHANGED: phase, **row} for phase, row in rows.items()}


_P = Phase
_G = RoundsGuard
_HELD_BACK: Row = {_G.PAUSED: _P.PAUSED, _G.STOPPING: _P.RETURNING}
"""The next state of a table that may not wait for or start a round."""
_ASSIGNED: Row = {_G.ASSIGNED: _P.WAITING, **_HELD_BACK}
_NEWER: Row = {_G.NEWER_EPOCH: _P.WAITING}
_FAILED: Row = {_G.RETRY_LATER: _P.BACKOFF, _G.PERMANENT: _P.SUSPENDED}
_LOST: Row = {_G.LOST: _P.ABSENT}
_AGAIN: Row = {_G.ENUMERATE_AGAIN: _P.OPENING, _G.RETRY_LATER: _P.BACKOFF}
_TO_PAUSED: Row = {_G.PAUSED: _P.PAUSED}
_TO_RETURNING: Row = {_G.STOPPING: _P.RETURNING}
_STARTING_WORK = (_P.OPENING, _P.LEASING)
_AT_WORK = (_P.RUNNING, _P.SETTLING, _P.COMMITTING)
_STAYING = (*_AT_WORK, _P.REPORTING)
"""Phases that a pause or a stop does not change."""
_ASSIGNED_AGAIN: dict[Phase, Row] = {
    **dict.fromkeys(_STARTING_WORK, _NEWER),
    **{phase: {**_NEWER, **_HELD_BACK} for phase in _STAYING},
}

_TABLES: _Rows = {
    **_rows(
        Tick,
        Phase,
        _or_unchanged({_P.WAITING: {_G.MAY_OPEN: _P.OPENING}, _P.BACKOFF: {_G.RETRY_DUE: _P.WAITING}}),
    ),
    **_rows(Resumed, Phase, _or_unchanged({_P.ABSENT: _ASSIGNED, **_ASSIGNED_AGAIN})),
    **_rows(
        HeartbeatAnswered,
        (),
        _or_unchanged(
            {
                phase: {
                    **({_G.REFUSED: _P.ABSENT} if phase is not _P.ABSENT else _ASSIGNED),
                    **({_G.REPORTED: _P.ABSENT} if phase in REPORTED else {}),
                    **({_G.RENEWED: _P.COMMITTING} if phase is _P.SETTLING else {}),
                    **_ASSIGNED_AGAIN.get(phase, {}),
                }
                for phase in Phase
            }
        ),
    ),
    # A report that fails again while the service stops is given up.
    **_rows(HeartbeatFailed, Phase, _or_unchanged({phase: {_G.REPORT_GIVEN_UP: _P.ABSENT} for phase in REPORTED})),
    **_rows(
        Opened,
        _RESTING,
        {
            _P.OPENING: {
                _G.SNAPSHOTS: _P.LEASING,
                _G.SPLITS: _P.RUNNING,
                _G.NO_SPLITS: _P.REPORTING,
            }
        },
    ),
    **_rows(Leased, _RESTING, {_P.LEASING: {_G.ALWAYS: _P.RUNNING}}),
    **_rows(JobStarted, frozenset(Phase) - {_P.RUNNING}, {_P.RUNNING: {_G.ALWAYS: _P.RUNNING}}),
    **_rows(SplitsFailing, frozenset(Phase) - {_P.RUNNING}, {_P.RUNNING: {_G.ALWAYS: _P.RUNNING}}),
    **_rows(
        SnapshotsGone,
        _RESTING | {_P.OPENING, _P.SETTLING, _P.COMMITTING},
        {_P.LEASING: _AGAIN, _P.RUNNING: {**_AGAIN, **_HELD_BACK}},
    ),
    **_rows(
        Drained,
        _RESTING | set(_STARTING_WORK),
        {_P.RUNNING: {_G.RENEWED: _P.COMMITTING, _G.RENEWAL_TOO_OLD: _P.SETTLING}},
    ),
    # The guards of a failure: splits that failed were left out, and the rest has landed.
    **_rows(Committed, _RESTING, {_P.COMMITTING: {_G.ALWAYS: _P.REPORTING, **_FAILED, **_HELD_BACK}}),
    **_rows(
        RoundFailed,
        _RESTING,
        {**dict.fromkeys(_STARTING_WORK, _FAILED), **{phase: {**_FAILED, **_HELD_BACK} for phase in _AT_WORK}},
    ),
    **_rows(TableGone, (_P.ABSENT,), {phase: {_G.ALWAYS: _P.ABSENT} for phase in set(Phase) - {_P.ABSENT}}),
    **_rows(
        RoundFenced,
        (_P.ABSENT,),
        {
            **_or_unchanged(dict.fromkeys(_RESTING - {_P.ABSENT}, _LOST)),
            **{phase: {**_LOST, _G.RETRY_LATER: _P.BACKOFF} for phase in _STARTING_WORK},
            **{phase: {**_LOST, _G.RETRY_LATER: _P.BACKOFF, **_HELD_BACK} for phase in _AT_WORK},
        },
    ),
    **_rows(TargetReached, Phase, {}),
    **_rows(Targets, (_P.ABSENT, _P.WAITING, _P.PAUSED, *_STAYING, _P.RETURNING), {}),
    **_rows(
        PauseRequested,
        Phase,
        {
            **dict.fromkeys((_P.WAITING, _P.BACKOFF, _P.SUSPENDED, *_STARTING_WORK), _TO_PAUSED),
            # Too late once the report was sent, or while the service stops.
            **_or_unchanged({_P.REPORTING: _TO_PAUSED}),
        },
    ),
    **_rows(ResumeRequested, Phase, {phase: {_G.ALWAYS: _P.WAITING} for phase in (_P.PAUSED, _P.SUSPENDED)}),
    **_rows(
        StopRequested,
        Phase,
        dict.fromkeys((_P.WAITING, _P.BACKOFF, _P.SUSPENDED, _P.PAUSED, *_STARTING_WORK), _TO_RETURNING),
    ),
    **_rows(
        StopTimedOut,
        {_P.ABSENT, *REPORTED},
        {
            _P.RUNNING: _TO_RETURNING,
            _P.SETTLING: _TO_RETURNING,
            # A commit's outcome may be unknown: it is given up only the second time.
            **_or_unchanged({_P.COMMITTING: _TO_RETURNING}),
        },
    ),
}

_S = ServicePhase
_EVENTS = frozenset(event for _, event in _TABLES)
_SERVICE: _Rows = {
    **{row: after for event in _EVENTS for row, after in _rows(event, ServicePhase, {}).items()},
    (_S.STARTING, Tick): {_G.ALWAYS: _S.SERVING},
    (_S.STOPPING, Tick): {_G.UNCHANGED: _S.STOPPING, _G.NOTHING_ASSIGNED: _S.STOPPED},
    (_S.STARTING, StopRequested): {_G.ALWAYS: _S.STOPPING},
    (_S.SERVING, StopRequested): {_G.ALWAYS: _S.STOPPING},
}
_H = HeartbeatPhase
_HEARTBEAT: _Rows = {
    **{row: after for event in _EVENTS for row, after in _rows(event, HeartbeatPhase, {}).items()},
    (_H.RESTING, Tick): {_G.UNCHANGED: _H.RESTING, _G.DUE: _H.UNDER_WAY},
    (_H.UNDER_WAY, HeartbeatAnswered): {_G.ALWAYS: _H.RESTING},
    (_H.UNDER_WAY, HeartbeatFailed): {_G.ALWAYS: _H.RESTING},
}
_ILLEGAL: frozenset[tuple[State, type[RoundsEvent]]] = frozenset(
    {
        *((_S.STARTING, event) for event in (HeartbeatAnswered, HeartbeatFailed, StopTimedOut)),
        *((_S.STOPPED, event) for event in (HeartbeatAnswered, HeartbeatFailed, Resumed)),
        (_S.SERVING, StopTimedOut),  # nobody requested a stop
        (_S.SERVING, Targets),  # after a stop they only show which targets were missed
        *((_H.RESTING, event) for event in (HeartbeatAnswered, HeartbeatFailed)),
    }
)

TRANSITIONS: Mapping[tuple[State, type[RoundsEvent]], Mapping[RoundsGuard, State]] = MappingProxyType(
    {row: after for row, after in (_TABLES | _SERVICE | _HEARTBEAT).items() if row not in _ILLEGAL}
)
"""(state, event) to the next state by guard. Complete: an event without a row is illegal."""
