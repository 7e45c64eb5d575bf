"""A gang of producers and consumers over a network that may order anything; the mutants of both machines must die.

Each subtask has one alignment and one output queue for each subtask, as the real one. The network delivers the batches
of a channel in order and its marks in order; marks may pass batches, batches never pass a mark. Every completed
checkpoint is compared with what was produced, and the gang goes on from one of them now and then.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as play

from lakeward.errors import IllegalEventError
from lakeward.machines.exchange import BarrierAlignment, OutputPhase, OutputQueue
from lakeward.machines.exchange.messages import (
    AlignmentCommand,
    AlignmentEvent,
    BarrierAborted,
    BarrierReceived,
    BarrierRequested,
    BatchConsumed,
    BatchesWritten,
    BatchQueued,
    BatchReceived,
    BlockChannel,
    CancelCheckpoint,
    ChannelsEnded,
    CheckpointTriggered,
    EndReceived,
    EndRequested,
    InputComplete,
    KeepBatches,
    OutputEvent,
    OvertakenReceived,
    OvertakeRequested,
    PersistBatches,
    SendBatches,
    SendMark,
    TakeWriterSnapshot,
    TimeoutChecked,
    UnblockChannel,
)
from lakeward.model.exchange import Barrier, BarrierCancelled, ChannelMark, EndOfChannel, Overtaken
from lakeward_mutants import exchange as mutants

pytestmark = pytest.mark.slow

GANG = 2
WINDOW = 2
TIMEOUT_S = 5.0
Channel = tuple[int, int]
"""Producer and consumer."""
channels = st.tuples(st.integers(0, GANG - 1), st.integers(0, GANG - 1))
subtasks = st.integers(0, GANG - 1)


@dataclass
class Part:
    """What one subtask has of a checkpoint. Batches are numbers, which count on over restarts."""

    produced: dict[int, int]
    """By consumer: so many batches had been produced before the trigger."""
    since: float
    close_files: bool
    written: dict[int, list[int]] | None = None
    """By producer: the writer's state; None before its snapshot."""
    unaligned: bool = False
    kept_in: dict[int, list[int]] = field(default_factory=dict)
    kept_out: dict[int, list[int]] = field(default_factory=dict)
    complete: bool = False


@dataclass
class Subtask:
    """One of the gang."""

    alignment: BarrierAlignment
    outputs: list[OutputQueue]
    inbox: list[deque[int]]
    """By producer: received and not consumed."""
    kept: list[dict[int, int]]
    """By producer: every batch that was received, by its sequence, while anything may ask for it."""
    parts: dict[int, Part] = field(default_factory=dict)
    blocked: set[int] = field(default_factory=set)
    ended: bool = False


