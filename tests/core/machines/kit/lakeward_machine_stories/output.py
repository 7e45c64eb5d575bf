"""Stories of the producer's end of a channel."""

from __future__ import annotations

from lakeward.machines.exchange import OutputPhase, OutputQueue
from lakeward.machines.exchange.messages import (
    BarrierAborted,
    BarrierRequested,
    BatchesWritten,
    BatchQueued,
    EndRequested,
    OutputEvent,
    OvertakeRequested,
)

WINDOW = 10
BATCH, LARGE, END = BatchQueued(4), BatchQueued(WINDOW * 3), EndRequested()
STORIES: tuple[tuple[OutputEvent, ...], ...] = (
    (),
    (BATCH, BATCH, BATCH),
    (BATCH, BATCH, BATCH, BarrierRequested(2)),
    (BATCH, BarrierRequested(2), OvertakeRequested(2)),
    (BATCH, BarrierRequested(2), BarrierAborted(2)),
    (BATCH, BATCH, BATCH, BarrierRequested(2), END),
    (BATCH, END),
    (BATCH, END, BarrierRequested(2)),
    (BATCH, BatchesWritten(1), END),
    (BarrierRequested(2), END),
)
TRIED: tuple[OutputEvent, ...] = (
    BATCH,
    BatchesWritten(0),
    BatchesWritten(1),
    BatchesWritten(2),
    BatchesWritten(3),
    BarrierRequested(1),
    BarrierRequested(2),
    BarrierRequested(3),
    OvertakeRequested(1),
    OvertakeRequested(2),
    OvertakeRequested(3),
    END,
    BarrierAborted(1),
    BarrierAborted(3),
)
ILLEGAL = {
    (OutputPhase.ENDING, BatchQueued),
    (OutputPhase.ENDING, EndRequested),
    (OutputPhase.WRITTEN, BatchQueued),
    (OutputPhase.WRITTEN, EndRequested),
}


def new() -> OutputQueue:
    """Nothing was put in."""
    return OutputQueue(window_bytes=WINDOW)
