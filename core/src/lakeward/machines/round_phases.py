"""The states of a table, of the service and of its heartbeat, and every transition between them.

A row lists where something may stand after one event. No row = the event is illegal there.

An answer to a round (`Opened` ... `RoundFenced`) can be late. It is ignored (a row that leads to the same phase)
wherever the table has no round: not in hand, WAITING, REPORTING, BACKOFF, SUSPENDED, PAUSED, RETURNING. Where the
table has a round, an answer that this round cannot give is illegal, with two exceptions that reach the next round
after `SnapshotsGone` reopened the table: a second `SnapshotsGone`, and `Drained` of the round that was ended.
`SnapshotsGone` after everything was read is of no interest.

What follows from an event elsewhere counts as a `Tick` (a freed slot opens a waiting table, the heartbeat leaves)
or as a `StopAsked` (the last target of `once` is settled).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from lakeward.machines.machine_state import MachineState
from lakeward.machines.round_protocol import (
    BeatAnswered,
    BeatFailed,
    Committed,
    Drained,
    Leased,
    Opened,
    PauseAsked,
    ResumeAsked,
    Resumed,
    RoundFailed,
    RoundFenced,
    RoundsEvent,
    SnapshotsGone,
    StopAsked,
    StopTimedOut,
    TableGone,
    TargetReached,
    Targets,
    Tick,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Phase(MachineState):
    """Where a table stands."""

    ABSENT = "absent"
    """Not in hand; `Rounds.in_hand` never shows it."""
    WAITING = "waiting"
    """In hand, no round yet."""
    OPENING = "opening"
    """The lake table is opened and stamped, buckets are listed, splits enumerated."""
    LEASING = "leasing"
    """Its snapshots are acquired and verified."""
    RUNNING = "running"
    """Journal written; the Spark job runs."""
    SETTLING = "settling"
    """All splits are done; a fresh renewal is awaited."""
    COMMITTING = "committing"
    """Prepare, lake commit, source commit."""
    REPORTING = "reporting"
    """Finished, to be said in the next heartbeat."""
    BACKOFF = "backoff"
    """Failed; waits in hand until `retry_at`."""
    SUSPENDED = "suspended"
    """Failed for good; waits in hand for a person (or for a restart)."""
    PAUSED = "paused"
    """A person paused it; kept in hand."""
    RETURNING = "returning"
    """To be given back (reported as failed) in the next heartbeat: the service stops."""


class Service(MachineState):
    """Where the service stands."""

    STARTING = "starting"
    """No `Tick` yet: nothing is sent and nothing opened."""
    SERVING = "serving"
    STOPPING = "stopping"
    STOPPED = "stopped"


class Pulse(MachineState):
    """Where the heartbeat stands."""

    RESTING = "resting"
    UNDER_WAY = "under way"


State = Phase | Service | Pulse
Table = dict[tuple[State, type[RoundsEvent]], frozenset[State]]

ACTIVE = frozenset({Phase.OPENING, Phase.LEASING, Phase.RUNNING, Phase.SETTLING, Phase.COMMITTING})
"""The phases of an open round; each takes a slot."""
REPORTED = frozenset({Phase.REPORTING, Phase.RETURNING})
"""The phases that end with the answer of a heartbeat."""
_RESTING = frozenset(Phase) - ACTIVE
"""The phases without a round."""


def _rows(event: type[RoundsEvent], stay: Iterable[State], moves: Mapping[State, Iterable[State]]) -> Table:
    """Write one event's rows: `stay` for states that it leaves alone, `moves` for all the others."""
    rows: Table = {(state, event): frozenset({state}) for state in stay}
    rows |= {(state, event): frozenset(after) for state, after in moves.items()}
    return rows


_P = Phase
_FAILED = (_P.BACKOFF, _P.SUSPENDED)
_HELD_BACK = (_P.PAUSED, _P.RETURNING)  # where a stop or a pause sends a table that would wait otherwise
_OFFERED = (_P.WAITING, *_HELD_BACK)
_AT_WORK = (_P.RUNNING, _P.SETTLING, _P.COMMITTING)
_STAYING = (*_AT_WORK, _P.REPORTING)  # where a pause or a stop lets a table go on

