"""Every cell of state x event of the machine `checkpoints`: legal events do what their row says, others nothing."""

from __future__ import annotations

import copy

import pytest

from lakeward.errors import IllegalEventError, UsageError
from lakeward.machines.checkpoints import (
    TRANSITIONS,
    CheckpointCoordinator,
    CheckpointPhase,
    ParticipantPhase,
)
from lakeward.machines.checkpoints.attempts import AttemptState
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
    SubtaskEvent,
    SubtaskFinished,
    SubtaskLost,
    SubtaskReconnected,
    SubtaskRegistered,
    TimePassed,
)
from lakeward.machines.checkpoints.transitions import PARTICIPATING, CheckpointGuard, State
from lakeward.model.settings import CheckpointSettings

POLICY = CheckpointSettings(interval_s=30, timeout_s=10, pause_s=1, tolerated=1)
NOW = 100.0
"""The first checkpoint is due at 1; all events of the stories below happen then."""


def registered(subtask: int, attempt: int = 1) -> SubtaskRegistered:
    return SubtaskRegistered(now=1, subtask=subtask, attempt=attempt)


def acked_close(subtask: int, attempt: int = 1, sent: int = 2, checkpoint: int = 1) -> CloseAcked:
    return CloseAcked(now=1, subtask=subtask, attempt=attempt, checkpoint=checkpoint, sent=sent)


def received(subtask: int, attempt: int = 1) -> DataReceived:
    return DataReceived(now=1, subtask=subtask, attempt=attempt, number=2)


def acked(subtask: int, attempt: int = 1) -> DataAcked:
    return DataAcked(now=1, subtask=subtask, attempt=attempt, number=3)


def opened(subtask: int, attempt: int = 1, checkpoint: int = 1) -> GatewayOpened:
    return GatewayOpened(now=1, subtask=subtask, attempt=attempt, checkpoint=checkpoint)


def stored(subtask: int, attempt: int = 1, checkpoint: int = 1) -> PartStored:
    return PartStored(now=1, subtask=subtask, attempt=attempt, checkpoint=checkpoint, part="p", snapshot="s")


def declined(subtask: int, attempt: int = 1, checkpoint: int = 1) -> Declined:
    return Declined(now=1, subtask=subtask, attempt=attempt, checkpoint=checkpoint, reason="no")


def lost(subtask: int, attempt: int = 1) -> SubtaskLost:
    return SubtaskLost(now=1, subtask=subtask, attempt=attempt)


def finished(subtask: int, attempt: int = 1) -> SubtaskFinished:
    return SubtaskFinished(now=1, subtask=subtask, attempt=attempt)


def again(subtask: int, attempt: int = 1) -> SubtaskReconnected:
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


Cell = tuple[State, type[CheckpointsEvent]]


class Recorded(CheckpointCoordinator):
    """Records every move: whose it is (None: the round's), its cell and its guard."""

    moves: list[tuple[object, Cell, CheckpointGuard]]

    def _move(self, guard: CheckpointGuard, cause: CheckpointsEvent) -> None:
        self.moves.append((None, (self._phase, type(cause)), guard))
        super()._move(guard, cause)

    def _move_attempt(self, state: AttemptState, guard: CheckpointGuard, cause: CheckpointsEvent) -> None:
        self.moves.append((state.key, (state.phase, type(cause)), guard))
        super()._move_attempt(state, guard, cause)


def after(*story: CheckpointsEvent) -> Recorded:
    """A machine after a story, with nothing recorded."""
    machine = Recorded(POLICY, now=1 - POLICY.interval_s)
    machine.moves = []
    for event in story:
        machine.step(event)
    machine.moves = []
    return machine


def states(machine: CheckpointCoordinator, event: CheckpointsEvent) -> dict[object, State]:
    """The round's state, and that of each attempt that the event names (all, if it names none)."""
    attempts = [(event.subtask, event.attempt)] if isinstance(event, SubtaskRegistered | SubtaskEvent) else BOTH
    return {None: machine.phase, **{attempt: machine.phase_of(attempt) for attempt in attempts}}


def test_together_the_stories_stand_in_every_state() -> None:
    machines = [after(*story) for story in STORIES]
    assert {machine.phase for machine in machines} == set(CheckpointPhase)
    assert {machine.phase_of(attempt) for machine in machines for attempt in BOTH} == set(ParticipantPhase)


