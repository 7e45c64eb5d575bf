"""Barriers of an exchange, case by case: what a consumer waits for, blocks, takes and keeps.

The cases follow a catalogue of what a barrier's handler has to stand. These cannot occur here, and why:
* the number of a batch that wraps around: numbers are Python's, which do not;
* a record that is cut in the middle: a batch is sent whole, and no barrier falls into one;
* an input that is not selected: a subtask has one input, whose channels are all read;
* broadcast and pointwise channels: every channel is divided by key groups;
* a priority event that is announced and not there: a mark arrives as one piece, with its number;
* a file that several subtasks share: each writes its own.
What the store has to stand, and whatever threads and a network are part of, is tested with real subtasks
(`test_exchange_troubles`); exchange.md has all cases.
"""

from __future__ import annotations

from itertools import permutations

import pytest

from lakeward.machines.exchange import BarrierAlignment, OutputQueue
from lakeward.machines.exchange.messages import (
    AlignmentCommand,
    AlignmentEvent,
    BarrierAborted,
    BarrierReceived,
    BarrierRequested,
    BatchConsumed,
    BatchQueued,
    BatchReceived,
    BlockChannel,
    CancelCheckpoint,
    ChannelsEnded,
    CheckpointTriggered,
    EndReceived,
    InputComplete,
    KeepBatches,
    OvertakenReceived,
    OvertakeRequested,
    PersistBatches,
    TakeWriterSnapshot,
    TimeoutChecked,
    UnblockChannel,
)

TIMEOUT_S = 5.0


class Consumer:
    """A machine, with words for what happens to it; batches of a channel are counted by themselves."""

    def __init__(self, channels: int, timeout_s: float = TIMEOUT_S, *, unaligned: bool = True) -> None:
        self.machine = BarrierAlignment(channels, aligned_timeout_s=timeout_s, unaligned=unaligned)
        self.now = 0.0

    def step(self, event: AlignmentEvent) -> tuple[AlignmentCommand, ...]:
        return self.machine.step(event)

    def receive(self, channel: int, batches: int = 1) -> list[AlignmentCommand]:
        return [
            command
            for _ in range(batches)
            for command in self.step(BatchReceived(channel=channel, sequence=self.machine.received(channel)))
        ]

    def consume(self, channel: int, batches: int = 1) -> list[AlignmentCommand]:
        return [
            command
            for _ in range(batches)
            for command in self.step(BatchConsumed(channel=channel, sequence=self.machine.consumed(channel)))
        ]

    def barrier(
        self, channel: int, first_after: int, checkpoint: int = 1, age_s: float = 0.0
    ) -> tuple[AlignmentCommand, ...]:
        return self.step(
            BarrierReceived(now=self.now, channel=channel, checkpoint=checkpoint, first_after=first_after, age_s=age_s)
        )

    def overtaken(self, channel: int, first: int, checkpoint: int = 1) -> tuple[AlignmentCommand, ...]:
        return self.step(OvertakenReceived(now=self.now, channel=channel, checkpoint=checkpoint, first=first))

    def trigger(self, checkpoint: int = 1, *, close_files: bool = False) -> tuple[AlignmentCommand, ...]:
        return self.step(CheckpointTriggered(now=self.now, checkpoint=checkpoint, close_files=close_files))

    def at(self, now: float) -> tuple[AlignmentCommand, ...]:
        self.now = now
        return self.step(TimeoutChecked(now=now))

    def ends(self, channel: int, first_after: int) -> tuple[AlignmentCommand, ...]:
        return self.step(EndReceived(channel=channel, first_after=first_after))

    def abort(self, checkpoint: int = 1) -> tuple[AlignmentCommand, ...]:
        return self.step(BarrierAborted(checkpoint))


def taken(checkpoint: int = 1, *, unaligned: bool = False) -> TakeWriterSnapshot:
    return TakeWriterSnapshot(checkpoint, unaligned)


ALIGNED = (taken(), InputComplete(1))


# --- barriers --------------------------------------------------------------------------------------------------------


def test_1_a_single_channel_is_aligned_by_its_barrier() -> None:
    one = Consumer(1)
    one.receive(0)
    one.consume(0)
    assert one.trigger() == ()
    assert one.barrier(0, 1) == ALIGNED


def test_1_a_barrier_waits_until_what_is_before_it_is_consumed() -> None:
    one = Consumer(1)
    one.trigger()
    one.receive(0, 2)
    assert one.barrier(0, 2) == ()
    assert one.consume(0) == []
    assert tuple(one.consume(0)) == ALIGNED


