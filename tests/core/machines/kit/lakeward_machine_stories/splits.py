"""Stories of a round of two splits, fresh or restored."""

from __future__ import annotations

from msgspec import structs

from lakeward.machines.splits import (
    AttemptDisconnected,
    AttemptLost,
    AttemptPhase,
    AttemptReconnected,
    AttemptRegistered,
    ConnectionsChecked,
    Enumeration,
    FinishEarlyRequested,
    JobEnded,
    SplitDone,
    SplitPhase,
    SplitRequested,
    Splits,
    SplitsEvent,
    SplitsRested,
)
from lakeward.model.backoff import RetryPauses
from lakeward.model.splits import LogSplit, SnapshotSplit, Split
from lakeward.model.tables import TableBucket

A, B = TableBucket(1, None, 0), TableBucket(1, None, 1)
SNAPSHOT = SnapshotSplit("b1-s4", B, (), 4, 70)
FIRST, SECOND = LogSplit("b0-0", A, (), 0, 10), LogSplit("b0-10", A, (), 10, 20)


def round_of(*splits: Split) -> Splits:
    """A round with these; an attempt may reconnect within 5 s, a split rests 2 s first."""
    return Splits(Enumeration(splits, {}, (), behind=False), reconnect_s=5, retries=RetryPauses(2, 3))


def new() -> Splits:
    """A round of two splits of one bucket."""
    return round_of(FIRST, SECOND)


def restored() -> Splits:
    """Such a round whose first split is withheld."""
    splits = Enumeration((FIRST, SECOND), {}, (), behind=False)
    return Splits(splits, withheld={FIRST.split_id: FIRST.stop}, reconnect_s=5, retries=RetryPauses(2, 3))


def registered(subtask: int, attempt: int = 1, *restored: str) -> AttemptRegistered:
    """An attempt is ready; it sends these finishes again."""
    return AttemptRegistered(now=0, subtask=subtask, attempt=attempt, restored=frozenset(restored))


def requests(subtask: int, attempt: int = 1) -> SplitRequested:
    """An attempt has nothing to read."""
    return SplitRequested(now=0, subtask=subtask, attempt=attempt)


def done(split: Split, subtask: int, attempt: int = 1, end: int | None = None) -> SplitDone:
    """An attempt finished a split, at its end unless another one is given."""
    full = split.log_offset if isinstance(split, SnapshotSplit) else split.stop
    return SplitDone(
        now=0,
        subtask=subtask,
        attempt=attempt,
        split_id=split.split_id,
        end_offset=full if end is None else end,
    )


def lost(subtask: int, attempt: int = 1) -> AttemptLost:
    """An attempt is gone."""
    return AttemptLost(now=0, subtask=subtask, attempt=attempt)


def disconnected(subtask: int, attempt: int = 1, now: float = 0) -> AttemptDisconnected:
    """The connection of an attempt closed."""
    return AttemptDisconnected(now=now, subtask=subtask, attempt=attempt)


def reconnected(subtask: int, attempt: int = 1) -> AttemptReconnected:
    """An attempt is back on another connection."""
    return AttemptReconnected(now=1, subtask=subtask, attempt=attempt)


def checked(now: float) -> ConnectionsChecked:
    """Time passed."""
    return ConnectionsChecked(now=now)


def rested(now: float) -> SplitsRested:
    """Time passed."""
    return SplitsRested(now=now)


