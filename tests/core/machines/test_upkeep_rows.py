"""The rules of upkeep in free slots, written out by hand: what follows, and what must not.

Nothing here is taken from the machine's own table, so a wrong row of that table is a failure here.
"""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest

from lakeward.errors import IllegalEventError
from lakeward.machines.upkeep import (
    VOID as WHY_VOID,
)
from lakeward.machines.upkeep import (
    CancelUpkeep,
    CommitUpkeep,
    DiscardUpkeep,
    LaunchUpkeep,
    PlanUpkeep,
    SlotsFree,
    TellUpkeepAgain,
    UpkeepCommand,
    UpkeepEvent,
    UpkeepPhase,
)
from lakeward_machine_stories.upkeep import (
    CANCELLED,
    COMMITTED,
    COMMITTING,
    DISCARDED,
    DONE,
    DUE,
    LEFT,
    LOST,
    ONE,
    OTHER,
    OTHER_DUE,
    PAUSED,
    PLANNING,
    REFUSED,
    RUNNING,
    STOP,
    TRIED,
    VOID,
    free,
    new,
    planned,
    time,
)

ILLEGAL = None
P = UpkeepPhase
ENDS = "the service ends, or the table was dropped"
FOR_ROUND = "a round needs its slots"
ASKED = PlanUpkeep(ONE, 1)
BOTH = (*PLANNING, planned(1), OTHER_DUE, planned(1, OTHER))
"""Both tables have a job of one task."""
AGAIN = (*PAUSED, time(17.0), planned(1))


def again(reason: str, pause_s: float) -> TellUpkeepAgain:
    """Table 1 is tried again."""
    return TellUpkeepAgain(ONE, reason, pause_s)


class Row(NamedTuple):
    """A rule: after a story, an event leads to a phase of table 1 and to commands. Without them it is illegal."""

    rule: str
    story: tuple[UpkeepEvent, ...]
    event: UpkeepEvent
    phase: UpkeepPhase
    commands: tuple[UpkeepCommand, ...] | None