@pytest.mark.parametrize("order", list(permutations(["trigger", 0, 1, 2])), ids=repr)
def test_2_channels_are_aligned_whatever_comes_first(order: tuple[str | int, ...]) -> None:
    """A peer may be quicker than the coordinator's own word."""
    three = Consumer(3)
    seen: list[AlignmentCommand] = []
    for what in order:
        assert taken() not in seen
        seen += three.barrier(what, 0) if isinstance(what, int) else three.trigger()
    assert [one for one in seen if not isinstance(one, BlockChannel | UnblockChannel)] == [*ALIGNED]
    blocked = {one.channel for one in seen if isinstance(one, BlockChannel)}
    assert blocked == {one.channel for one in seen if isinstance(one, UnblockChannel)}
    assert three.machine.checkpoint is None


def test_2_a_channel_stops_at_its_barrier_until_the_others_are_there() -> None:
    two = Consumer(2)
    two.trigger()
    two.receive(0, 3)
    assert two.barrier(0, 2) == ()
    two.consume(0)
    assert two.consume(0) == [BlockChannel(0)]
    assert not two.machine.may_consume(0)
    assert two.barrier(1, 0) == (*ALIGNED, UnblockChannel(0))
    assert two.machine.may_consume(0)


def test_3_what_a_barrier_has_passed_on_its_way_is_kept() -> None:
    """With no time to align: those that were received and not consumed, and those that still come."""
    two = Consumer(2, timeout_s=0.0)
    two.receive(0, 3)
    two.consume(0)
    two.barrier(0, 5)
    assert two.trigger() == (taken(unaligned=True), PersistBatches(1, 0, 1, 3))
    assert two.receive(0, 2) == [PersistBatches(1, 0, 3, 4), PersistBatches(1, 0, 4, 5)]
    assert two.receive(0) == []
    assert two.barrier(1, 0) == (InputComplete(1),)


def test_4_data_behind_the_barrier_is_not_kept_and_data_before_it_is() -> None:
    two = Consumer(2, timeout_s=0.0)
    two.receive(0, 2)
    two.barrier(0, 1)
    assert two.trigger() == (taken(unaligned=True), PersistBatches(1, 0, 0, 1))
    assert two.receive(1) == [PersistBatches(1, 1, 0, 1)]
    assert two.barrier(1, 2) == ()
    assert two.receive(0) == []
    assert two.receive(1) == [PersistBatches(1, 1, 1, 2), InputComplete(1)]
    assert two.receive(1) == []


def test_5_a_checkpoint_that_is_not_aligned_in_time_is_taken_at_once() -> None:
    two = Consumer(2)
    two.trigger()
    assert two.barrier(0, 0) == (BlockChannel(0),)
    assert two.at(TIMEOUT_S - 0.1) == ()
    assert two.at(TIMEOUT_S) == (taken(unaligned=True), UnblockChannel(0))
    assert two.barrier(1, 0) == (InputComplete(1),)


def test_5_a_checkpoint_that_meets_a_recovery_waits_for_no_channel() -> None:
    two = Consumer(2)
    two.receive(0)
    at_once = CheckpointTriggered(now=two.now, checkpoint=1, at_once=True)
    assert two.machine.step(at_once) == (taken(unaligned=True), PersistBatches(1, 0, 0, 1))
    assert two.barrier(0, 1) == ()
    assert two.barrier(1, 0) == (InputComplete(1),)


def test_5_a_checkpoint_that_closes_files_is_aligned_though_it_meets_a_recovery() -> None:
    one = Consumer(1)
    one.receive(0)
    assert one.machine.step(CheckpointTriggered(now=one.now, checkpoint=1, close_files=True, at_once=True)) == ()
    assert one.barrier(0, 1) == ()
    assert tuple(one.consume(0)[:2]) == ALIGNED


def test_5_the_deadline_is_known_while_anything_depends_on_it() -> None:
    aligning, collecting = Consumer(1), Consumer(1, timeout_s=0.0)
    assert aligning.machine.deadline is None
    aligning.trigger()
    assert [aligning.machine.deadline] == [TIMEOUT_S]
    collecting.trigger()
    assert collecting.machine.deadline is None


def test_5_time_that_is_over_after_the_last_barrier_changes_nothing() -> None:
    one = Consumer(1)
    one.trigger()
    assert one.barrier(0, 0) == ALIGNED
    assert one.at(TIMEOUT_S) == ()


