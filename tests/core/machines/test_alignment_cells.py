"""Every cell of state x event of the machine `alignment`: legal ones stay within their row, others change nothing."""

from __future__ import annotations

import copy

import pytest

from lakeward.errors import IllegalEventError
from lakeward.machines.exchange import TRANSITIONS, AlignmentGuard, AlignmentPhase, BarrierAlignment
from lakeward.machines.exchange.events import (
    AlignmentEvent,
    BarrierAborted,
    BarrierReceived,
    BatchConsumed,
    BatchReceived,
    CheckpointTriggered,
    EndReceived,
    OvertakenReceived,
    TimeoutChecked,
)

TIMEOUT_S = 5.0


def arrives(channel: int, sequence: int) -> BatchReceived:
    return BatchReceived(channel=channel, sequence=sequence)


def taken(channel: int, sequence: int) -> BatchConsumed:
    return BatchConsumed(channel=channel, sequence=sequence)


def barrier(channel: int, first_after: int, checkpoint: int = 1, now: float = 0.0) -> BarrierReceived:
    return BarrierReceived(now=now, channel=channel, checkpoint=checkpoint, first_after=first_after)


def overtaken(channel: int, first: int, checkpoint: int = 1) -> OvertakenReceived:
    return OvertakenReceived(now=0.0, channel=channel, checkpoint=checkpoint, first=first)


def triggered(checkpoint: int = 1, now: float = 0.0, *, close_files: bool = False) -> CheckpointTriggered:
    return CheckpointTriggered(now=now, checkpoint=checkpoint, close_files=close_files)


def ends(channel: int, first_after: int) -> EndReceived:
    return EndReceived(channel=channel, first_after=first_after)


LATE = TimeoutChecked(now=TIMEOUT_S)
DRAINED = (arrives(0, 0), taken(0, 0), ends(0, 1), ends(1, 0))
COLLECTING = (arrives(0, 0), triggered(), barrier(0, 1), LATE)
STORIES: tuple[tuple[AlignmentEvent, ...], ...] = (
    (),
    (arrives(0, 0),),
    (arrives(0, 0), ends(0, 1), ends(1, 0)),
    (arrives(0, 0), taken(0, 0), ends(0, 1)),
    (triggered(),),
    (arrives(0, 0), taken(0, 0), triggered(), barrier(1, 0)),
    (triggered(), barrier(0, 0)),
    (triggered(), ends(0, 0)),
    (triggered(), barrier(0, 0), ends(0, 0)),
    (arrives(0, 0), triggered(), barrier(0, 1), barrier(1, 0)),
    (arrives(0, 0), barrier(0, 1), barrier(1, 0)),
    (arrives(0, 0), overtaken(0, 0)),
    (arrives(0, 0), taken(0, 0), triggered(), barrier(0, 1)),
    (barrier(0, 1), barrier(1, 0)),
    (barrier(0, 0), barrier(1, 0)),
    (barrier(0, 0), barrier(1, 0, now=9.0)),
    (triggered(2),),
    (arrives(0, 0), ends(0, 1), triggered()),
    (arrives(0, 0), ends(0, 1), barrier(1, 0)),
    (arrives(0, 0), ends(0, 1), ends(1, 0), barrier(1, 0)),
    COLLECTING,
    (*COLLECTING, barrier(1, 1)),
    (arrives(0, 0), triggered(), LATE, barrier(1, 0)),
    (triggered(), ends(0, 0), LATE),
    DRAINED,
    (*DRAINED, barrier(0, 1)),
    (*DRAINED, triggered(1), barrier(0, 1, 2)),
    (*DRAINED, BarrierAborted(1)),
    (BarrierAborted(1),),
    (triggered(2), TimeoutChecked(now=TIMEOUT_S)),
)
"""From each of them every event is tried; together they stand in every state."""
TRIED: tuple[AlignmentEvent, ...] = (
    *(arrives(channel, sequence) for channel in (0, 1) for sequence in (0, 1)),
    *(taken(channel, sequence) for channel in (0, 1) for sequence in (0, 1)),
    *(barrier(channel, first, number) for channel in (0, 1) for first in (0, 1) for number in (1, 2)),
    barrier(1, 1, now=TIMEOUT_S),
    *(overtaken(channel, first, number) for channel in (0, 1) for first in (0, 1) for number in (1, 2)),
    *(ends(channel, first) for channel in (0, 1) for first in (0, 1)),
    triggered(),
    triggered(1, TIMEOUT_S),
    triggered(2),
    triggered(close_files=True),
    BarrierAborted(1),
    BarrierAborted(2),
    LATE,
    TimeoutChecked(now=0.0),
    arrives(2, 0),
)


class Recorded(BarrierAlignment):
    """Notes its moves."""

    def __init__(self) -> None:
        super().__init__(2, aligned_timeout_s=TIMEOUT_S, unaligned=True)
        self.moves: list[tuple[AlignmentPhase, type[AlignmentEvent], AlignmentGuard]] = []

    def _move(self, event: AlignmentEvent, guard: AlignmentGuard) -> None:
        before = self._phase
        super()._move(event, guard)
        self.moves.append((before, type(event), guard))


def after(*story: AlignmentEvent) -> Recorded:
    machine = Recorded()
    for event in story:
        machine.step(event)
    return machine


@pytest.mark.parametrize("story", STORIES, ids=lambda story: " ".join(type(one).__name__ for one in story) or "new")
def test_each_step_looks_its_states_up_and_an_illegal_one_changes_nothing(story: tuple[AlignmentEvent, ...]) -> None:
    for event in TRIED:
        machine = after(*story)
        machine.moves.clear()
        before = copy.deepcopy(vars(machine))
        try:
            machine.step(event)
        except IllegalEventError:
            assert vars(machine) == before
        else:
            assert machine.moves
            assert machine.phase is TRANSITIONS[machine.moves[-1][:2]][machine.moves[-1][2]]


def test_every_move_of_the_table_is_met() -> None:
    met = set()
    for story in STORIES:
        for event in TRIED:
            machine = after(*story)
            try:
                machine.step(event)
            except IllegalEventError:
                continue
            met |= set(machine.moves)
    assert met == {(phase, event, guard) for (phase, event), row in TRANSITIONS.items() for guard in row}


@pytest.mark.parametrize(
    ("story", "event"),
    [
        ((), arrives(0, 1)),
        ((arrives(0, 0),), arrives(0, 0)),
        ((), taken(0, 0)),
        ((arrives(0, 0), barrier(0, 0)), taken(0, 0)),
        ((ends(0, 0),), arrives(0, 0)),
        ((ends(0, 0),), ends(0, 0)),
        ((ends(0, 0),), barrier(0, 1)),
        ((barrier(0, 1),), barrier(0, 0)),
        ((barrier(0, 1),), ends(0, 0)),
        ((barrier(0, 0),), overtaken(0, 1)),
        ((overtaken(0, 0),), overtaken(0, 1)),
        (DRAINED, arrives(0, 1)),
        (DRAINED, ends(0, 1)),
        ((), arrives(2, 0)),
        ((), barrier(-1, 0)),
    ],
    ids=repr,
)
def test_what_does_not_fit_to_what_came_before_is_illegal(
    story: tuple[AlignmentEvent, ...], event: AlignmentEvent
) -> None:
    with pytest.raises(IllegalEventError):
        after(*story).step(event)