def test_every_guard_of_every_row_is_reached_and_nothing_stays_where_its_row_has_no_otherwise() -> None:
    """What does not move stays under `UNCHANGED`; what the table does not name never happens."""
    seen = {cell: set[CheckpointGuard]() for cell in TRANSITIONS}
    for story in STORIES:
        for event in TRIED:
            machine = after(*story)
            before = states(machine, event)
            try:
                machine.step(event)
            except IllegalEventError:
                continue
            for _, cell, guard in machine.moves:
                seen[cell].add(guard)
            moved = {entity for entity, _, _ in machine.moves}
            for entity, state in before.items():
                if entity not in moved and (state, type(event)) in TRANSITIONS:
                    assert states(machine, event)[entity] is state
                    seen[state, type(event)].add(CheckpointGuard.UNCHANGED)
    assert seen == {cell: set(row) for cell, row in TRANSITIONS.items()}


def test_the_table_decides_where_a_move_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    """With another target in one row, the machine goes there."""
    cell = (CheckpointPhase.COLLECTING, Declined)
    changed = {**TRANSITIONS, cell: {CheckpointGuard.CHECKPOINT_ENDS: CheckpointPhase.ENDED}}
    monkeypatch.setattr("lakeward.machines.checkpoints.machine.TRANSITIONS", changed)
    assert after(*COLLECTING, declined(0)).phase is CheckpointPhase.ENDED


def test_a_move_never_changes_the_kind_of_a_state() -> None:
    assert [
        cell for cell, row in TRANSITIONS.items() if {type(state) for state in row.values()} != {type(cell[0])}
    ] == []


@pytest.mark.parametrize("story", STORIES, ids=range(len(STORIES)))
def test_an_illegal_event_raises_and_changes_nothing(story: tuple[CheckpointsEvent, ...]) -> None:
    for event in TRIED:
        machine = after(*story)
        before = copy.deepcopy(machine)
        raised = None
        try:
            machine.step(event)
        except IllegalEventError as error:
            raised = error
        if raised is not None:
            assert "machine 'checkpoints'" in str(raised)
            assert type(event).__name__ in str(raised)
            assert everything(machine) == everything(before)


def everything(machine: CheckpointCoordinator) -> list[object]:
    """All that it knows."""
    own = {name: value for name, value in vars(machine).items() if name not in {"_attempts", "_schedule"}}
    return [own, [vars(state) for state in machine._attempts], vars(machine._schedule)]


def test_what_no_row_allows_is_illegal() -> None:
    """While the snapshot is taken nothing else happens; only what is being stored can have been stored."""
    kinds = {type(event) for event in TRIED}
    snaps, ends = {SnapshotTaken, SnapshotFailed}, {CheckpointStored, StoreFailed}
    illegal = {cell for phase in CheckpointPhase for kind in kinds if (cell := (phase, kind)) not in TRANSITIONS}
    expected = {(CheckpointPhase.SNAPPING, kind) for kind in kinds - snaps}
    expected |= {(phase, kind) for phase in set(CheckpointPhase) - {CheckpointPhase.SNAPPING} for kind in ends}
    expected -= {(phase, kind) for phase in (CheckpointPhase.STORING, CheckpointPhase.ENDING) for kind in ends}
    expected |= {(phase, SubtaskRegistered) for phase in (CheckpointPhase.ENDING, CheckpointPhase.ENDED)}
    expected |= {(phase, kind) for phase in set(CheckpointPhase) - {CheckpointPhase.SNAPPING} for kind in snaps}
    # The last two lead on from the snapshot within one step.
    expected -= {(CheckpointPhase.DRAINING, SnapshotTaken), (CheckpointPhase.COLLECTING, SnapshotTaken)}
    assert illegal == expected
    for kind in (again, finished, received, acked, acked_close, opened, stored, declined):
        with pytest.raises(IllegalEventError, match="attempt unknown"):
            after(*CLOSING).step(kind(2))


def test_a_snapshot_that_comes_unasked_is_illegal() -> None:
    for story in (DRAINING, COLLECTING):
        with pytest.raises(IllegalEventError):
            after(*story).step(TAKEN)


def test_all_of_a_running_checkpoint_participate() -> None:
    machine = after(*COLLECTING, opened(0))
    assert {machine.phase_of((subtask, 1)) for subtask in (0, 1)} <= PARTICIPATING


def test_a_policy_that_cannot_work_is_refused() -> None:
    with pytest.raises(UsageError, match="timeout above 0"):
        CheckpointCoordinator(CheckpointSettings(timeout_s=0), now=0)