def test_5_a_last_barrier_that_comes_exactly_in_time_aligns() -> None:
    two = Consumer(2)
    two.trigger()
    two.barrier(0, 0)
    two.now = TIMEOUT_S
    assert two.barrier(1, 0) == (*ALIGNED, UnblockChannel(0))


def test_5_the_time_counts_from_the_trigger_and_not_from_the_barriers_arrival() -> None:
    two = Consumer(2)
    two.trigger()
    assert two.barrier(0, 1, age_s=TIMEOUT_S) == (taken(unaligned=True),)


def test_6_time_that_is_over_before_the_own_trigger_switches_at_the_trigger() -> None:
    two = Consumer(2)
    two.receive(0)
    two.barrier(0, 1)
    assert two.machine.deadline == TIMEOUT_S
    assert two.at(TIMEOUT_S) == ()
    assert two.trigger() == (taken(unaligned=True), PersistBatches(1, 0, 0, 1))


def test_6_a_peer_that_does_not_align_ends_the_alignment() -> None:
    two = Consumer(2)
    two.receive(0, 2)
    two.trigger()
    assert two.barrier(0, 4) == ()
    assert two.overtaken(0, 3) == (taken(unaligned=True), PersistBatches(1, 0, 0, 2))
    assert two.receive(0) == [PersistBatches(1, 0, 2, 3)]
    assert two.receive(0) == []
    assert two.barrier(1, 0) == (InputComplete(1),)


def test_6_what_the_producer_keeps_is_not_consumed_before_the_own_trigger() -> None:
    """It would be in the writer's snapshot and in the producer's share."""
    one = Consumer(1)
    one.receive(0)
    one.barrier(0, 3)
    one.overtaken(0, 1)
    assert one.consume(0) == [BlockChannel(0)]
    one.receive(0)
    assert not one.machine.may_consume(0)
    assert one.trigger() == (taken(unaligned=True), InputComplete(1), UnblockChannel(0))


def test_6_a_checkpoint_that_closes_files_is_never_unaligned() -> None:
    two = Consumer(2, timeout_s=0.0)
    two.receive(0)
    two.barrier(0, 1)
    assert two.trigger(close_files=True) == ()
    assert two.machine.deadline is None
    assert two.at(1000.0) == ()
    assert two.consume(0) == [BlockChannel(0)]
    assert two.barrier(1, 0) == (*ALIGNED, UnblockChannel(0))


def test_6_a_peer_that_does_not_align_what_has_to_be_aligned_costs_the_checkpoint() -> None:
    one = Consumer(1)
    one.trigger(close_files=True)
    one.barrier(0, 2)
    (cancelled,) = one.overtaken(0, 1)
    assert cancelled == CancelCheckpoint(1, "a peer does not align a checkpoint that has to be aligned", decline=True)


def test_6_without_unaligned_checkpoints_no_time_is_ever_over() -> None:
    one = Consumer(1, timeout_s=0.0, unaligned=False)
    assert one.trigger() == ()
    assert one.machine.deadline is None
    assert one.at(1000.0) == ()
    assert one.barrier(0, 0) == ALIGNED


def test_7_a_newer_barrier_supersedes_and_lets_channels_go_on() -> None:
    two = Consumer(2)
    two.trigger()
    assert two.barrier(0, 0) == (BlockChannel(0),)
    cancelled = CancelCheckpoint(1, "superseded by 2", decline=False)
    assert two.barrier(1, 0, checkpoint=2) == (cancelled, UnblockChannel(0), BlockChannel(1))
    two.trigger(2)
    assert two.barrier(0, 0, checkpoint=2) == (taken(2), InputComplete(2), UnblockChannel(1))


def test_7_a_newer_checkpoint_supersedes_one_that_is_being_collected() -> None:
    two = Consumer(2, timeout_s=0.0)
    assert two.trigger() == (taken(unaligned=True),)
    assert two.trigger(2) == (CancelCheckpoint(1, "superseded by 2", decline=False), taken(2, unaligned=True))
    assert two.receive(0) == [PersistBatches(2, 0, 0, 1)]
    two.barrier(0, 1, checkpoint=1)
    assert two.barrier(0, 1, checkpoint=2) == ()
    assert two.barrier(1, 0, checkpoint=2) == (InputComplete(2),)