ROWS = (
    # --- it is due --------------------------------------------------------------------------------------------------
    Row("without a slot it waits", (), DUE, P.DUE, ()),
    Row("with one the lake is asked, for as many tasks as slots", (free(2),), DUE, P.PLANNING, (PlanUpkeep(ONE, 2),)),
    Row("a slot that becomes free is taken", (DUE,), free(1), P.PLANNING, (PlanUpkeep(ONE, 1),)),
    Row("rounds that wait for slots leave none", (DUE,), free(-1), P.DUE, ()),
    Row("who has waited longest is first", (OTHER_DUE, DUE), free(1), P.PLANNING, (PlanUpkeep(ONE, 1),)),
    Row("each has a slot at least", (DUE, OTHER_DUE), free(2), P.PLANNING, (PlanUpkeep(ONE, 2), PlanUpkeep(OTHER, 1))),
    Row("nothing begins once the service ends", (free(1), STOP), DUE, P.QUIET, ()),
    Row("what waits is forgotten when the service ends", (DUE,), STOP, P.QUIET, ()),
    # --- what is to be done -----------------------------------------------------------------------------------------
    Row("nothing is to be done", PLANNING, planned(0), P.QUIET, ()),
    Row("it is asked again if the table has changed", (*PLANNING, DUE), planned(0), P.PLANNING, (PlanUpkeep(ONE, 2),)),
    Row("no job has more tasks than slots", PLANNING, planned(3), P.RUNNING, (LaunchUpkeep(ONE, 2),)),
    Row("no job has more tasks than there are", PLANNING, planned(1), P.RUNNING, (LaunchUpkeep(ONE, 1),)),
    Row("a round that came meanwhile is first", (*PLANNING, free(0)), planned(3), P.DISCARDING, (DiscardUpkeep(ONE),)),
    Row("a lake that cannot plan is asked later", PLANNING, REFUSED, P.PAUSED, (again("the storage refused", 10.0),)),
    # --- its job ----------------------------------------------------------------------------------------------------
    Row("what it has done is committed", RUNNING, DONE, P.COMMITTING, (CommitUpkeep(ONE),)),
    Row("a job that is lost is discarded", RUNNING, LOST, P.DISCARDING, (DiscardUpkeep(ONE),)),
    Row("a round that needs its slots cancels it", RUNNING, free(1), P.CANCELLING, (CancelUpkeep(ONE, FOR_ROUND),)),
    Row("it goes on where its slots are left", RUNNING, free(2), P.RUNNING, ()),
    Row("it is cancelled once", CANCELLED, free(0), P.CANCELLING, ()),
    Row("it is launched again once there is room", (*CANCELLED, LOST, free(1)), DISCARDED, P.PLANNING, (ASKED,)),
    Row("and not before", (*CANCELLED, LOST), DISCARDED, P.DUE, ()),
    Row("one that ended before it was cancelled counts", CANCELLED, DONE, P.COMMITTING, (CommitUpkeep(ONE),)),
    Row("a cancelled one has its slots until it ends", (*CANCELLED, free(2)), OTHER_DUE, P.CANCELLING, ()),
    Row("only the newest is cancelled if that is enough", BOTH, free(1), P.RUNNING, (CancelUpkeep(OTHER, FOR_ROUND),)),
    Row("a stop cancels it", RUNNING, STOP, P.CANCELLING, (CancelUpkeep(ONE, ENDS),)),
    Row("so does the end of its table", RUNNING, LEFT, P.CANCELLING, (CancelUpkeep(ONE, ENDS),)),
    # --- what became of it ------------------------------------------------------------------------------------------
    Row("after a commit the lake is asked again", COMMITTING, COMMITTED, P.PLANNING, (PlanUpkeep(ONE, 2),)),
    Row("what was in vain is discarded", COMMITTING, VOID, P.DISCARDING, (DiscardUpkeep(ONE),)),
    Row("and tried later", (*COMMITTING, VOID), DISCARDED, P.PAUSED, (again(WHY_VOID, 10.0),)),
    Row("what may yet land is not discarded", COMMITTING, REFUSED, P.PAUSED, (again("the storage refused", 10.0),)),
    Row("after a stop nothing follows a commit", (*COMMITTING, STOP), COMMITTED, P.QUIET, ()),
    Row("nor what is discarded", (*RUNNING, STOP, LOST), DISCARDED, P.QUIET, ()),
    Row("a failure is tried later", (*RUNNING, LOST), DISCARDED, P.PAUSED, (again("its executor died", 10.0),)),
    Row("and later after the next one", (*AGAIN, LOST), DISCARDED, P.PAUSED, (again("its executor died", 20.0),)),
    Row("not before its time", PAUSED, time(16.9), P.PAUSED, ()),
    Row("at its time", PAUSED, time(17.0), P.PLANNING, (PlanUpkeep(ONE, 2),)),
    # --- what is illegal --------------------------------------------------------------------------------------------
    Row("no job ends that was not launched", PLANNING, DONE, P.PLANNING, ILLEGAL),
    Row("nothing is planned twice", RUNNING, planned(1), P.RUNNING, ILLEGAL),
    Row("nothing is committed that is being discarded", (*RUNNING, LOST), COMMITTED, P.DISCARDING, ILLEGAL),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.rule)
def test_rule(row: Row) -> None:
    machine = new()
    for event in row.story:
        machine.step(event)
    if row.commands is ILLEGAL:
        with pytest.raises(IllegalEventError):
            machine.step(row.event)
    else:
        assert machine.step(row.event) == row.commands
    assert machine.phase_of(ONE) is row.phase


def test_jobs_never_have_more_slots_than_are_free_once_it_was_said() -> None:
    """Whatever happens in whatever order."""
    for seed in range(200):
        chance = random.Random(seed)  # noqa: S311 - reproducible on purpose
        machine, free_slots = new(), 0
        for _ in range(60):
            event = chance.choice([*TRIED, OTHER_DUE, planned(2, OTHER)])
            try:
                machine.step(event)
            except IllegalEventError:
                continue
            free_slots = event.free if isinstance(event, SlotsFree) else free_slots
            running = [key for key, phase in machine.phases.items() if phase is P.RUNNING]
            assert sum(machine.tables[key].slots for key in running) <= max(0, free_slots)
            assert set(machine.tables) == set(machine.phases)