_TABLE: Table = {
    **_rows(
        Tick,
        Phase,
        {
            _P.WAITING: (_P.WAITING, _P.OPENING),
            _P.BACKOFF: (_P.BACKOFF, _P.WAITING, _P.OPENING),
        },
    ),
    **_rows(
        Resumed,
        Phase,
        {
            _P.ABSENT: (_P.ABSENT, *_OFFERED),
            # offered anew under a newer epoch
            _P.OPENING: (_P.OPENING, _P.WAITING),
            _P.LEASING: (_P.LEASING, _P.WAITING),
            **{phase: (phase, *_OFFERED) for phase in _STAYING},
        },
    ),
    **_rows(
        BeatAnswered,
        (),
        {
            # refused and, in the same answer, offered anew
            **{phase: (phase, _P.ABSENT, _P.WAITING) for phase in Phase},
            **{phase: (phase, _P.ABSENT, *_OFFERED) for phase in (_P.ABSENT, *_STAYING)},
            _P.SETTLING: (_P.SETTLING, _P.COMMITTING, _P.ABSENT, *_OFFERED),
            _P.PAUSED: (_P.PAUSED, _P.ABSENT),
            _P.RETURNING: (_P.RETURNING, _P.ABSENT),
        },
    ),
    **_rows(
        BeatFailed,
        Phase,
        {
            _P.REPORTING: (_P.REPORTING, _P.ABSENT),  # given up when it fails again while stopping
            _P.RETURNING: (_P.RETURNING, _P.ABSENT),
        },
    ),
    **_rows(
        Opened,
        _RESTING,
        {
            _P.OPENING: (_P.LEASING, _P.RUNNING, _P.SETTLING, _P.COMMITTING, _P.REPORTING),
        },
    ),
    **_rows(Leased, _RESTING, {_P.LEASING: (_P.RUNNING,)}),
    **_rows(
        SnapshotsGone,
        _RESTING | {_P.OPENING, _P.SETTLING, _P.COMMITTING},
        {
            _P.LEASING: (_P.OPENING, _P.BACKOFF),
            _P.RUNNING: (_P.OPENING, _P.BACKOFF, *_HELD_BACK),
        },
    ),
    **_rows(Drained, _RESTING | {_P.OPENING, _P.LEASING}, {_P.RUNNING: (_P.SETTLING, _P.COMMITTING)}),
    **_rows(Committed, _RESTING, {_P.COMMITTING: (_P.REPORTING, _P.PAUSED)}),
    **_rows(
        RoundFailed,
        _RESTING,
        {
            _P.OPENING: _FAILED,
            _P.LEASING: _FAILED,
            **dict.fromkeys(_AT_WORK, (*_FAILED, *_HELD_BACK)),
        },
    ),
    **_rows(TableGone, (), dict.fromkeys(Phase, (_P.ABSENT,))),
    **_rows(
        RoundFenced,
        (),
        {
            **{phase: (phase, _P.ABSENT) for phase in _RESTING},
            _P.OPENING: (_P.ABSENT, _P.BACKOFF),
            _P.LEASING: (_P.ABSENT, _P.BACKOFF),
            **dict.fromkeys(_AT_WORK, (_P.ABSENT, _P.BACKOFF, *_HELD_BACK)),
        },
    ),
    **_rows(TargetReached, Phase, {}),
    **_rows(Targets, (_P.ABSENT, _P.WAITING, _P.PAUSED, *_STAYING, _P.RETURNING), {}),
    **_rows(
        PauseAsked,
        Phase,
        {
            **dict.fromkeys((_P.WAITING, *_FAILED, _P.OPENING, _P.LEASING), (_P.PAUSED,)),
            _P.REPORTING: (_P.REPORTING, _P.PAUSED),  # too late once the report is under way, or while stopping
        },
    ),
    **_rows(ResumeAsked, Phase, {_P.PAUSED: (_P.WAITING,), _P.SUSPENDED: (_P.WAITING,)}),
    **_rows(
        StopAsked,
        Phase,
        dict.fromkeys((_P.WAITING, *_FAILED, _P.PAUSED, _P.OPENING, _P.LEASING), (_P.RETURNING,)),
    ),
    **_rows(
        StopTimedOut,
        {_P.ABSENT, *REPORTED},
        {
            _P.RUNNING: (_P.RETURNING,),
            _P.SETTLING: (_P.RETURNING,),
            _P.COMMITTING: (_P.COMMITTING, _P.RETURNING),  # its outcome may be unknown: given up the second time
        },
    ),
}

_S = Service
_EVENTS = frozenset(event for _, event in _TABLE)
_SERVICE: Table = {
    **{row: after for event in _EVENTS for row, after in _rows(event, Service, {}).items()},
    **_rows(Tick, Service, {_S.STARTING: (_S.SERVING,), _S.STOPPING: (_S.STOPPING, _S.STOPPED)}),
    **_rows(StopAsked, Service, {_S.STARTING: (_S.STOPPING,), _S.SERVING: (_S.STOPPING,)}),
}
_TOO_EARLY: Table = {(_S.STARTING, event): frozenset() for event in (BeatAnswered, BeatFailed, StopTimedOut)}
_TOO_LATE: Table = {(_S.STOPPED, event): frozenset() for event in (BeatAnswered, BeatFailed, Resumed)}
_NOT_NOW: Table = {
    **_TOO_EARLY,
    **_TOO_LATE,
    (_S.SERVING, StopTimedOut): frozenset(),  # nobody asked it to stop
    (_S.SERVING, Targets): frozenset(),  # a stop may come first: then they only say what was missed
}

_PULSE: Table = {
    **{row: after for event in _EVENTS for row, after in _rows(event, Pulse, {}).items()},
    (Pulse.RESTING, Tick): frozenset(Pulse),
    (Pulse.UNDER_WAY, BeatAnswered): frozenset({Pulse.RESTING}),
    (Pulse.UNDER_WAY, BeatFailed): frozenset({Pulse.RESTING}),
}
_UNASKED: Table = {(Pulse.RESTING, event): frozenset() for event in (BeatAnswered, BeatFailed)}

TRANSITIONS: Mapping[tuple[State, type[RoundsEvent]], frozenset[State]] = MappingProxyType(
    {row: after for row, after in (_TABLE | _SERVICE | _NOT_NOW | _PULSE | _UNASKED).items() if after}
)
"""(state, event) to the states that may follow; complete: what has no row is illegal."""
