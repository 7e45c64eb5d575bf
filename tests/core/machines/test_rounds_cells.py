"""Every cell of state x event of the machine `rounds`: legal ones stay within their row, others change nothing."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lakeward.errors import IllegalEventError
from lakeward.machines.rounds import (
    TRANSITIONS,
    Committed,
    Drained,
    HeartbeatAnswered,
    HeartbeatFailed,
    HeartbeatPhase,
    JobStarted,
    Leased,
    Opened,
    PauseRequested,
    Phase,
    Resumed,
    ResumeRequested,
    RoundFailed,
    RoundFenced,
    Rounds,
    RoundsEvent,
    RoundsGuard,
    SendHeartbeat,
    ServicePhase,
    SnapshotsGone,
    SplitsFailing,
    Stopped,
    StopRequested,
    StopTimedOut,
    TableGone,
    TargetReached,
    Targets,
    Tick,
    machine,
)
from lakeward.machines.rounds.state import RoundsState, SentHeartbeat, TieringTable
from lakeward.machines.rounds.transitions import State
from lakeward.model.settings import ServiceSettings
from lakeward.model.tables import TablePath
from lakeward.model.tiering import HeartbeatRequest, HeartbeatResponse, Refusal, TableAssignment, TableEpoch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


NOW = 100.0
PATH = TablePath("db", "t7")
ASSIGNED = TableAssignment(PATH, 7, 3, 1, 180.0)
BUSY = TableAssignment(TablePath("db", "t8"), 8, 1, 1, 10.0)
RENEWAL = HeartbeatRequest(renewed=(TableEpoch(7, 3, 1),), request=True)
REPORT = HeartbeatRequest(finished=(TableEpoch(7, 3, 1),), request=True)
NEWER = replace(ASSIGNED, epoch=4)

EVENTS: dict[type[RoundsEvent], tuple[RoundsEvent, ...]] = {
    Tick: (Tick(now=NOW),),
    Resumed: (
        Resumed(now=NOW, assignments=()),
        Resumed(now=NOW, assignments=(ASSIGNED,)),
        Resumed(now=NOW, assignments=(NEWER,)),
    ),
    HeartbeatAnswered: tuple(
        HeartbeatAnswered(now=NOW, request=request, response=HeartbeatResponse(1, assignment, refused))
        for request in (RENEWAL, REPORT)
        for assignment in (None, NEWER)
        for refused in ({}, {7: Refusal.GONE}, {7: Refusal.FENCED})
    ),
    HeartbeatFailed: (HeartbeatFailed(now=NOW, cause="no answer"),),
    Opened: tuple(
        Opened(now=NOW, table_id=7, splits=splits, leases=leases)
        for splits, leases in ((0, False), (2, False), (2, True))
    ),
    Leased: (Leased(now=NOW, table_id=7),),
    JobStarted: (JobStarted(now=NOW, table_id=7),),
    SnapshotsGone: (SnapshotsGone(now=NOW, table_id=7, reason="gone"),),
    SplitsFailing: tuple(SplitsFailing(now=NOW, table_id=7, failing=failing) for failing in (True, False)),
    Drained: (
        *(Drained(now=NOW, table_id=7, finished_early=early) for early in (False, True)),
        Drained(now=NOW, table_id=7, finished_early=True, failing="the disk is full"),
    ),
    Committed: (Committed(now=NOW, table_id=7, caught_up=True), Committed(now=NOW, table_id=7, caught_up=False)),
    RoundFailed: (
        *(RoundFailed(now=NOW, table_id=7, reason="x", permanent=final) for final in (False, True)),
        RoundFailed(now=NOW, table_id=7, reason="x", permanent=False, checkpoint_lost=True),
    ),
    TableGone: (TableGone(now=NOW, table_id=7),),
    RoundFenced: tuple(RoundFenced(now=NOW, table_id=7, reason="x", lost=lost) for lost in (False, True)),
    TargetReached: (TargetReached(now=NOW, path=PATH),),
    Targets: (Targets(now=NOW, paths=frozenset({BUSY.path})),),
    PauseRequested: (PauseRequested(now=NOW, path=PATH),),
    ResumeRequested: (ResumeRequested(now=NOW, path=PATH),),
    StopRequested: (StopRequested(now=NOW),),
    StopTimedOut: (StopTimedOut(now=NOW),),
}


def state_of(
    phase: Phase, service: ServicePhase, heartbeat: HeartbeatPhase, request: HeartbeatRequest = RENEWAL
) -> RoundsState:
    """Hold table 7 in a phase; table 8 has the only round that may run."""
    state = RoundsState(service=service)
    if phase is not Phase.ABSENT:
        state.tables[7] = TieringTable(ASSIGNED, phase, deadline=200.0, renewed_at=90.0, attempt=1)
    if service in (ServicePhase.SERVING, ServicePhase.STOPPING):
        state.tables[8] = TieringTable(BUSY, Phase.RUNNING, deadline=20.0, renewed_at=90.0, attempt=1)
    if phase is Phase.PAUSED:
        state.paused.add(PATH)
    if heartbeat is HeartbeatPhase.UNDER_WAY:
        state.heartbeat, state.sent = heartbeat, SentHeartbeat(request, 99.0)
    return state


def machine_of(state: RoundsState) -> Rounds:
    """Make a machine that stands there."""
    rounds = Rounds(ServiceSettings(rounds=1), once=True)
    rounds._state = state
    return rounds


def cells() -> list[tuple[Phase, ServicePhase, HeartbeatPhase, RoundsEvent]]:
    """List each phase x service x heartbeat x event that can stand together."""
    return [
        (phase, service, heartbeat, event)
        for phase in Phase
        for service in ServicePhase
        for heartbeat in HeartbeatPhase
        for events in EVENTS.values()
        for event in events
        if can_stand(phase, service, heartbeat)
    ]


def can_stand(phase: Phase, service: ServicePhase, heartbeat: HeartbeatPhase) -> bool:
    """Before the first tick nothing is open or sent; a stopped service holds nothing."""
    if service is ServicePhase.STARTING:
        return heartbeat is HeartbeatPhase.RESTING and phase in (Phase.ABSENT, Phase.WAITING, Phase.PAUSED)
    if service is ServicePhase.STOPPED:
        return heartbeat is HeartbeatPhase.RESTING and phase is Phase.ABSENT
    if service is ServicePhase.SERVING:
        return phase is not Phase.RETURNING
    return phase in (Phase.ABSENT, Phase.RUNNING, Phase.SETTLING, Phase.COMMITTING, Phase.REPORTING, Phase.RETURNING)


def legal(phase: Phase, service: ServicePhase, heartbeat: HeartbeatPhase, event: RoundsEvent) -> bool:
    """True if each of the three has a row."""
    return all((state, type(event)) in TRANSITIONS for state in (phase, service, heartbeat))


def phase_of(rounds: Rounds) -> Phase:
    """Where table 7 stands."""
    return next((status.phase for status in rounds.tables if status.assignment.table_id == 7), Phase.ABSENT)


def test_each_event_type_is_tried_and_has_a_row_for_a_table_somewhere() -> None:
    """Nothing is left out of the tests below, and nothing of the table."""
    tried = {kind for kind, events in EVENTS.items() if all(type(event) is kind for event in events)}
    assert tried == {event for state, event in TRANSITIONS if isinstance(state, Phase)}
    assert len(tried) == 20


@pytest.mark.parametrize("kind", list(EVENTS), ids=lambda kind: kind.__name__)
def test_a_legal_cell_moves_within_its_row(kind: type[RoundsEvent]) -> None:
    """Wherever service, heartbeat and table have a row, the table ends within its own."""
    for phase, service, heartbeat, event in cells():
        if type(event) is not kind or not legal(phase, service, heartbeat, event):
            continue
        state = state_of(phase, service, heartbeat, getattr(event, "request", RENEWAL))
        rounds = machine_of(state)
        rounds.step(event)
        assert phase_of(rounds) in reachable(phase, kind), (phase, service, heartbeat, event)


def reachable(phase: Phase, kind: type[RoundsEvent]) -> set[State]:
    """Where a table may end: after the event, an assignment in the same answer, and two moves of the closing tick."""
    found = set(TRANSITIONS[phase, kind].values())
    if kind is HeartbeatAnswered:
        found |= set(TRANSITIONS[Phase.ABSENT, kind].values())
    for _ in range(2):
        found |= {after for state in found for after in TRANSITIONS[state, Tick].values()}
    return found


@pytest.mark.parametrize("kind", list(EVENTS), ids=lambda kind: kind.__name__)
def test_an_illegal_cell_raises_and_changes_nothing(kind: type[RoundsEvent]) -> None:
    """The error names machine, state and event; the state is equal to a deep copy taken before."""
    for phase, service, heartbeat, event in cells():
        if type(event) is not kind or legal(phase, service, heartbeat, event):
            continue
        rounds = machine_of(state_of(phase, service, heartbeat))
        before = copy.deepcopy(rounds._state)
        with pytest.raises(IllegalEventError, match=r"machine 'rounds' in state .* has no row for " + kind.__name__):
            rounds.step(event)
        assert rounds._state == before, (phase, service, heartbeat, event)


def test_targets_that_come_after_a_stop_are_named_as_missed() -> None:
    """The end offsets are looked at while somebody asks the service to stop: that is no mistake of ours."""
    rounds = machine_of(state_of(Phase.RETURNING, ServicePhase.STOPPING, HeartbeatPhase.RESTING))
    rounds._state.tables.pop(8)
    commands = rounds.step(Targets(now=NOW, paths=frozenset({BUSY.path})))
    sent = next(command.request for command in commands if isinstance(command, SendHeartbeat))
    ended = rounds.step(HeartbeatAnswered(now=NOW, request=sent, response=HeartbeatResponse(1, None, {})))
    assert Stopped(((BUSY.path, "the service stopped before it was reached"),)) in ended


def steps() -> Iterator[tuple[Phase, RoundsEvent, Rounds]]:
    """Yield each legal cell with each variant of its state."""
    for phase, service, heartbeat, event in cells():
        if not legal(phase, service, heartbeat, event):
            continue
        for variant in variants(state_of(phase, service, heartbeat, getattr(event, "request", RENEWAL))):
            if isinstance(event, HeartbeatAnswered) and variant.sent != SentHeartbeat(event.request, 99.0):
                continue
            yield phase, event, machine_of(variant)


def test_every_target_of_a_tables_row_is_reached_by_some_cell() -> None:
    """A row that promises more than the machine does would hide a mistake."""
    seen: dict[tuple[Phase, type[RoundsEvent]], set[Phase]] = {}
    for phase, event, rounds in steps():
        rounds.step(event)
        seen.setdefault((phase, type(event)), set()).add(phase_of(rounds))
    missing = {
        (state.value, event.__name__): after
        for (state, event), row in TRANSITIONS.items()
        if isinstance(state, Phase) and (after := {to for to in row.values() if to not in seen[state, event]})
    }
    assert missing == {}


class Row(dict[RoundsGuard, State]):
    """A row that notes which of its guards were looked up."""

    def __init__(self, row: Mapping[RoundsGuard, State]) -> None:
        """Copy a row."""
        super().__init__(row)
        self.found: set[RoundsGuard] = set()

    def __getitem__(self, key: RoundsGuard) -> State:
        """Note the guard."""
        self.found.add(key)
        return super().__getitem__(key)


def test_every_next_state_is_looked_up_in_the_table_by_some_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine decides guards alone; a guard that it never finds has no place in the table."""
    table = {cell: Row(row) for cell, row in TRANSITIONS.items()}
    monkeypatch.setattr(machine, "TRANSITIONS", table)
    for _, event, rounds in steps():
        rounds.step(event)
    never = {
        (state.value, event.__name__, guard.value)
        for (state, event), row in table.items()
        for guard in row.keys() - row.found - {RoundsGuard.UNCHANGED}
    }
    assert never == set()


