"""What the producer's end of a channel sends, keeps and lets overtake."""

from __future__ import annotations

import pytest

from lakeward.errors import IllegalEventError
from lakeward.machines.exchange import OutputPhase, OutputQueue
from lakeward.machines.exchange.messages import (
    BarrierAborted,
    BarrierRequested,
    BatchesWritten,
    KeepBatches,
    OutputEvent,
    OvertakeRequested,
    SendBatches,
    SendMark,
)
from lakeward.model.exchange import Barrier, EndOfChannel, Overtaken
from lakeward_machine_stories.output import BATCH, END, LARGE, WINDOW, new


def test_a_queue_without_a_grant_sends_nothing_before_its_consumer_says_so() -> None:
    """Marks pass, and what waits can be overtaken."""
    queue = OutputQueue(window_bytes=WINDOW, granted=False)
    assert queue.step(BATCH) == ()
    assert queue.step(BarrierRequested(1)) == (SendMark(Barrier(1, 1, 0.0)),)
    assert queue.step(OvertakeRequested(1)) == (KeepBatches(1, 0, 1), SendMark(Overtaken(1, 0)))
    assert queue.step(BATCH) == ()
    assert queue.step(BatchesWritten(0)) == (SendBatches(0, 2),)


def after(*story: OutputEvent) -> OutputQueue:
    queue = new()
    for event in story:
        queue.step(event)
    return queue


def test_batches_are_sent_in_order_as_far_as_the_window_allows() -> None:
    queue = after()
    assert queue.step(BATCH) == (SendBatches(0, 1),)
    assert queue.step(BATCH) == (SendBatches(1, 2),)
    assert queue.step(BATCH) == ()
    assert (queue.waiting_bytes, queue.under_way_bytes) == (4, 8)
    assert queue.step(BatchesWritten(2)) == (SendBatches(2, 3),)
    assert (queue.waiting_bytes, queue.under_way_bytes, queue.written, queue.sent) == (0, 4, 2, 3)


def test_a_batch_that_is_larger_than_the_window_goes_alone() -> None:
    queue = after(BATCH)
    assert queue.step(LARGE) == ()
    assert queue.step(BATCH) == ()
    assert queue.step(BatchesWritten(1)) == (SendBatches(1, 2),)
    assert queue.step(BatchesWritten(2)) == (SendBatches(2, 3),)


def test_a_credit_that_comes_late_or_twice_changes_nothing_and_one_for_what_was_not_sent_is_illegal() -> None:
    queue = after(BATCH, BATCH, BATCH, BatchesWritten(2))
    assert queue.step(BatchesWritten(1)) == ()
    assert queue.step(BatchesWritten(2)) == ()
    assert queue.under_way_bytes == 4
    with pytest.raises(IllegalEventError, match="2 written, 3 sent"):
        queue.step(BatchesWritten(4))


def test_a_barrier_lies_behind_what_was_put_in_and_passes_what_waits() -> None:
    queue = after(BATCH, BATCH, BATCH)
    assert queue.step(BarrierRequested(1, age_s=0.5)) == (SendMark(Barrier(1, 3, 0.5)),)
    queue.step(BATCH)
    assert queue.step(OvertakeRequested(1)) == (KeepBatches(1, 2, 3), SendMark(Overtaken(1, 2)))
    assert queue.step(BatchesWritten(2)) == (SendBatches(2, 4),)


def test_nothing_is_kept_that_is_under_way_but_the_consumer_is_told_all_the_same() -> None:
    queue = after(BATCH, BATCH, BarrierRequested(1), BATCH)
    assert queue.step(OvertakeRequested(1)) == (SendMark(Overtaken(1, 2)),)


def test_batches_are_kept_once_and_not_for_a_checkpoint_that_was_aborted_or_superseded() -> None:
    assert after(BATCH, BATCH, BATCH, BarrierRequested(1), OvertakeRequested(1)).step(OvertakeRequested(1)) == ()
    assert after(BATCH, BATCH, BATCH, BarrierRequested(1), BarrierAborted(1)).step(OvertakeRequested(1)) == ()
    superseded = after(BATCH, BATCH, BATCH, BarrierRequested(1), BATCH, BarrierRequested(2))
    assert superseded.step(OvertakeRequested(1)) == ()
    assert superseded.step(OvertakeRequested(2)) == (KeepBatches(2, 2, 4), SendMark(Overtaken(2, 2)))


def test_an_aborted_checkpoint_gets_no_barrier() -> None:
    assert after(BarrierAborted(2)).step(BarrierRequested(2)) == ()
    assert after(BarrierAborted(2)).step(BarrierRequested(3)) == (SendMark(Barrier(3, 0, 0.0)),)


def test_a_channel_that_has_ended_takes_no_batch_but_still_has_a_place_for_barriers() -> None:
    queue = after(BATCH, BATCH, BATCH)
    assert queue.step(END) == (SendMark(EndOfChannel(3)),)
    with pytest.raises(IllegalEventError):
        queue.step(BATCH)
    assert queue.step(BarrierRequested(1)) == (SendMark(Barrier(1, 3, 0.0)),)
    assert queue.step(OvertakeRequested(1)) == (KeepBatches(1, 2, 3), SendMark(Overtaken(1, 2)))
    assert queue.step(BatchesWritten(2)) == (SendBatches(2, 3),)
    assert after(BATCH, BATCH, END).phase is OutputPhase.ENDING
    assert after(BATCH, BATCH, END, BatchesWritten(2)).phase is OutputPhase.WRITTEN
