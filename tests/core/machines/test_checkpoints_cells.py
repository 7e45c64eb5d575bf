"""Every cell of state x event of the machine `checkpoints`: legal ones stay within their row, others change nothing."""

from __future__ import annotations

import copy

import pytest

from lakeward.errors import IllegalEventError, UsageError
from lakeward.machines.checkpoint_phases import MEMBERS, State
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
    SubtaskWord,
    TimePassed,
)
from lakeward.machines.checkpoints import TRANSITIONS, AttemptPhase, CheckpointPhase, CheckpointPolicy, Checkpoints

POLICY = CheckpointPolicy(interval_s=30, timeout_s=10, pause_s=1, tolerated=1)
NOW = 100.0
"""The machine starts at 0: the first checkpoint is due at 30, and asked for at 1 in the stories below."""


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


def left(subtask: int, attempt: int = 1) -> SubtaskLeft:
    return SubtaskLeft(now=1, subtask=subtask, attempt=attempt)


def again(subtask: int, attempt: int = 1) -> SubtaskReconnected:
    return SubtaskReconnected(now=1, subtask=subtask, attempt=attempt)


ASKED, LATE = CheckpointAsked(now=1), TimePassed(now=NOW)
TAKEN = SnapshotTaken(now=1, checkpoint=1, snapshot="c", sent={(0, 1): 3, (1, 1): 0, (0, 2): 3, (2, 1): 0})
FAILED = SnapshotFailed(now=1, checkpoint=1, reason="no")
WHOLE, BROKEN = CheckpointStored(now=1, checkpoint=1), StoreFailed(now=1, checkpoint=1, reason="no")
LAUNCH_ENDED, ROUND_ENDED = LaunchEnded(now=1), RoundEnded(now=1)

TWO = (registered(0), registered(1))
CLOSING = (*TWO, ASKED)
CUTTING = (*CLOSING, acked_close(0), acked_close(1, sent=0))
SNAPPING = (*CUTTING, received(0))
DRAINING = (*SNAPPING, TAKEN)
COLLECTING = (*DRAINING, acked(0))
STORING = (*COLLECTING, opened(0), stored(0), stored(1))
STORIES: tuple[tuple[CheckpointsEvent, ...], ...] = (
    (),
    TWO,
    (registered(0), lost(0)),
    (registered(0), left(0)),
    (registered(0, 2),),
    CLOSING,
    (*CLOSING, acked_close(0)),
    (*CLOSING, registered(2)),
    (*CLOSING, left(1)),
    (*CLOSING, received(0), acked_close(0)),
    (*CLOSING, received(0), acked_close(1, sent=0)),
    (*CLOSING, left(0), left(1)),
    CUTTING,
    (*CUTTING, left(1)),
    SNAPPING,
    DRAINING,
    (*DRAINING, left(1)),
    (*DRAINING, registered(2)),
    COLLECTING,
    (*COLLECTING, opened(0)),
    (*COLLECTING, stored(0)),
    (*COLLECTING, opened(0), stored(1)),
    (*COLLECTING, stored(0), left(0)),
    (*COLLECTING, stored(0), lost(1)),
    STORING,
    (*STORING, left(0)),
    (*STORING, lost(0)),
    (*STORING, WHOLE),
    (*STORING, BROKEN),
    (*STORING, ROUND_ENDED),
    (*STORING, ROUND_ENDED, WHOLE),
    (*COLLECTING, declined(0)),
    (*COLLECTING, ROUND_ENDED),
    (*TWO, ROUND_ENDED),
)
"""From each of them every event is tried; together they stand in every state."""