class Gang(RuleBasedStateMachine):
    """The world: a coordinator that triggers and aborts, and a network."""

    alignment: type[BarrierAlignment] = BarrierAlignment
    queue: type[OutputQueue] = OutputQueue

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.checkpoint = 0
        self.close_files = False
        self.running = False
        self.orders: dict[int, deque[tuple[str, int]]] = {}
        """By subtask: what the coordinator has said and it has not heard."""
        self.produced: dict[Channel, int] = dict.fromkeys(self.all, 0)
        self.written: dict[Channel, list[int]] = {channel: [] for channel in self.all}
        self.completed: list[dict[int, Part]] = []
        self.over = False

    @property
    def all(self) -> list[Channel]:
        return [(producer, consumer) for producer in range(GANG) for consumer in range(GANG)]

    @initialize(timeout_s=st.sampled_from([0.0, TIMEOUT_S, TIMEOUT_S]), unaligned=st.sampled_from([True, True, False]))
    def begin(self, timeout_s: float, *, unaligned: bool) -> None:
        self.timeout_s, self.unaligned = timeout_s, unaligned
        self.launch()

    def launch(self) -> None:
        """Start a gang with empty channels."""
        self.gang = [
            Subtask(
                self.alignment(GANG, aligned_timeout_s=self.timeout_s, unaligned=self.unaligned),
                [self.queue(window_bytes=WINDOW) for _ in range(GANG)],
                [deque() for _ in range(GANG)],
                [{} for _ in range(GANG)],
            )
            for _ in range(GANG)
        ]
        self.sent: dict[Channel, list[int]] = {channel: [] for channel in self.all}
        """By channel: all batches that were put in, by sequence."""
        self.data: dict[Channel, deque[tuple[int, int]]] = {channel: deque() for channel in self.all}
        """Under way: a batch's sequence, and how many marks were sent before it."""
        self.marks: dict[Channel, deque[ChannelMark]] = {channel: deque() for channel in self.all}
        self.marks_sent = dict.fromkeys(self.all, 0)
        self.marks_heard = dict.fromkeys(self.all, 0)
        self.credit = dict.fromkeys(self.all, 0)
        self.orders = {number: deque() for number in range(GANG)}
        self.running = self.over = False

    # --- what the machines command ---

    def output(self, channel: Channel, event: OutputEvent) -> None:
        producer, consumer = channel
        for command in self.gang[producer].outputs[consumer].step(event):
            match command:
                case SendBatches():
                    for sequence in range(command.first, command.end):
                        self.data[channel].append((sequence, self.marks_sent[channel]))
                case SendMark():
                    self.marks[channel].append(command.mark)
                    self.marks_sent[channel] += 1
                case KeepBatches():
                    part = self.gang[producer].parts[command.checkpoint]
                    assert consumer not in part.kept_out, "kept twice"
                    assert command.first >= len(self.sent[channel]) - len(self.waiting(channel)), "it is under way"
                    part.kept_out[consumer] = self.sent[channel][command.first : command.end]

    def waiting(self, channel: Channel) -> list[int]:
        return self.sent[channel][self.gang[channel[0]].outputs[channel[1]].sent :]

    def step(self, number: int, event: AlignmentEvent) -> None:
        one = self.gang[number]
        for command in one.alignment.step(event):
            self.execute(number, one, command)

    def execute(self, number: int, one: Subtask, command: AlignmentCommand) -> None:
        match command:
            case BlockChannel():
                assert command.channel not in one.blocked
                one.blocked.add(command.channel)
            case UnblockChannel():
                one.blocked.remove(command.channel)
            case TakeWriterSnapshot():
                part = one.parts[command.checkpoint]
                assert part.written is None, "taken twice"
                assert self.unaligned or not command.unaligned
                assert not (command.unaligned and self.close_files and command.checkpoint == self.checkpoint)
                part.written = {producer: [*self.written[producer, number]] for producer in range(GANG)}
                part.unaligned = command.unaligned
                if command.unaligned:
                    for consumer in range(GANG):
                        self.output((number, consumer), OvertakeRequested(command.checkpoint))
            case PersistBatches():
                part = one.parts[command.checkpoint]
                assert part.written is not None, "kept before the snapshot"
                assert part.unaligned
                assert not part.complete, "kept after it was complete"
                found = one.kept[command.channel]
                part.kept_in.setdefault(command.channel, []).extend(
                    found[sequence] for sequence in range(command.first, command.end)
                )
            case InputComplete():
                assert one.parts[command.checkpoint].written is not None
                one.parts[command.checkpoint].complete = True
                self.check(command.checkpoint)
            case CancelCheckpoint():
                assert not command.decline, command.reason
                one.parts.pop(command.checkpoint, None)
            case ChannelsEnded():
                assert not one.ended, "ended twice"
                one.ended = True

    def check(self, checkpoint: int) -> None:
        """Compare a checkpoint that is complete with what was produced: nothing is missing, twice, or in disorder."""
        parts = {number: one.parts[checkpoint] for number, one in enumerate(self.gang) if checkpoint in one.parts}
        if len(parts) < GANG or not all(part.complete for part in parts.values()):
            return
        for producer, consumer in self.all:
            written = parts[consumer].written
            assert written is not None
            kept = parts[consumer].kept_in.get(producer, []) + parts[producer].kept_out.get(consumer, [])
            expected = [*range(parts[producer].produced[consumer])]
            assert written[producer] + kept == expected, f"channel {producer} to {consumer}"
            assert not (self.close_files and kept), "kept, though files are closed"
        self.completed.append(parts)
        self.running = False

    # --- readers ---

    @rule(channel=channels, batches=st.integers(1, 3))
    def produces(self, channel: Channel, batches: int) -> None:
        producer, consumer = channel
        if self.gang[producer].outputs[consumer].phase is not OutputPhase.OPEN:
            return
        for _ in range(batches):
            self.sent[channel].append(self.produced[channel])
            self.produced[channel] += 1
            self.output(channel, BatchQueued(1))

    @precondition(lambda self: len(self.completed) > 1 or self.now > 3 * TIMEOUT_S)
    @rule(producer=subtasks)
    def ends(self, producer: int) -> None:
        for consumer in range(GANG):
            if self.gang[producer].outputs[consumer].phase is OutputPhase.OPEN:
                self.output((producer, consumer), EndRequested())

    # --- the network ---

    @rule(channel=channels)
    def delivers_data(self, channel: Channel) -> None:
        producer, consumer = channel
        if not self.data[channel] or self.data[channel][0][1] > self.marks_heard[channel]:
            return
        sequence, _ = self.data[channel].popleft()
        batch = self.sent[channel][sequence]
        self.gang[consumer].inbox[producer].append(batch)
        self.gang[consumer].kept[producer][sequence] = batch
        self.step(consumer, BatchReceived(channel=producer, sequence=sequence))

    @rule(channel=channels)
    def delivers_mark(self, channel: Channel) -> None:
        producer, consumer = channel
        if not self.marks[channel]:
            return
        mark = self.marks[channel].popleft()
        self.marks_heard[channel] += 1
        event: AlignmentEvent
        match mark:
            case Barrier():
                event = BarrierReceived(
                    now=self.now, channel=producer, checkpoint=mark.checkpoint, first_after=mark.first_after
                )
            case Overtaken():
                event = OvertakenReceived(now=self.now, channel=producer, checkpoint=mark.checkpoint, first=mark.first)
            case EndOfChannel():
                event = EndReceived(channel=producer, first_after=mark.first_after)
            case BarrierCancelled():
                event = BarrierAborted(mark.checkpoint)
        self.step(consumer, event)

    @rule(channel=channels)
    def consumes(self, channel: Channel) -> None:
        """The writer takes a batch where it may, and the producer is told sometime."""
        producer, consumer = channel
        one = self.gang[consumer]
        may = one.alignment.may_consume(producer)
        assert may == (bool(one.inbox[producer]) and producer not in one.blocked)
        if not may:
            return
        self.written[channel].append(one.inbox[producer].popleft())
        self.credit[channel] += 1
        self.step(consumer, BatchConsumed(channel=producer, sequence=one.alignment.consumed(producer)))

    @rule(channel=channels)
    def gives_credit(self, channel: Channel) -> None:
        self.output(channel, BatchesWritten(self.credit[channel]))

    @rule(channel=channels, more=st.integers(0, 3))
    def flows(self, channel: Channel, more: int) -> None:
        """A channel without trouble."""
        for _ in range(more):
            self.delivers_mark(channel)
            self.delivers_data(channel)
            self.consumes(channel)
            self.gives_credit(channel)

    # --- the coordinator ---

    @precondition(lambda self: not self.running)
    @rule(close_files=st.sampled_from([False, False, False, True]))
    def triggers(self, *, close_files: bool) -> None:
        self.checkpoint += 1
        self.running, self.close_files = True, close_files
        for orders in self.orders.values():
            orders.append(("trigger", self.checkpoint))

    @precondition(lambda self: self.running)
    @rule(heard=st.booleans())
    def aborts(self, *, heard: bool) -> None:
        """A subtask may miss that, where the next checkpoint supersedes the old one."""
        self.running = False
        for orders in self.orders.values():
            if heard:
                orders.append(("abort", self.checkpoint))

    @rule(number=subtasks)
    def hears(self, number: int) -> None:
        if not self.orders[number]:
            return
        what, checkpoint = self.orders[number].popleft()
        one = self.gang[number]
        if what == "abort":
            for consumer in range(GANG):
                self.output((number, consumer), BarrierAborted(checkpoint))
                late = OvertakeRequested(checkpoint)
                assert one.outputs[consumer].step(late) == (), "kept for what was aborted"
            self.step(number, BarrierAborted(checkpoint))
            assert one.alignment.checkpoint != checkpoint, "goes on though it was aborted"
            assert not one.blocked, "blocked for what was aborted"
        elif one.alignment.may_start(checkpoint):
            closes = self.close_files and checkpoint == self.checkpoint
            produced = {consumer: self.produced[number, consumer] for consumer in range(GANG)}
            one.parts[checkpoint] = Part(produced, self.now, closes)
            for consumer in range(GANG):
                self.output((number, consumer), BarrierRequested(checkpoint))
            self.step(number, CheckpointTriggered(now=self.now, checkpoint=checkpoint, close_files=closes))

    @rule(seconds=st.sampled_from([0.5, TIMEOUT_S]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        for number in range(GANG):
            self.step(number, TimeoutChecked(now=self.now))
            for part in self.gang[number].parts.values():
                late = self.unaligned and not part.close_files and self.now >= part.since + self.timeout_s
                assert part.written is not None or not late, "not taken in time"

    @precondition(lambda self: not self.running)
    @rule(channel=channels, later=st.integers(0, 2))
    def is_not_aligned_in_time(self, channel: Channel, later: int) -> None:
        """A channel is full when the barrier comes; more is put in behind it, and the time is over."""
        self.produces(channel, WINDOW + 2)
        self.triggers(close_files=False)
        for number in range(GANG):
            while self.orders[number]:
                self.hears(number)
        for _ in range(later):
            self.produces(channel, 1)
            self.delivers_mark(channel)
        self.time_passes(TIMEOUT_S)

    @precondition(lambda self: self.completed)
    @rule()
    def starts_again_from_a_checkpoint(self) -> None:
        """A subtask is lost: the whole gang goes on from the newest one."""
        parts = self.completed[-1]
        for channel in self.all:
            producer, consumer = channel
            written = parts[consumer].written
            assert written is not None
            kept = parts[consumer].kept_in.get(producer, []) + parts[producer].kept_out.get(consumer, [])
            self.written[channel] = written[producer] + kept
            self.produced[channel] = parts[producer].produced[consumer]
        self.launch()

    # --- what holds ---

    @invariant()
    def what_is_written_is_what_was_produced_in_order(self) -> None:
        for channel in self.all:
            assert self.written[channel] == [*range(len(self.written[channel]))]

    @invariant()
    def no_more_is_under_way_than_the_window_holds(self) -> None:
        for producer, consumer in self.all if hasattr(self, "gang") else ():
            queue = self.gang[producer].outputs[consumer]
            assert queue.sent - queue.written <= WINDOW

    def teardown(self) -> None:
        """Once the readers are at their end, everything is written, and every channel has ended."""
        if not hasattr(self, "gang"):
            return
        self.settles()
        for channel in self.all:
            if self.gang[channel[0]].outputs[channel[1]].phase is OutputPhase.OPEN:
                self.output(channel, EndRequested())
        for number in range(GANG):
            self.step(number, BarrierAborted(self.checkpoint))
        self.everything_flows()
        for channel in self.all:
            assert self.written[channel] == [*range(self.produced[channel])], f"channel {channel} lost batches"
            assert self.gang[channel[0]].outputs[channel[1]].phase is OutputPhase.WRITTEN
        assert all(one.ended for one in self.gang)

    def settles(self) -> None:
        """A checkpoint that is running completes once everything has arrived."""
        for number in range(GANG):
            while self.orders[number]:
                self.hears(number)
        self.time_passes(2 * TIMEOUT_S)
        if self.running:
            self.everything_flows()
            assert not self.running, "the checkpoint never completes"

    def everything_flows(self) -> None:
        for _ in range(max(len(self.sent[one]) + len(self.marks[one]) for one in self.all) + 8):
            for channel in self.all:
                self.flows(channel, 1)


QUICK = settings(
    max_examples=150,
    stateful_step_count=60,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=(HealthCheck.too_slow, HealthCheck.filter_too_much),
)
HUNT = settings(QUICK, max_examples=2000, print_blob=False)


def test_a_checkpoint_has_each_batch_once_and_a_restored_gang_loses_none() -> None:
    """Whatever the network orders, whatever is aborted or superseded, and wherever the gang starts again."""
    play(Gang, settings=QUICK)


@pytest.mark.parametrize("mutant", mutants.ALIGNMENTS)
@pytest.mark.mutant
def test_a_mutant_of_the_alignment_dies(mutant: type[BarrierAlignment]) -> None:
    game = type(f"{mutant.__name__}Game", (Gang,), {"alignment": mutant})
    with pytest.raises((AssertionError, IllegalEventError, KeyError)):
        play(game, settings=HUNT)


@pytest.mark.parametrize("mutant", mutants.QUEUES)
@pytest.mark.mutant
def test_a_mutant_of_the_queue_dies(mutant: type[OutputQueue]) -> None:
    game = type(f"{mutant.__name__}Game", (Gang,), {"queue": mutant})
    with pytest.raises((AssertionError, IllegalEventError, KeyError)):
        play(game, settings=HUNT)
