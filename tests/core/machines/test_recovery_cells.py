"""Every cell of state x event of the machine `recovery`: legal ones stay within their row, others change nothing."""

from __future__ import annotations

import copy

import pytest

from lakeward.errors import IllegalEventError
from lakeward.machines.recovery import TRANSITIONS, Recovery, RecoveryGuard, RecoveryPhase
from lakeward.machines.recovery.events import (
    CheckpointRequested,
    ContentRequested,
    PieceRead,
    PieceRequested,
    ProducersConnected,
    RecoveryEvent,
    RecoveryStopped,
    RowsSpilled,
    SnapshotAborted,
    SnapshotStarted,
    SpillEnded,
)

READY = (RowsSpilled(), ProducersConnected())
DRAINED = (*READY, SpillEnded(), PieceRequested())
STORIES: tuple[tuple[RecoveryEvent, ...], ...] = (
    (),
    (RowsSpilled(),),
    (ProducersConnected(),),
    READY,
    (*READY, PieceRead(0, 1)),
    (*READY, PieceRead(0, 9)),
    (*READY, PieceRead(1, 9)),
    (*READY, PieceRead(1, 1), PieceRequested()),
    (*READY, PieceRead(0, 1), SpillEnded()),
    (*READY, PieceRead(0, 1), SpillEnded(), SnapshotStarted(1)),
    (*READY, SnapshotStarted(1)),
    (*READY, SnapshotStarted(1), SnapshotAborted(1)),
    (*READY, SpillEnded()),
    DRAINED,
    (*DRAINED, SnapshotStarted(1)),
    (*DRAINED, RecoveryStopped()),
    (RecoveryStopped(),),
    (*READY, SnapshotStarted(1), RecoveryStopped()),
)
"""From each of them every event is tried; together they stand in every state."""
TRIED: tuple[RecoveryEvent, ...] = (
    RowsSpilled(),
    ProducersConnected(),
    *(PieceRead(channel, 1) for channel in (0, 1, 2)),
    SpillEnded(),
    PieceRequested(),
    *(kind(number) for kind in (CheckpointRequested, SnapshotStarted, ContentRequested, SnapshotAborted)
      for number in (1, 2)),
    RecoveryStopped(),
)  # fmt: skip


def after(*story: RecoveryEvent) -> Recovery:
    machine = Recovery(2, memory_bytes=4)
    for event in story:
        machine.step(event)
    return machine


@pytest.mark.parametrize("story", STORIES, ids=lambda story: " ".join(type(one).__name__ for one in story) or "new")
def test_each_step_stays_in_its_row_and_an_illegal_one_changes_nothing(story: tuple[RecoveryEvent, ...]) -> None:
    for event in TRIED:
        machine = after(*story)
        before, phase = copy.deepcopy(vars(machine)), machine.phase
        row = TRANSITIONS.get((phase, type(event)), {})
        try:
            machine.step(event)
        except IllegalEventError:
            assert vars(machine) == before
        else:
            assert machine.phase in row.values(), event


def test_the_stories_reach_every_cell_and_every_way_out_of_it() -> None:
    seen: set[tuple[RecoveryPhase, type[RecoveryEvent], RecoveryPhase]] = set()
    for story in STORIES:
        for event in TRIED:
            machine = after(*story)
            phase = machine.phase
            try:
                machine.step(event)
            except IllegalEventError:
                continue
            seen.add((phase, type(event), machine.phase))
    expected = {(state, event, end) for (state, event), row in TRANSITIONS.items() for end in row.values()}
    assert seen == expected


def test_what_is_not_allowed_is_in_no_row() -> None:
    assert not any(RecoveryGuard.NOT_ALLOWED in row for row in TRANSITIONS.values())