BOTH = [(subtask, attempt) for subtask in (0, 1, 2) for attempt in (1, 2)]
TRIED: tuple[CheckpointsEvent, ...] = (
    LATE,
    TimePassed(now=2),
    ASKED,
    CheckpointAsked(now=NOW),
    TAKEN,
    FAILED,
    WHOLE,
    BROKEN,
    SnapshotTaken(now=1, checkpoint=1, snapshot="c", sent={}),
    SnapshotTaken(now=1, checkpoint=1, snapshot="c", sent={(0, 1): 0, (1, 1): 0, (0, 2): 0, (2, 1): 0}),
    CheckpointStored(now=1, checkpoint=7),
    LAUNCH_ENDED,
    ROUND_ENDED,
    *(word(*attempt) for attempt in BOTH for word in (registered, again, lost, left, received, acked)),
    *(word(*attempt) for attempt in BOTH for word in (acked_close, opened, stored, declined)),
    *(word(0, checkpoint=number) for number in (0, 2) for word in (acked_close, opened, stored, declined)),
    acked_close(0, sent=9),
)


class Recorded(Checkpoints):
    """Writes every move down."""

    moves: list[tuple[State, type[CheckpointsEvent], State]]

    def _check_move(self, before: State, after: State, cause: CheckpointsEvent) -> None:
        self.moves.append((before, type(cause), after))
        super()._check_move(before, after, cause)


def told(*story: CheckpointsEvent) -> Recorded:
    """A machine after a story, with nothing written down."""
    machine = Recorded(POLICY, now=0)
    machine.moves = []
    for event in story:
        machine.step(event)
    machine.moves = []
    return machine


def stands(machine: Checkpoints, event: CheckpointsEvent) -> list[State]:
    """Where it stands, and where each attempt stands that the event speaks of (all, if it names none)."""
    attempts = [(event.subtask, event.attempt)] if isinstance(event, SubtaskRegistered | SubtaskWord) else BOTH
    return [machine.phase, *(machine.phase_of(attempt) for attempt in attempts)]


def test_together_the_stories_stand_in_every_state() -> None:
    machines = [told(*story) for story in STORIES]
    assert {machine.phase for machine in machines} == set(CheckpointPhase)
    assert {machine.phase_of(attempt) for machine in machines for attempt in BOTH} == set(AttemptPhase)


def test_every_cell_moves_within_its_row_and_every_row_is_reached() -> None:
    """What the table has no row for, no legal step ever did; and no row promises more than happens."""
    seen = {cell: set[State]() for cell in TRANSITIONS}
    for story in STORIES:
        for event in TRIED:
            machine = told(*story)
            before = stands(machine, event)
            try:
                machine.step(event)
            except IllegalEventError:
                continue
            for state, kind, after in machine.moves:
                seen[state, kind].add(after)
            for state, after in zip(before, stands(machine, event), strict=True):
                if state is after and (state, type(event)) in TRANSITIONS:
                    seen[state, type(event)].add(after)
    assert {cell: after - TRANSITIONS[cell] for cell, after in seen.items() if after - TRANSITIONS[cell]} == {}
    assert {cell: row - seen[cell] for cell, row in TRANSITIONS.items() if row - seen[cell]} == {}


@pytest.mark.parametrize("story", STORIES, ids=range(len(STORIES)))
def test_an_illegal_event_raises_and_changes_nothing(story: tuple[CheckpointsEvent, ...]) -> None:
    for event in TRIED:
        machine = told(*story)
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


def everything(machine: Checkpoints) -> list[object]:
    """All that it knows."""
    own = {name: value for name, value in vars(machine).items() if name not in {"_members", "_schedule"}}
    return [own, list(machine._members), vars(machine._schedule)]


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
    for word in (again, left, received, acked, acked_close, opened, stored, declined):
        with pytest.raises(IllegalEventError, match="attempt unknown"):
            told(*CLOSING).step(word(2))


def test_a_snapshot_that_comes_unasked_is_illegal() -> None:
    for story in (DRAINING, COLLECTING):
        with pytest.raises(IllegalEventError):
            told(*story).step(TAKEN)


def test_all_of_a_running_checkpoint_are_members() -> None:
    machine = told(*COLLECTING, opened(0))
    assert {machine.phase_of((subtask, 1)) for subtask in (0, 1)} <= MEMBERS


def test_a_policy_that_cannot_work_is_refused() -> None:
    with pytest.raises(UsageError, match="timeout above 0"):
        CheckpointPolicy(timeout_s=0)
