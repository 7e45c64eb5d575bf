"""The rules of a round's launches, written out by hand: what follows, and what must not.

Nothing here is taken from the machine's own table, so a wrong row of that table is a failure here.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from lakeward.errors import IllegalEventError
from lakeward.machines.launches import (
    CancelLaunch,
    CountSlots,
    Launch,
    LaunchesCommand,
    LaunchesEvent,
    LaunchFinished,
    LaunchPhase,
    ReturnWork,
    TellAgain,
    TellDrained,
    TellLaunchesFailed,
    TellLost,
    TellOver,
    TellStarted,
    WorkReturned,
)
from lakeward_machine_stories.launches import (
    AGAIN,
    ANSWERED,
    DEPLOYED,
    LOST,
    NOTHING,
    OVER,
    PAUSED,
    REQUESTED,
    RETURNED,
    SLOTS,
    THIRD,
    UNWRITTEN,
    WRITTEN,
    finished,
    new,
    pause_over,
)

ILLEGAL = None
SPARK = "its stage failed"
FAILED = "job launched 3 times, the last time: its stage failed"


class Row(NamedTuple):
    """A rule: after a story, an event leads to a phase and to commands. Without them it is illegal."""

    rule: str
    story: tuple[LaunchesEvent, ...]
    event: LaunchesEvent
    phase: LaunchPhase
    commands: tuple[LaunchesCommand, ...] | None


P = LaunchPhase
RUNNING = (REQUESTED, DEPLOYED)
ROWS = (
    # --- a launch runs ----------------------------------------------------------------------------------------------
    Row("the first launch is made at once", (), REQUESTED, P.RUNNING, (Launch(1),)),
    Row("nothing is lost before there is a launch", (), LOST, P.PLANNED, ILLEGAL),
    Row("a round is launched first once", (REQUESTED,), REQUESTED, P.RUNNING, ILLEGAL),
    Row("the first subtask says that there are slots", (REQUESTED,), DEPLOYED, P.RUNNING, (TellStarted(),)),
    Row("the second one says nothing", RUNNING, DEPLOYED, P.RUNNING, ()),
    Row("one of the next launch says nothing either", (*RUNNING, finished(), RETURNED, SLOTS), DEPLOYED, P.RUNNING, ()),
    Row("no subtask comes before there is a launch", (), DEPLOYED, P.PLANNED, ILLEGAL),
    # --- it is lost -------------------------------------------------------------------------------------------------
    Row("a launch that cannot go on is cancelled", RUNNING, LOST, P.ENDING, (CancelLaunch("a subtask is gone"),)),
    Row("it is cancelled once", (*RUNNING, LOST), LOST, P.ENDING, ()),
    Row(
        "what it did not finish is returned once none of its tasks runs",
        (*RUNNING, LOST),
        finished(),
        P.RETURNING,
        (TellLost("a subtask is gone"), ReturnWork()),
    ),
    Row("one that ends by itself is lost as well", RUNNING, finished(), P.RETURNING, (TellLost(SPARK), ReturnWork())),
    Row(
        "without a reason it has left splits",
        RUNNING,
        LaunchFinished(now=6.0, number=1, reason=""),
        P.RETURNING,
        (TellLost("its subtasks ended with splits unfinished"), ReturnWork()),
    ),
    Row("the end of an earlier launch is late", AGAIN, finished(1), P.RUNNING, ()),
    Row(
        "where the store has not answered, nothing is returned yet",
        RUNNING,
        finished(store_asked=True),
        P.ASKING,
        (TellLost(SPARK),),
    ),
    Row("once it has, it is", (*RUNNING, finished(store_asked=True)), ANSWERED, P.RETURNING, (ReturnWork(),)),
    Row("an answer changes nothing for a launch that runs", RUNNING, ANSWERED, P.RUNNING, ()),
    # --- the next one -----------------------------------------------------------------------------------------------
    Row(
        "the second launch waits for no time, but for the slots",
        (*RUNNING, finished()),
        RETURNED,
        P.COUNTING,
        (TellAgain(SPARK, 0.0), CountSlots()),
    ),
    Row("it is made once they are counted", (*RUNNING, finished(), RETURNED), SLOTS, P.RUNNING, (Launch(2),)),
    Row(
        "the reason is given in the words of a subtask, if it has any",
        (*RUNNING, finished()),
        WorkReturned(now=10.0, why="no such file"),
        P.COUNTING,
        (TellAgain("no such file", 0.0), CountSlots()),
    ),
    Row("the third launch pauses", (*AGAIN, finished(2)), RETURNED, P.PAUSED, (TellAgain(SPARK, 20.0),)),
    Row("not before its time", PAUSED, pause_over(29.9), P.PAUSED, ()),
    Row("in its time the slots are counted", PAUSED, pause_over(30.0), P.COUNTING, (CountSlots(),)),
    Row(
        "after the last launch the job has failed",
        (*THIRD, finished(3)),
        RETURNED,
        P.ENDED,
        (TellLaunchesFailed(FAILED),),
    ),
    Row("work comes back only of a launch that is over", RUNNING, RETURNED, P.RUNNING, ILLEGAL),
    Row("slots are counted only for a launch", RUNNING, SLOTS, P.RUNNING, ILLEGAL),
    # --- nothing is left to do --------------------------------------------------------------------------------------
    Row("once all is written the launch ends by itself", RUNNING, WRITTEN, P.WRITTEN, (TellDrained(),)),
    Row("it is said once", (*RUNNING, WRITTEN), WRITTEN, P.WRITTEN, ()),
    Row("rows that are in no file keep it", RUNNING, UNWRITTEN, P.RUNNING, ()),
    Row("subtasks at work have something to write", RUNNING, NOTHING, P.RUNNING, ()),
    Row(
        "with none at work, and nothing read, the launch is not needed",
        (REQUESTED,),
        NOTHING,
        P.WRITTEN,
        (TellDrained(), CancelLaunch("nothing is left to read or to write")),
    ),
    Row("then none of the tasks runs", (*RUNNING, WRITTEN), finished(), P.ENDED, (TellOver(),)),
    Row("a subtask that is lost by then takes nothing along", (*RUNNING, WRITTEN), LOST, P.WRITTEN, ()),
    Row(
        "what came back may be nothing",
        (*RUNNING, finished()),
        NOTHING,
        P.ENDED,
        (TellDrained(), TellOver()),
    ),
    Row("then no launch follows", (*RUNNING, finished(), NOTHING), RETURNED, P.ENDED, ()),
    Row("nor after a pause", PAUSED, WRITTEN, P.ENDED, (TellDrained(), TellOver())),
    Row("nor once the slots are known", (*RUNNING, finished(), RETURNED, WRITTEN), SLOTS, P.ENDED, ()),
    # --- the round is over ------------------------------------------------------------------------------------------
    Row("its launch is cancelled", RUNNING, OVER, P.STOPPING, (CancelLaunch("its round is over"),)),
    Row("one that ends by itself as well", (*RUNNING, WRITTEN), OVER, P.STOPPING, (CancelLaunch("its round is over"),)),
    Row("none follows", (*RUNNING, OVER), finished(), P.ENDED, (TellOver(),)),
    Row("a launch that pauses is not made", PAUSED, OVER, P.ENDED, (TellOver(),)),
    Row(
        "one that waits for the store is not made", (*RUNNING, finished(store_asked=True)), OVER, P.ENDED, (TellOver(),)
    ),
    Row("one that waits for slots is not made", (*RUNNING, finished(), RETURNED), OVER, P.ENDED, (TellOver(),)),
    Row("a round without a launch is over at once", (), OVER, P.ENDED, (TellOver(),)),
    Row("that is said once", (OVER,), OVER, P.ENDED, ()),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.rule)
def test_the_rules_of_launches(row: Row) -> None:
    machine = new()
    for event in row.story:
        machine.step(event)
    if row.commands is ILLEGAL:
        with pytest.raises(IllegalEventError):
            machine.step(row.event)
    else:
        assert machine.step(row.event) == row.commands
    assert machine.phase is row.phase
