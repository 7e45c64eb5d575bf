"""Stories of a consumer of two channels."""

from __future__ import annotations

from lakeward.machines.exchange import AlignmentPhase, BarrierAlignment
from lakeward.machines.exchange.messages import (
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
    """A batch arrives."""
    return BatchReceived(channel=channel, sequence=sequence)


def taken(channel: int, sequence: int) -> BatchConsumed:
    """The writer takes a batch."""
    return BatchConsumed(channel=channel, sequence=sequence)


def barrier(channel: int, first_after: int, checkpoint: int = 1, now: float = 0.0) -> BarrierReceived:
    """A barrier arrives."""
    return BarrierReceived(now=now, channel=channel, checkpoint=checkpoint, first_after=first_after)


def overtaken(channel: int, first: int, checkpoint: int = 1) -> OvertakenReceived:
    """A producer keeps what waits."""
    return OvertakenReceived(now=0.0, channel=channel, checkpoint=checkpoint, first=first)


def triggered(checkpoint: int = 1, now: float = 0.0, *, close_files: bool = False) -> CheckpointTriggered:
    """The subtask begins a checkpoint."""
    return CheckpointTriggered(now=now, checkpoint=checkpoint, close_files=close_files)


def ends(channel: int, first_after: int) -> EndReceived:
    """A channel ends."""
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
ILLEGAL = {(AlignmentPhase.ENDED, event) for event in (BatchReceived, BatchConsumed, EndReceived)}


def new() -> BarrierAlignment:
    """Nothing has arrived."""
    return BarrierAlignment(2, aligned_timeout_s=TIMEOUT_S, unaligned=True)
