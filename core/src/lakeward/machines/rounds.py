"""Which table next, and the life of each round: the service's top machine.

Rules
* Everything that moves a table's phase is in `TRANSITIONS`; an event without a row there raises and changes nothing.
* One heartbeat is under way at a time. It renews every table in hand, whatever its phase: a table that failed or is
  paused is kept in hand and waits out its back-off, for one reported as failed comes back in milliseconds.
* Of the tables in hand, the one nearest to breaking its promised freshness is opened first.
* A commit needs a renewal younger than the fence time; otherwise the table waits (SETTLING) for the next heartbeat.
  A renewal counts from when its heartbeat was sent.
* A table that the source refuses leaves the hand at once: FORGET, never a report.
* One bad table never changes another one.
* A step ends with what a `Tick` would do, so that nothing waits for the clock that needs no waiting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.errors import IllegalEventError
from lakeward.machines import heartbeats, round_phases
from lakeward.machines.hand import Hand, RoundsPolicy, TableStatus, Target
from lakeward.machines.round_moves import Moves
from lakeward.machines.round_phases import TRANSITIONS, Phase, Pulse, Service, State
from lakeward.machines.round_protocol import (
    AcquireLeases,
    BeatAnswered,
    BeatFailed,
    CommitRound,
    Committed,
    CutRound,
    Drained,
    EndRound,
    Forget,
    LaunchJob,
    Leased,
    Opened,
    OpenRound,
    PauseAsked,
    ResumeAsked,
    Resumed,
    RoundFailed,
    RoundFenced,
    RoundsCommand,
    RoundsEvent,
    SendBeat,
    SnapshotsGone,
    StopAsked,
    Stopped,
    StopTimedOut,
    TableGone,
    TargetReached,
    Targets,
    Tick,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "TRANSITIONS",
    "AcquireLeases",
    "BeatAnswered",
    "BeatFailed",
    "CommitRound",
    "Committed",
    "CutRound",
    "Drained",
    "EndRound",
    "Forget",
    "LaunchJob",
    "Leased",
    "OpenRound",
    "Opened",
    "PauseAsked",
    "Phase",
    "Pulse",
    "ResumeAsked",
    "Resumed",
    "RoundFailed",
    "RoundFenced",
    "Rounds",
    "RoundsCommand",
    "RoundsEvent",
    "RoundsPolicy",
    "SendBeat",
    "Service",
    "SnapshotsGone",
    "StopAsked",
    "StopTimedOut",
    "Stopped",
    "TableGone",
    "TableStatus",
    "TargetReached",
    "Targets",
    "Tick",
]

_MACHINE = "rounds"

_Answer = Opened | Leased | SnapshotsGone | Drained | Committed | RoundFailed | TableGone | RoundFenced
"""Events about one table, by its id; they may be late."""


class Rounds:
    """The machine. See the module's rules."""

    def __init__(self, policy: RoundsPolicy) -> None:
        """Start with empty hands.

        Args:
            policy: periods and limits.
        """
        self._policy = policy
        self._hand = Hand()
        self._next_due: tuple[float | None] | None = None
        """What `next_due` is since the last step, None before somebody asked."""

    def step(self, event: RoundsEvent) -> tuple[RoundsCommand, ...]:
        """Take one event.

        Args:
            event: what happened; `now` in seconds on the holder's clock, never less than in the event before.

        Returns:
            What is to be done, in this order.

        Raises:
            IllegalEventError: no row for this event; nothing was changed.
        """
        moves = Moves(self._policy, self._hand.copy(), event.now)
        states = self._admit(event)
        self._react(moves, event)
        states = self._check(states, moves.hand, type(event), event)
        if moves.settled():
            moves.stop()
            states = self._check(states, moves.hand, StopAsked, event)
        if moves.hand.service is not Service.STARTING:
            moves.due()
            self._check(states, moves.hand, Tick, event)
        self._hand, self._next_due = moves.hand, None
        return tuple(moves.commands)

    @property
    def in_hand(self) -> tuple[TableStatus, ...]:
        """All tables in hand, ordered by table id."""
        return tuple(self._hand.tables[table_id].status() for table_id in sorted(self._hand.tables))

    @property
    def next_due(self) -> float | None:
        """When the next `Tick` has something to do, None if only an event can change anything."""
        if self._next_due is None:
            self._next_due = (self._hand.next_due(self._policy),)
        return self._next_due[0]

    @property
    def stopping(self) -> bool:
        """True after `StopAsked`, or once every target of `once` is settled."""
        return self._hand.stopping

    def _react(self, moves: Moves, event: RoundsEvent) -> None:
        """Do what the event itself asks for."""
        match event:
            case Tick():
                moves.start()
            case Resumed():
                moves.resumed(event.offers)
            case BeatAnswered():
                heartbeats.answered(moves, event)
            case BeatFailed():
                heartbeats.failed(moves, event)
            case Targets():
                moves.hand.targets = dict.fromkeys(event.paths, Target())
            case StopAsked():
                moves.stop()
            case StopTimedOut():
                moves.stop_timed_out()
            case TargetReached() | PauseAsked() | ResumeAsked():
                self._react_to_word(moves, event)
            case _:
                self._react_to_answer(moves, event)

    def _react_to_word(self, moves: Moves, event: TargetReached | PauseAsked | ResumeAsked) -> None:
        """Do what is asked of a table by its name, in hand or not."""
        match event:
            case TargetReached():
                moves.reached(event.path)
            case PauseAsked():
                moves.pause(event.path)
            case ResumeAsked():
                moves.resume(event.path)

    def _react_to_answer(self, moves: Moves, event: _Answer) -> None:
        """Do what an answer asks for, or nothing where it is late (the table stays: see `TRANSITIONS`)."""
        table = moves.hand.tables.get(event.table_id)
        if table is None:
            return
        match event, table.phase:
            case Opened(), Phase.OPENING:
                moves.opened(table, event)
            case Leased(), Phase.LEASING:
                moves.launch(table)
            case SnapshotsGone(), Phase.LEASING | Phase.RUNNING:
                moves.snapshots_gone(table, event.reason)
            case Drained(), Phase.RUNNING:
                moves.drained(table)
            case Committed(), Phase.COMMITTING:
                moves.committed(table, caught_up=event.caught_up)
            case RoundFailed(), _ if table.active:
                moves.failed(table, event.reason, permanent=event.permanent)
            case TableGone(), _:
                moves.gone(table)
            case RoundFenced(), _:
                moves.fenced(table, event.reason, lost=event.lost)
            case _:
                pass

    def _admit(self, event: RoundsEvent) -> Mapping[int | str, State]:
        """Return all states as they are; raise if one that the event speaks to has no row for it."""
        states = spoken_to = self._hand.states()
        if isinstance(event, _Answer):
            phase = states.get(event.table_id, Phase.ABSENT)
            spoken_to = {"service": states["service"], "heartbeat": states["heartbeat"], event.table_id: phase}
        for name, state in spoken_to.items():
            if (state, type(event)) not in round_phases.TRANSITIONS:
                raise IllegalEventError(_MACHINE, _named(name, state), event)
        if isinstance(event, BeatAnswered) and self._hand.sent is not None and event.beat != self._hand.sent.beat:
            raise IllegalEventError(_MACHINE, f"{self._hand.sent} under way", event)
        if isinstance(event, Targets) and (self._hand.targets is not None or not self._policy.once):
            raise IllegalEventError(_MACHINE, "targets were given" if self._policy.once else "serving for ever", event)
        return states

    def _check(
        self, before: Mapping[int | str, State], hand: Hand, cause: type[RoundsEvent], event: RoundsEvent
    ) -> Mapping[int | str, State]:
        """Return the states after a move; raise if the table of transitions does not allow them."""
        after = hand.states()
        spoken_to = event.table_id if isinstance(event, _Answer) and cause is type(event) else None
        if spoken_to is None and after == before:
            return after
        for name in before.keys() | after.keys() | ({spoken_to} if spoken_to is not None else set()):
            old, new = before.get(name, Phase.ABSENT), after.get(name, Phase.ABSENT)
            if (old is not new or name == spoken_to) and new not in round_phases.TRANSITIONS.get((old, cause), ()):
                raise IllegalEventError(_MACHINE, f"{_named(name, old)}, which cannot become {new.value}", event)
        return after


def _named(name: int | str, state: State) -> str:
    return f"{name if isinstance(name, str) else f'table {name}'} {state.value}"
