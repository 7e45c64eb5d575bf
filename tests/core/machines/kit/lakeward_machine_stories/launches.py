"""Stories of the launches of a round that may have two."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.machines.launches import (
    AllRead,
    Launches,
    LaunchFinished,
    LaunchLost,
    LaunchPhase,
    LaunchRequested,
    PauseOver,
    RoundOver,
    SlotsKnown,
    StoreAnswered,
    SubtaskDeployed,
    WorkReturned,
)
from lakeward.model.backoff import RetryPauses

if TYPE_CHECKING:
    from lakeward.machines.launches import LaunchesEvent

REQUESTED = LaunchRequested(now=1.0)
DEPLOYED = SubtaskDeployed(now=2.0)
LOST = LaunchLost(now=3.0, reason="a subtask is gone")
WRITTEN = AllRead(now=4.0, written=True)
NOTHING = AllRead(now=4.0, written=False, nothing=True)
UNWRITTEN = AllRead(now=4.0, written=False)
OVER = RoundOver(now=5.0)
RETURNED = WorkReturned(now=10.0)
SLOTS = SlotsKnown(now=11.0)
ANSWERED = StoreAnswered(now=8.0)


def finished(number: int = 1, *, store_asked: bool = False) -> LaunchFinished:
    """A launch is over, says Spark."""
    return LaunchFinished(now=6.0, number=number, reason="its stage failed", store_asked=store_asked)


def pause_over(now: float) -> PauseOver:
    """Time has passed."""
    return PauseOver(now=now)


AGAIN = (REQUESTED, finished(), RETURNED, SLOTS)
"""The second launch."""
PAUSED = (*AGAIN, finished(2), RETURNED)
"""The third one waits for its time."""
THIRD = (*PAUSED, pause_over(30.0), SLOTS)
STORIES: tuple[tuple[LaunchesEvent, ...], ...] = (
    (),
    (REQUESTED,),
    (REQUESTED, LOST),
    (REQUESTED, DEPLOYED),
    (REQUESTED, DEPLOYED, LOST),
    (REQUESTED, DEPLOYED, WRITTEN),
    (REQUESTED, DEPLOYED, OVER),
    (REQUESTED, finished(store_asked=True)),
    (REQUESTED, finished()),
    (REQUESTED, finished(), RETURNED),
    AGAIN,
    PAUSED,
    (*THIRD, finished(3)),
    (*THIRD, finished(3), RETURNED),
)
TRIED: tuple[LaunchesEvent, ...] = (
    REQUESTED,
    DEPLOYED,
    LOST,
    WRITTEN,
    NOTHING,
    UNWRITTEN,
    OVER,
    RETURNED,
    SLOTS,
    ANSWERED,
    finished(),
    finished(2),
    finished(3),
    finished(store_asked=True),
    pause_over(11.0),
    pause_over(30.0),
)
ILLEGAL = frozenset(
    {
        *((phase, LaunchRequested) for phase in LaunchPhase if phase is not LaunchPhase.PLANNED),
        (LaunchPhase.PLANNED, LaunchLost),
        *(
            (phase, SubtaskDeployed)
            for phase in LaunchPhase
            if phase not in {LaunchPhase.RUNNING, LaunchPhase.ENDING, LaunchPhase.WRITTEN, LaunchPhase.STOPPING}
        ),
        *((phase, WorkReturned) for phase in LaunchPhase if phase not in {LaunchPhase.RETURNING, LaunchPhase.ENDED}),
        *((phase, SlotsKnown) for phase in LaunchPhase if phase not in {LaunchPhase.COUNTING, LaunchPhase.ENDED}),
    }
)


def new() -> Launches:
    """Three launches at the most, with a pause before the third."""
    return Launches(limit=3, pauses=RetryPauses(20.0, 60.0))