def test_a_move_that_the_table_does_not_have_raises_and_undoes_the_whole_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the row of a stop for paused tables, a stop leaves all tables as they were."""
    without = {cell: row for cell, row in TRANSITIONS.items() if cell != (Phase.PAUSED, StopRequested)}
    rounds = machine_of(state_of(Phase.PAUSED, ServicePhase.SERVING, HeartbeatPhase.RESTING))
    before = copy.deepcopy(rounds._state)
    monkeypatch.setattr(machine, "TRANSITIONS", without | {(Phase.PAUSED, StopRequested): {}})
    with pytest.raises(IllegalEventError, match=r"in state paused \(stopping\) has no row for StopRequested"):
        rounds.step(StopRequested(now=NOW))
    assert rounds._state == before


def variants(state: RoundsState) -> list[RoundsState]:
    """The same, also: long renewed, stale before, overdue, unreported once, with no other round, paused, timed out.

    A commit also of a round that left out splits, for the first time or for the last one.
    """
    changes: list[dict[str, float | str]] = [{}, {"renewed_at": 1.0}, {"stale_rounds": 4}, {"report_failures": 1}]
    if 7 in state.tables and state.tables[7].phase is Phase.BACKOFF:
        changes.append({"retry_at": 50.0})
    if 7 in state.tables and state.tables[7].phase is Phase.COMMITTING:
        changes.append({"left_out": "the disk is full"})
        changes.append({"left_out": "the disk is full", "failures": 19, "served_before": -1})
    found = [changed(state, change, free=free) for change in changes for free in (False, True)]
    if 7 not in state.tables or state.tables[7].phase not in UNPAUSED:
        found += [replace(made.copy(), paused={PATH}) for made in found]
    if state.sent is not None:
        found += [
            replace(made.copy(), sent=SentHeartbeat(REPORT, 99.0)) for made in found if state.sent.request == RENEWAL
        ]
    return [*found, replace(state.copy(), timed_out=True)]


def changed(state: RoundsState, change: dict[str, float | str], *, free: bool) -> RoundsState:
    """Change table 7, and let table 8 go if its round is to be over."""
    made = state.copy()
    if 7 in made.tables:
        made.tables[7] = replace(made.tables[7], **change)  # type: ignore[arg-type]  # fields of several types
    if free:
        made.tables.pop(8, None)
    return made


UNPAUSED = (Phase.WAITING, Phase.BACKOFF, Phase.SUSPENDED, Phase.OPENING, Phase.LEASING)
"""A table whose path is paused never stands here."""