def test_8_a_late_barrier_of_what_has_ended_is_ignored_and_blocks_nothing() -> None:
    two = Consumer(2)
    two.trigger(2)
    two.receive(0)
    assert two.barrier(0, 0, checkpoint=1) == ()
    assert two.machine.may_consume(0)
    two.barrier(0, 0, checkpoint=2)
    two.barrier(1, 0, checkpoint=2)
    assert two.barrier(0, 0, checkpoint=2) == ()
    assert two.barrier(1, 0, checkpoint=1) == ()
    assert two.machine.may_consume(0)


@pytest.mark.parametrize("before", [0, 1, 2])
def test_9_an_aborted_checkpoint_is_forgotten_wherever_it_stands(before: int) -> None:
    """Before, between and after the barriers; channels go on, and a late barrier starts nothing."""
    two = Consumer(2)
    two.trigger()
    for channel in range(before):
        two.barrier(channel, 0)
    two.abort()
    two.receive(0)
    assert two.machine.may_consume(0)
    assert two.machine.checkpoint is None
    assert two.barrier(0, 0) == ()
    assert two.abort() == ()


def test_9_an_abort_frees_what_was_blocked_and_drops_what_was_collected() -> None:
    two = Consumer(2)
    two.trigger()
    two.barrier(0, 0)
    assert two.abort() == (CancelCheckpoint(1, "aborted", decline=False), UnblockChannel(0))
    two.trigger(2)
    two.at(TIMEOUT_S)
    assert two.abort(2) == (CancelCheckpoint(2, "aborted", decline=False),)
    assert two.receive(0) == []


def test_9_a_newer_abort_ends_an_older_checkpoint_and_an_older_abort_no_newer_one() -> None:
    two = Consumer(2)
    two.trigger(2)
    assert two.abort(1) == ()
    assert two.machine.checkpoint == 2
    assert two.abort(3) == (CancelCheckpoint(2, "aborted", decline=False),)
    assert not two.machine.may_start(3)
    assert two.machine.may_start(4)


def test_10_a_channel_that_ends_during_the_alignment_counts_as_aligned_at_its_end() -> None:
    two = Consumer(2)
    two.trigger()
    two.barrier(0, 0)
    two.receive(1)
    assert two.ends(1, 1) == ()
    assert two.consume(1) == [*ALIGNED, UnblockChannel(0)]


def test_10_all_that_comes_before_a_channels_end_is_kept_if_the_time_is_over() -> None:
    two = Consumer(2)
    two.trigger()
    two.ends(1, 2)
    two.barrier(0, 0)
    two.receive(1)
    assert two.at(TIMEOUT_S) == (taken(unaligned=True), PersistBatches(1, 1, 0, 1), UnblockChannel(0))
    assert two.receive(1) == [PersistBatches(1, 1, 1, 2), InputComplete(1)]


def test_10_the_last_batch_of_the_last_channel_ends_the_input_once() -> None:
    two = Consumer(2)
    two.receive(0)
    two.ends(0, 1)
    assert two.ends(1, 0) == ()
    assert two.consume(0) == [ChannelsEnded()]
    assert two.trigger() == ALIGNED
    assert two.barrier(0, 1) == ()
    assert two.trigger(2) == (taken(2), InputComplete(2))


def test_10_an_input_that_ends_at_its_barriers_is_taken_before_it_ends() -> None:
    one = Consumer(1)
    one.receive(0)
    one.trigger()
    one.barrier(0, 1)
    one.ends(0, 1)
    assert one.consume(0) == [*ALIGNED, ChannelsEnded()]


def test_11_an_abort_before_the_first_barrier_is_remembered() -> None:
    one = Consumer(1)
    assert one.abort() == ()
    one.receive(0)
    assert one.barrier(0, 0) == ()
    assert one.trigger() == ()
    assert one.consume(0) == []


def test_12_two_checkpoints_on_the_same_channels_in_every_order() -> None:
    """Each order of two triggers and four barriers that the channels' own order allows: the newer one is taken once."""
    tokens = [(1, None), (2, None), (1, 0), (2, 0), (1, 1), (2, 1)]
    orders = 0
    for order in permutations(tokens):
        at = {token: place for place, token in enumerate(order)}
        if any(at[1, source] > at[2, source] for source in (None, 0, 1)):
            continue
        orders += 1
        two = Consumer(2)
        seen: list[AlignmentCommand] = []
        for checkpoint, channel in order:
            seen += two.trigger(checkpoint) if channel is None else two.barrier(channel, 0, checkpoint)
        assert [one for one in seen if isinstance(one, TakeWriterSnapshot)][-1] == taken(2)
        assert seen.count(InputComplete(2)) == 1
        first, cancelled = seen.count(InputComplete(1)), CancelCheckpoint(1, "superseded by 2", decline=False)
        assert first + seen.count(cancelled) <= 1
        two.receive(0)
        assert two.machine.may_consume(0)
    assert orders == 90


