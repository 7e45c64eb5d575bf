"""The rules of the queue at the producer's end of a channel, written by hand, one row each.

They are those of docs/explanation/exchange.md and of the module's prose, not of the machine's own table: a wrong row
there agrees with itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest

from lakeward.errors import IllegalEventError
from lakeward.machines.exchange import OutputPhase, OutputQueue
from lakeward.machines.exchange.messages import (
    BarrierAborted,
    BarrierRequested,
    BatchesWritten,
    BatchQueued,
    EndRequested,
    KeepBatches,
    OutputCommand,
    OutputEvent,
    OvertakeRequested,
    SendBatches,
    SendMark,
)
from lakeward.model.exchange import Barrier, EndOfChannel, Overtaken

WINDOW = 10
BATCH, LARGE, END = BatchQueued(4), BatchQueued(30), EndRequested()
THREE = (BATCH, BATCH, BATCH)
"""Two of them fill the window; the third one waits."""
ILLEGAL: Literal["illegal"] = "illegal"


@dataclass(frozen=True, kw_only=True)
class Row:
    """After `given`, `event` leads to `then` and asks for `commands`.

    `counts` are the first batch that the consumer has not written, and the first that is not sent.
    """

    rule: str
    given: tuple[OutputEvent, ...]
    event: OutputEvent
    then: OutputPhase | Literal["illegal"]
    commands: tuple[OutputCommand, ...] = ()
    counts: tuple[int, int] = (0, 0)
    granted: bool = True


ROWS = (
    # --- credit ---
    Row(
        rule="a batch that fits into the window is sent at once",
        given=(BATCH,),
        event=BATCH,
        then=OutputPhase.OPEN,
        commands=(SendBatches(1, 2),),
        counts=(0, 2),
    ),
    Row(
        rule="a batch that does not fit into the window waits",
        given=(BATCH, BATCH),
        event=BATCH,
        then=OutputPhase.OPEN,
        counts=(0, 2),
    ),
    Row(
        rule="what waits is sent in order once the consumer has written what is under way",
        given=(*THREE, BATCH, BATCH),
        event=BatchesWritten(2),
        then=OutputPhase.OPEN,
        commands=(SendBatches(2, 4),),
        counts=(2, 4),
    ),
    Row(
        rule="a small batch does not pass a large one that waits",
        given=(BATCH, LARGE),
        event=BATCH,
        then=OutputPhase.OPEN,
        counts=(0, 1),
    ),
    Row(
        rule="a batch that is larger than the window goes alone",
        given=(BATCH, LARGE, BATCH),
        event=BatchesWritten(1),
        then=OutputPhase.OPEN,
        commands=(SendBatches(1, 2),),
        counts=(1, 2),
    ),
    Row(
        rule="a credit that comes a second time gives nothing",
        given=(*THREE, BATCH, BATCH, BatchesWritten(2)),
        event=BatchesWritten(2),
        then=OutputPhase.OPEN,
        counts=(2, 4),
    ),
    Row(
        rule="a credit that comes after a later one takes nothing back",
        given=(*THREE, BatchesWritten(2)),
        event=BatchesWritten(1),
        then=OutputPhase.OPEN,
        counts=(2, 3),
    ),
    Row(
        rule="nothing can be written that was not sent",
        given=THREE,
        event=BatchesWritten(3),
        then=ILLEGAL,
    ),
    Row(
        rule="a consumer that recovers is sent nothing",
        given=(),
        event=BATCH,
        then=OutputPhase.OPEN,
        granted=False,
    ),
    Row(
        rule="a consumer that has recovered is sent what waits, though it has written nothing",
        given=THREE,
        event=BatchesWritten(0),
        then=OutputPhase.OPEN,
        commands=(SendBatches(0, 2),),
        counts=(0, 2),
        granted=False,
    ),
    # --- barriers ---
    Row(
        rule="a barrier lies behind everything that was put in, and does not wait for credit",
        given=THREE,
        event=BarrierRequested(1, age_s=0.5),
        then=OutputPhase.OPEN,
        commands=(SendMark(Barrier(1, 3, 0.5)),),
        counts=(0, 2),
    ),
    Row(
        rule="a barrier is sent once for each checkpoint",
        given=(*THREE, BarrierRequested(1)),
        event=BarrierRequested(1),
        then=OutputPhase.OPEN,
        counts=(0, 2),
    ),
    Row(
        rule="an older checkpoint gets no barrier after that of a newer one",
        given=(BarrierRequested(2),),
        event=BarrierRequested(1),
        then=OutputPhase.OPEN,
    ),
    Row(
        rule="an aborted checkpoint gets no barrier",
        given=(BarrierAborted(2),),
        event=BarrierRequested(2),
        then=OutputPhase.OPEN,
    ),
    Row(
        rule="the checkpoint after an aborted one gets its barrier",
        given=(BarrierAborted(2),),
        event=BarrierRequested(3),
        then=OutputPhase.OPEN,
        commands=(SendMark(Barrier(3, 0, 0.0)),),
    ),
    # --- overtaking ---
    Row(
        rule="a barrier overtakes what waits before it, and neither what is under way nor what came later",
        given=(*THREE, BarrierRequested(1), BATCH),
        event=OvertakeRequested(1),
        then=OutputPhase.OPEN,
        commands=(KeepBatches(1, 2, 3), SendMark(Overtaken(1, 2))),
        counts=(0, 2),
    ),
    Row(
        rule="nothing is kept where everything is under way, but the consumer is told",
        given=(BATCH, BATCH, BarrierRequested(1)),
        event=OvertakeRequested(1),
        then=OutputPhase.OPEN,
        commands=(SendMark(Overtaken(1, 2)),),
        counts=(0, 2),
    ),
    Row(
        rule="what was sent since the barrier is not kept",
        given=(*THREE, BarrierRequested(1), BATCH, BatchesWritten(2)),
        event=OvertakeRequested(1),
        then=OutputPhase.OPEN,
        commands=(SendMark(Overtaken(1, 3)),),
        counts=(2, 4),
    ),
    Row(
        rule="what a barrier has overtaken is sent all the same",
        given=(*THREE, BarrierRequested(1), OvertakeRequested(1)),
        event=BatchesWritten(2),
        then=OutputPhase.OPEN,
        commands=(SendBatches(2, 3),),
        counts=(2, 3),
    ),
    Row(
        rule="a barrier overtakes once, so that nothing is kept twice",
        given=(*THREE, BarrierRequested(1), OvertakeRequested(1)),
        event=OvertakeRequested(1),
        then=OutputPhase.OPEN,
        counts=(0, 2),
    ),
    Row(
        rule="nothing is kept for a checkpoint that was aborted",
        given=(*THREE, BarrierRequested(1), BarrierAborted(1)),
        event=OvertakeRequested(1),
        then=OutputPhase.OPEN,
        counts=(0, 2),
    ),
    Row(
        rule="nothing is kept for a checkpoint that a newer one has replaced",
        given=(*THREE, BarrierRequested(1), BarrierRequested(2)),
        event=OvertakeRequested(1),
        then=OutputPhase.OPEN,
        counts=(0, 2),
    ),
    Row(
        rule="the end of an older checkpoint takes nothing from the barrier of a newer one",
        given=(*THREE, BarrierRequested(2), BarrierAborted(1)),
        event=OvertakeRequested(2),
        then=OutputPhase.OPEN,
        commands=(KeepBatches(2, 2, 3), SendMark(Overtaken(2, 2))),
        counts=(0, 2),
    ),
    Row(
        rule="a barrier that was not sent overtakes nothing",
        given=(*THREE, BarrierRequested(1)),
        event=OvertakeRequested(2),
        then=ILLEGAL,
    ),
    # --- the end ---
    Row(
        rule="a channel ends behind everything that was put in, and what waits is still sent",
        given=THREE,
        event=END,
        then=OutputPhase.ENDING,
        commands=(SendMark(EndOfChannel(3)),),
        counts=(0, 2),
    ),
    Row(
        rule="an empty channel has nothing to wait for once it ends",
        given=(),
        event=END,
        then=OutputPhase.WRITTEN,
        commands=(SendMark(EndOfChannel(0)),),
    ),
    Row(
        rule="a channel that ends is not written before its last batch is",
        given=(*THREE, END),
        event=BatchesWritten(2),
        then=OutputPhase.ENDING,
        commands=(SendBatches(2, 3),),
        counts=(2, 3),
    ),
    Row(
        rule="a channel that has ended is written once the consumer has written its last batch",
        given=(*THREE, END, BatchesWritten(2)),
        event=BatchesWritten(3),
        then=OutputPhase.WRITTEN,
        counts=(3, 3),
    ),
    Row(
        rule="a checkpoint that is aborted after the end takes nothing from what is still to be written",
        given=(*THREE, END, BarrierRequested(1)),
        event=BarrierAborted(1),
        then=OutputPhase.ENDING,
        counts=(0, 2),
    ),
    Row(
        rule="a channel takes no batch after its end",
        given=(BATCH, END),
        event=BATCH,
        then=ILLEGAL,
    ),
    Row(
        rule="a channel ends once",
        given=(BATCH, END),
        event=END,
        then=ILLEGAL,
    ),
    Row(
        rule="a channel that has ended still has a place for barriers, at its end",
        given=(*THREE, END),
        event=BarrierRequested(1),
        then=OutputPhase.ENDING,
        commands=(SendMark(Barrier(1, 3, 0.0)),),
        counts=(0, 2),
    ),
    Row(
        rule="a channel that was written to its end still has a place for barriers",
        given=(BATCH, BatchesWritten(1), END),
        event=BarrierRequested(1),
        then=OutputPhase.WRITTEN,
        commands=(SendMark(Barrier(1, 1, 0.0)),),
        counts=(1, 1),
    ),
    Row(
        rule="a barrier overtakes what waits in a channel that has ended",
        given=(*THREE, END, BarrierRequested(1)),
        event=OvertakeRequested(1),
        then=OutputPhase.ENDING,
        commands=(KeepBatches(1, 2, 3), SendMark(Overtaken(1, 2))),
        counts=(0, 2),
    ),
)


def seen(queue: OutputQueue) -> object:
    """Everything that the queue shows."""
    return (queue.phase, queue.written, queue.sent, queue.waiting_bytes, queue.under_way_bytes)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.rule)
def test_a_rule_holds(row: Row) -> None:
    queue = OutputQueue(window_bytes=WINDOW, granted=row.granted)
    for event in row.given:
        queue.step(event)

    if row.then == ILLEGAL:
        before = seen(queue)
        with pytest.raises(IllegalEventError):
            queue.step(row.event)
        assert seen(queue) == before
    else:
        assert queue.step(row.event) == row.commands
        assert (queue.phase, (queue.written, queue.sent)) == (row.then, row.counts)
