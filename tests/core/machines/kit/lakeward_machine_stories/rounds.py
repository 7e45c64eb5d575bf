"""Stories of the rounds of table 7, with table 8 beside it where the only place for a round is taken."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import structs

from lakeward.machines.rounds import (
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
    ServicePhase,
    SnapshotsGone,
    SplitsFailing,
    StopRequested,
    StopTimedOut,
    TableGone,
    TargetReached,
    Targets,
    Tick,
)
from lakeward.model.settings import ServiceSettings
from lakeward.model.tables import TablePath
from lakeward.model.tiering import HeartbeatRequest, HeartbeatResponse, Refusal, TableAssignment, TableEpoch

if TYPE_CHECKING:
    from lakeward.machines.rounds import RoundsEvent

LATE = 100.0
"""What was renewed at 0 is too old by then."""
SEVEN = TableAssignment(TablePath("db", "t7"), 7, 1, 0, 1000.0)
EIGHT = TableAssignment(TablePath("db", "t8"), 8, 1, 0, 900.0)
E7, E8 = TableEpoch(7, 1, 0), TableEpoch(8, 1, 0)
BEAT = HeartbeatRequest(renewed=(E7,), request=True)
BEAT_OF_TWO = replace(BEAT, renewed=(E7, E8))
REPORT = HeartbeatRequest(finished=(E7,), request=True)
LAST_REPORT = replace(REPORT, request=False)
RETURN = HeartbeatRequest(failed=(E7,))


def answered(
    request: HeartbeatRequest, now: float = 0.0, *, gives: TableAssignment | None = None, refuses: Refusal | None = None
) -> HeartbeatAnswered:
    """The source answers; what it refuses is table 7."""
    refused = {} if refuses is None else {7: refuses}
    return HeartbeatAnswered(now=now, request=request, response=HeartbeatResponse(0, gives, refused))


def resumed(*assignments: TableAssignment) -> Resumed:
    """These are assigned."""
    return Resumed(now=0.0, assignments=assignments)


def opened(table_id: int = 7, *, splits: int = 1, leases: bool = False) -> Opened:
    """The splits of a table are enumerated."""
    return Opened(now=0.0, table_id=table_id, splits=splits, leases=leases)


def drained(now: float = 0.0, failing: str = "") -> Drained:
    """Everything is read, but for splits that fail."""
    return Drained(now=now, table_id=7, finished_early=bool(failing), failing=failing)


TICK, PAUSE, STOP = Tick(now=0.0), PauseRequested(now=0.0, path=SEVEN.path), StopRequested(now=0.0)
STARTED, COMMITTED = JobStarted(now=0.0, table_id=7), Committed(now=0.0, table_id=7, caught_up=True)
GONE = SnapshotsGone(now=0.0, table_id=7, reason="cleaned up")
FAILED = RoundFailed(now=0.0, table_id=7, reason="the disk is full", permanent=False)
TIMED_OUT = StopTimedOut(now=0.0)
Story = tuple["RoundsEvent", ...]

OPENING: Story = (resumed(SEVEN), TICK)
SERVED: Story = (resumed(EIGHT, SEVEN), TICK, opened(8, splits=0))
"""Table 7 is opened after table 8 was served: its next failure counts, and is one too many."""


def through(opening: Story) -> tuple[Story, ...]:
    """A round goes through its phases."""
    leasing, running = (*opening, opened(leases=True)), (*opening, opened())
    stale = (GONE, opened(leases=True)) * 4
    return (
        opening,
        leasing,
        (*leasing, *stale),
        running,
        (*leasing, *stale, Leased(now=0.0, table_id=7)),
        (*running, STARTED),
        (*running, drained(LATE)),
        (*running, drained()),
        (*running, drained(failing="the disk is full")),
    )


def held_back(story: Story) -> tuple[Story, ...]:
    """A pause or a stop comes while a round is at work."""
    return ((*story, PAUSE), (*story, STOP), (*story, STOP, TIMED_OUT), (*story, PAUSE, STOP))


_RUNNING = (*OPENING, opened(), STARTED)
_STALE_RUNNING = (*OPENING, opened(leases=True), *(GONE, opened(leases=True)) * 4, Leased(now=0.0, table_id=7))
_AT_WORK = (_RUNNING, (*_RUNNING, drained(LATE)), (*_RUNNING, drained()), (*_RUNNING, drained(failing="full")))
_REPORTING = (*_RUNNING, drained(), COMMITTED)
_BACKOFF, _SUSPENDED = (*_RUNNING, FAILED), (*_RUNNING, structs.replace(FAILED, permanent=True))
STORIES: tuple[Story, ...] = (
    (),
    (resumed(SEVEN),),
    (PAUSE,),
    (PAUSE, resumed(SEVEN), TICK),
    (TICK,),
    (STOP,),
    (TICK, STOP),
    (TICK, STOP, answered(HeartbeatRequest(request=True))),
    *through(OPENING),
    *through(SERVED),
    *(held for story in (*_AT_WORK, _STALE_RUNNING, _REPORTING) for held in held_back(story)),
    (resumed(EIGHT, SEVEN), TICK),
    _REPORTING,
    (*_REPORTING, answered(BEAT)),
    (*_REPORTING, answered(BEAT), PAUSE),
    (*_REPORTING, answered(BEAT), HeartbeatFailed(now=0.0, cause="away")),
    (*_REPORTING, answered(BEAT), HeartbeatFailed(now=0.0, cause="away"), Tick(now=LATE), STOP),
    _BACKOFF,
    _SUSPENDED,
    (*_BACKOFF, PAUSE),
    (*OPENING, STOP),
    (*OPENING, STOP, answered(BEAT)),
    (*OPENING, STOP, answered(BEAT), HeartbeatFailed(now=0.0, cause="away"), Tick(now=LATE)),
)
_ANSWERS: Story = (
    opened(splits=0),
    opened(),
    opened(leases=True),
    Leased(now=0.0, table_id=7),
    STARTED,
    SplitsFailing(now=0.0, table_id=7, failing=True),
    GONE,
    drained(),
    drained(LATE),
    COMMITTED,
    FAILED,
    structs.replace(FAILED, permanent=True),
    structs.replace(FAILED, checkpoint_lost=True),
    TableGone(now=0.0, table_id=7),
    RoundFenced(now=0.0, table_id=7, reason="another stamp", lost=False),
    RoundFenced(now=0.0, table_id=7, reason="another stamp", lost=True),
)
TRIED: Story = (
    TICK,
    Tick(now=LATE),
    Tick(now=LATE * 100),
    resumed(SEVEN),
    resumed(replace(SEVEN, epoch=2)),
    *_ANSWERS,
    *(
        answered(request, now, refuses=refuses)
        for request in (BEAT, BEAT_OF_TWO, REPORT, LAST_REPORT, RETURN)
        for now in (0.0, LATE)
        for refuses in (None, Refusal.GONE, Refusal.FENCED)
    ),
    answered(BEAT, gives=replace(SEVEN, epoch=2)),
    HeartbeatFailed(now=0.0, cause="away"),
    HeartbeatFailed(now=LATE, cause="away"),
    TargetReached(now=0.0, path=SEVEN.path),
    Targets(now=0.0, paths=frozenset({SEVEN.path, EIGHT.path})),
    PAUSE,
    ResumeRequested(now=0.0, path=SEVEN.path),
    STOP,
    TIMED_OUT,
)
_S, _P = ServicePhase, Phase
ILLEGAL = (
    *((_S.STARTING, event) for event in (HeartbeatAnswered, HeartbeatFailed, StopTimedOut)),
    *((_S.STOPPED, event) for event in (HeartbeatAnswered, HeartbeatFailed, Resumed)),
    *((_S.SERVING, event) for event in (StopTimedOut, Targets)),
    *((HeartbeatPhase.RESTING, event) for event in (HeartbeatAnswered, HeartbeatFailed)),
    # What a round cannot answer in its phase.
    *((phase, Opened) for phase in (_P.LEASING, _P.RUNNING, _P.SETTLING, _P.COMMITTING)),
    *((phase, Leased) for phase in (_P.OPENING, _P.RUNNING, _P.SETTLING, _P.COMMITTING)),
    *((phase, Drained) for phase in (_P.SETTLING, _P.COMMITTING)),
    *((phase, Committed) for phase in (_P.OPENING, _P.LEASING, _P.RUNNING, _P.SETTLING)),
)


def new() -> Rounds:
    """A service that has not started."""
    return Rounds(ServiceSettings(rounds=1, fence_s=45.0, suspend_after=1), once=True)