def test_15_a_blocked_channel_still_brings_its_marks() -> None:
    two = Consumer(2)
    two.trigger()
    assert two.barrier(0, 0) == (BlockChannel(0),)
    two.receive(0, 2)
    assert two.overtaken(0, 0) == (taken(unaligned=True), UnblockChannel(0))
    assert two.ends(0, 2) == ()


def test_a_barrier_that_comes_after_batches_behind_it_were_consumed_costs_the_checkpoint() -> None:
    """The transport does not let that happen; a wrong cut would lose rows without a word."""
    one = Consumer(1)
    one.receive(0)
    one.consume(0)
    (cancelled,) = one.barrier(0, 0)
    assert cancelled == CancelCheckpoint(1, "a mark of channel 0 came after batches that follow it", decline=True)
    assert one.trigger() == ()


def test_a_barrier_that_comes_after_batches_behind_it_were_kept_costs_the_checkpoint() -> None:
    one = Consumer(1, timeout_s=0.0)
    one.trigger()
    assert one.receive(0) == [PersistBatches(1, 0, 0, 1)]
    (cancelled,) = one.barrier(0, 0)
    assert isinstance(cancelled, CancelCheckpoint)
    assert cancelled.decline


# --- what is kept ----------------------------------------------------------------------------------------------------


def test_19_a_snapshot_begins_then_grows_then_is_complete() -> None:
    one = Consumer(1, timeout_s=0.0)
    one.receive(0)
    seen = [*one.trigger(), *one.receive(0), *one.barrier(0, 3), *one.receive(0)]
    assert seen == [
        taken(unaligned=True),
        PersistBatches(1, 0, 0, 1),
        PersistBatches(1, 0, 1, 2),
        PersistBatches(1, 0, 2, 3),
        InputComplete(1),
    ]


def test_20_nothing_is_kept_for_a_checkpoint_that_was_aborted_before_it_began() -> None:
    one = Consumer(1, timeout_s=0.0)
    one.abort()
    one.receive(0)
    assert one.trigger() == ()
    assert one.receive(0) == []


def test_21_a_newer_checkpoint_ends_an_older_one_before_it_begins_itself() -> None:
    one = Consumer(1, timeout_s=0.0)
    one.receive(0)
    one.trigger()
    cancelled, begun, kept = one.trigger(2)
    assert cancelled == CancelCheckpoint(1, "superseded by 2", decline=False)
    assert (begun, kept) == (taken(2, unaligned=True), PersistBatches(2, 0, 0, 1))


def test_22_what_arrives_after_an_abort_is_not_kept() -> None:
    one = Consumer(1, timeout_s=0.0)
    one.trigger()
    one.abort()
    assert one.receive(0, 2) == []


def test_25_batches_that_a_producer_was_to_keep_are_not_after_the_abort() -> None:
    queue = OutputQueue(window_bytes=1)
    for event in (BatchQueued(1), BatchQueued(1), BarrierRequested(1), BarrierAborted(1)):
        queue.step(event)
    assert queue.step(OvertakeRequested(1)) == ()


def test_27_a_channel_with_nothing_on_its_way_keeps_nothing() -> None:
    two = Consumer(2, timeout_s=0.0)
    assert two.trigger() == (taken(unaligned=True),)
    assert [*two.barrier(0, 0), *two.barrier(1, 0)] == [InputComplete(1)]
    queue = OutputQueue(window_bytes=1)
    queue.step(BarrierRequested(1))
    assert not any(isinstance(command, KeepBatches) for command in queue.step(OvertakeRequested(1)))


def test_28_what_is_kept_of_a_channel_follows_on_without_a_gap() -> None:
    """Also where batches are consumed meanwhile: they were kept before."""
    one = Consumer(1, timeout_s=0.0)
    one.receive(0, 2)
    one.consume(0)
    kept = [*one.trigger(), *one.receive(0)]
    one.consume(0, 2)
    kept += [*one.receive(0), *one.barrier(0, 4)]
    ranges = [(command.first, command.end) for command in kept if isinstance(command, PersistBatches)]
    assert ranges == [(1, 2), (2, 3), (3, 4)]
