"""Stories of the upkeep of two tables in two slots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.machines.upkeep import (
    SlotsFree,
    TableChanged,
    TableLeft,
    TablesUpkeep,
    TasksEnded,
    UpkeepCommitted,
    UpkeepDiscarded,
    UpkeepFailed,
    UpkeepPhase,
    UpkeepPlanned,
    UpkeepStopped,
    UpkeepTimePassed,
)

if TYPE_CHECKING:
    from lakeward.machines.upkeep import UpkeepEvent

ONE, OTHER = 1, 2
DUE = TableChanged(now=1.0, table_id=ONE)
OTHER_DUE = TableChanged(now=2.0, table_id=OTHER)
COMMITTED = UpkeepCommitted(now=6.0, table_id=ONE, landed=True)
VOID = UpkeepCommitted(now=6.0, table_id=ONE, landed=False)
DISCARDED = UpkeepDiscarded(now=7.0, table_id=ONE)
REFUSED = UpkeepFailed(now=7.0, table_id=ONE, reason="the storage refused")
LEFT = TableLeft(now=8.0, table_id=ONE)
DONE = TasksEnded(now=5.0, table_id=ONE)
LOST = TasksEnded(now=5.0, table_id=ONE, reason="its executor died")
STOP = UpkeepStopped(now=9.0)


def free(slots: int) -> SlotsFree:
    """So many slots that no round has."""
    return SlotsFree(now=0.5, free=slots)


def planned(tasks: int, table_id: int = ONE) -> UpkeepPlanned:
    """The lake has planned."""
    return UpkeepPlanned(now=3.0, table_id=table_id, tasks=tasks)


def time(now: float) -> UpkeepTimePassed:
    """Time has passed."""
    return UpkeepTimePassed(now=now)


PLANNING = (free(2), DUE)
RUNNING = (*PLANNING, planned(3))
CANCELLED = (*RUNNING, free(0))
COMMITTING = (*RUNNING, DONE)
PAUSED = (*RUNNING, LOST, DISCARDED)
STORIES: tuple[tuple[UpkeepEvent, ...], ...] = (
    (),
    (STOP,),
    (DUE,),
    (DUE, OTHER_DUE),
    PLANNING,
    (*PLANNING, DUE),
    (*PLANNING, LEFT),
    (*PLANNING, LEFT, DUE),
    (*PLANNING, free(0)),
    (free(1), DUE, OTHER_DUE, planned(1)),
    RUNNING,
    (*PLANNING, planned(1), OTHER_DUE, planned(1, OTHER)),
    (*RUNNING, LOST),
    (*RUNNING, LEFT),
    CANCELLED,
    (*CANCELLED, LOST),
    (*CANCELLED, LOST, LEFT),
    COMMITTING,
    (*COMMITTING, LEFT),
    (*COMMITTING, VOID),
    PAUSED,
    (*PAUSED, time(200.0), planned(1), LOST, DISCARDED),
)
TRIED: tuple[UpkeepEvent, ...] = (
    DUE,
    COMMITTED,
    VOID,
    DISCARDED,
    REFUSED,
    LEFT,
    DONE,
    LOST,
    STOP,
    planned(0),
    planned(1),
    free(0),
    free(1),
    free(2),
    time(8.0),
    time(200.0),
)
P = UpkeepPhase
ILLEGAL = frozenset(
    {
        *((phase, UpkeepPlanned) for phase in P if phase is not P.PLANNING),
        *((phase, TasksEnded) for phase in P if phase not in {P.RUNNING, P.CANCELLING}),
        *((phase, UpkeepCommitted) for phase in P if phase is not P.COMMITTING),
        *((phase, UpkeepDiscarded) for phase in P if phase is not P.DISCARDING),
        *((phase, UpkeepFailed) for phase in P if phase not in {P.PLANNING, P.COMMITTING}),
    }
)


def new() -> TablesUpkeep:
    """A table that failed is tried again after 10 seconds, then after 20."""
    return TablesUpkeep(10.0, 60.0)