JOB_ENDED, FINISH_EARLY = JobEnded(now=0), FinishEarlyRequested(now=0)
FAILED_TWICE: tuple[SplitsEvent, ...] = (
    registered(0),
    requests(0),
    lost(0),
    registered(0, 2),
    requests(0, 2),
    lost(0, 2),
)
"""Two attempts were lost with the first split, which rests now."""
STORIES: tuple[tuple[SplitsEvent, ...], ...] = (
    (),
    (FINISH_EARLY,),
    (registered(0),),
    (registered(0), registered(0, 2)),
    (registered(0), lost(0)),
    (registered(0), JOB_ENDED),
    (registered(0), requests(0)),
    (registered(0), requests(0), registered(1)),
    (registered(0), requests(0), FINISH_EARLY),
    (registered(0), requests(0), requests(0)),
    (registered(0), requests(0), requests(0), requests(0)),
    (registered(0), requests(0), requests(0), registered(1), requests(1)),
    (registered(0), requests(0), registered(1), requests(1), requests(0)),
    (registered(0), requests(0), registered(1), requests(1), registered(2), requests(2)),
    (registered(0), requests(0), registered(1), requests(1), registered(2), requests(2), FINISH_EARLY),
    (registered(0), requests(0), registered(1), requests(1), registered(2), requests(2), FINISH_EARLY, done(FIRST, 0)),
    (registered(0), requests(0), registered(1), requests(1), registered(2), requests(2), done(FIRST, 0)),
    (registered(0), requests(0), done(FIRST, 0)),
    (registered(0), requests(0), registered(1), requests(1), requests(0), done(SECOND, 1)),
    (registered(0), requests(0), done(FIRST, 0), requests(0), done(SECOND, 0)),
    (registered(0), requests(0), done(FIRST, 0), requests(0), done(SECOND, 0), requests(0)),
    (registered(0), requests(0), done(FIRST, 0), lost(0)),
    (registered(0), requests(0), registered(1), requests(1), done(FIRST, 0), requests(0)),
    (registered(0), requests(0), done(FIRST, 0), requests(0), registered(0, 2)),
    (registered(0, 3), requests(0, 3)),
    (registered(0), disconnected(0)),
    (registered(0), requests(0), disconnected(0), checked(5)),
    (registered(0), requests(0), disconnected(0), FINISH_EARLY),
    (registered(0), disconnected(0), FINISH_EARLY),
    FAILED_TWICE,
    (*FAILED_TWICE, registered(1), requests(1), requests(1)),
    (*FAILED_TWICE, registered(1), requests(1), registered(2), requests(2)),
    (*FAILED_TWICE, registered(1), requests(1), done(SECOND, 1), requests(1)),
)

RESTORED_STORIES: tuple[tuple[SplitsEvent, ...], ...] = (
    (),
    (FINISH_EARLY,),
    (registered(1),),
    (registered(1), requests(1)),
    (registered(0, 1, "b0-0"),),
    (registered(0, 1, "b0-0"), requests(0)),
    (registered(0, 1, "b0-0"), FINISH_EARLY),
    (registered(0, 1, "b0-0"), registered(1), requests(1)),
    (registered(0, 1, "b0-0"), requests(0), requests(0), done(FIRST, 0)),
)
MORE = ((restored, RESTORED_STORIES),)

NEVER: tuple[SplitRequested | AttemptRegistered | SplitDone, ...] = (
    requests(7),
    registered(7, 1, "b0-10"),
    done(FIRST, 7),
    done(structs.replace(FIRST, split_id="b9-0"), 0),
    done(FIRST, 0, end=11),
    done(FIRST, 0, end=-1),
)
"""An attempt that never registered may send nothing; an unknown split or a wrong end is never accepted."""
TRIED: tuple[SplitsEvent, ...] = (
    *NEVER,
    *(registered(subtask, attempt) for subtask in (0, 1, 2) for attempt in (1, 2)),
    *(requests(subtask, attempt) for subtask in (0, 1, 2) for attempt in (1, 2)),
    *(done(split, subtask) for split in (FIRST, SECOND) for subtask in (0, 1, 2)),
    done(FIRST, 0, end=4),
    done(FIRST, 0, attempt=2),
    *(lost(subtask, attempt) for subtask in (0, 1, 2) for attempt in (1, 2)),
    registered(0, 1, "b0-0"),
    registered(0, 2, "b0-0"),
    JOB_ENDED,
    FINISH_EARLY,
    *(disconnected(subtask, attempt) for subtask in (0, 1, 2) for attempt in (1, 2)),
    *(reconnected(subtask, attempt) for subtask in (0, 1, 2) for attempt in (1, 2)),
    checked(4.9),
    checked(5),
    rested(1.9),
    rested(2),
)
ILLEGAL = {
    *((AttemptPhase.UNKNOWN, event) for event in (SplitRequested, SplitDone)),
    *((phase, SplitDone) for phase in SplitPhase if phase is not SplitPhase.ASSIGNED),
}
"""An attempt finishes only what it has; what it says again, or after it is gone, does not reach the split."""
