"""Gangs of the real machines on the simulator's exchange: seeds, channels that stall or die, and 200 subtasks."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, cast

import pytest

from lakeward.machines.exchange import BarrierAlignment, OutputPhase, OutputQueue
from lakeward.machines.exchange.messages import (
    AlignmentEvent,
    BarrierReceived,
    BarrierRequested,
    BatchConsumed,
    BatchesWritten,
    BatchQueued,
    BatchReceived,
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
)
from lakeward.model.exchange import Barrier, EndOfChannel, Overtaken
from lakeward.model.partitioning import KEY_GROUPS, key_group_range
from lakeward.ports import ExchangeKey
from lakeward_simulator.exchange import SILENT_S, ExchangeNetwork, SimExchangeTransport
from lakeward_simulator.scheduler import Process, Scheduler

if TYPE_CHECKING:
    import pyarrow as pa

    from lakeward.model.exchange import ChannelMark
    from lakeward.ports import ChannelSender

pytestmark = pytest.mark.slow

WRITE_S = 0.2


class Member(Process):
    """One subtask, as far as the exchange goes: it produces numbers, and writes what it gets."""

    def __init__(self, network: ExchangeNetwork, number: int, gang: int, *, timeout_s: float = 5.0) -> None:
        super().__init__(network.scheduler, f"subtask {number}")
        self.gang = gang
        self.alignment = BarrierAlignment(gang, aligned_timeout_s=timeout_s, unaligned=True)
        self.outputs = [OutputQueue(window_bytes=2) for _ in range(gang)]
        key = ExchangeKey("svc/1-1-1", 1, number, b"secret")
        self.exchange = SimExchangeTransport(network, self).open(key, "", self)
        self.senders: list[ChannelSender] = []
        self.connected: set[int] = set()
        self.lost: list[tuple[int, str]] = []
        self.written: list[list[int]] = [[] for _ in range(gang)]
        self.snapshot: list[list[int]] | None = None
        self.kept: list[list[int]] = [[] for _ in range(gang)]
        self.kept_out: list[list[int]] = [[] for _ in range(gang)]
        self.borders: list[int] = []
        self.unaligned = self.complete = self.ended = False

    def connect(self, addresses: list[str]) -> None:
        self.senders = [self.exchange.connect(consumer, address) for consumer, address in enumerate(addresses)]

    def produce(self, consumer: int, batches: int) -> None:
        for _ in range(batches):
            self.output(consumer, BatchQueued(1))

    def trigger(self, checkpoint: int) -> None:
        self.borders = [queue.queued for queue in self.outputs]
        for consumer in range(self.gang):
            self.output(consumer, BarrierRequested(checkpoint))
        self.step(CheckpointTriggered(now=self.scheduler.now, checkpoint=checkpoint))
        if self.alignment.deadline is not None:
            self.after(self.alignment.deadline - self.scheduler.now, self.check_time)

    def check_time(self) -> None:
        self.step(TimeoutChecked(now=self.scheduler.now))

    def end(self) -> None:
        for consumer in range(self.gang):
            self.output(consumer, EndRequested())

    def output(self, consumer: int, event: OutputEvent) -> None:
        for command in self.outputs[consumer].step(event):
            match command:
                case SendBatches():
                    for sequence in range(command.first, command.end):
                        self.senders[consumer].send(sequence, cast("pa.RecordBatch", sequence))
                case SendMark():
                    self.senders[consumer].mark(command.mark)
                case KeepBatches():
                    self.kept_out[consumer] = [*range(command.first, command.end)]

    def step(self, event: AlignmentEvent) -> None:
        for command in self.alignment.step(event):
            match command:
                case TakeWriterSnapshot():
                    self.snapshot = [[*written] for written in self.written]
                    self.unaligned = command.unaligned
                    for consumer in range(self.gang) if command.unaligned else ():
                        self.output(consumer, OvertakeRequested(command.checkpoint))
                case PersistBatches():
                    self.kept[command.channel] += range(command.first, command.end)
                case InputComplete():
                    self.complete = True
                case ChannelsEnded():
                    self.ended = True
                case _:
                    pass

    def write(self, producer: int) -> None:
        """Write a batch, if it may be; what is blocked is looked at again later."""
        if not self.alignment.may_consume(producer):
            self.after(WRITE_S, self.write, producer)
            return
        sequence = self.alignment.consumed(producer)
        self.written[producer].append(sequence)
        self.step(BatchConsumed(channel=producer, sequence=sequence))
        self.exchange.give_credit(producer, sequence + 1)

    def on_records(self, producer: int, sequence: int, records: pa.RecordBatch) -> None:
        """See `ChannelReceiver`."""
        assert sequence == cast("object", records)
        self.step(BatchReceived(channel=producer, sequence=sequence))
        self.after(self.random.random() * WRITE_S, self.write, producer)

    def on_mark(self, producer: int, mark: ChannelMark) -> None:
        """See `ChannelReceiver`."""
        now = self.scheduler.now
        match mark:
            case Barrier():
                self.step(
                    BarrierReceived(now=now, channel=producer, checkpoint=mark.checkpoint, first_after=mark.first_after)
                )
            case Overtaken():
                self.step(OvertakenReceived(now=now, channel=producer, checkpoint=mark.checkpoint, first=mark.first))
            case EndOfChannel():
                self.step(EndReceived(channel=producer, first_after=mark.first_after))
            case _:
                pass

    def on_credit(self, consumer: int, end: int) -> None:
        """See `ChannelReceiver`."""
        self.output(consumer, BatchesWritten(end))

    def on_connected(self, producer: int) -> None:
        """See `ChannelReceiver`."""
        self.connected.add(producer)

    def on_lost(self, peer: int, reason: str) -> None:
        """See `ChannelReceiver`."""
        self.lost.append((peer, reason))

    @property
    def done(self) -> bool:
        return self.ended and all(queue.phase is OutputPhase.WRITTEN for queue in self.outputs)


def gang_of(count: int, seed: int = 1, *, latency_s: float = 0.05, timeout_s: float = 5.0) -> list[Member]:
    """Return subtasks whose channels are all open."""
    network = ExchangeNetwork(Scheduler(Random(seed)), latency_s)  # noqa: S311 - a replay, not a secret
    gang = [Member(network, number, count, timeout_s=timeout_s) for number in range(count)]
    for member in gang:
        member.connect([one.exchange.address for one in gang])
    network.scheduler.run_until(3 * latency_s)
    assert all(len(member.connected) == count for member in gang)
    return gang


def run(gang: list[Member], seconds: float) -> None:
    scheduler = gang[0].scheduler
    scheduler.run_until(scheduler.now + seconds, lambda: all(member.done for member in gang), every_s=0.5)


def check(gang: list[Member]) -> None:
    """Compare what a completed checkpoint has of every channel with what was produced before its barrier."""
    assert all(member.complete for member in gang)
    for consumer in gang:
        assert consumer.snapshot is not None
        for number, producer in enumerate(gang):
            to = gang.index(consumer)
            kept = consumer.kept[number] + producer.kept_out[to]
            assert consumer.snapshot[number] + kept == [*range(producer.borders[to])]


@pytest.mark.parametrize("seed", range(40))
def test_a_cut_is_right_whatever_is_late(seed: int) -> None:
    """Streams that are late on their own and stall; aligned and unaligned, with more put in behind the barrier."""
    chance = Random(seed)  # noqa: S311 - a replay, not a secret
    latency_s = chance.choice((0.05, 0.5, 2.0))
    gang = gang_of(3, seed, latency_s=latency_s, timeout_s=chance.choice((0.0, 0.5, 3.0)))
    for member in gang:
        for consumer in range(3):
            member.produce(consumer, chance.randint(0, 8))
    run(gang, chance.random())
    for _ in range(chance.randint(0, 3)):
        channel = chance.choice(gang[0].exchange.network.channels)
        channel.stall(chance.choice(("data", "marks")), chance.random() * (SILENT_S - 1.0))
    for member in gang:
        member.after(chance.random(), member.trigger, 1)
        for consumer in range(3):
            member.after(1.0 + chance.random(), member.produce, consumer, chance.randint(0, 8))
    run(gang, 60.0)
    check(gang)
    for member in gang:
        member.end()
    run(gang, 60.0)
    assert all(member.done for member in gang)
    for member in gang:
        for number, producer in enumerate(gang):
            assert member.written[number] == [*range(producer.outputs[gang.index(member)].queued)]


def test_both_kinds_of_checkpoints_are_met_by_the_seeds() -> None:
    """Else the test above would say less than it seems."""
    kinds = set()
    for timeout_s in (0.0, 60.0):
        gang = gang_of(2, timeout_s=timeout_s)
        gang[0].produce(1, 9)
        for member in gang:
            member.trigger(1)
        run(gang, 30.0)
        check(gang)
        kinds |= {(member.unaligned, any(map(len, member.kept_out))) for member in gang}
    assert kinds >= {(False, False), (True, True)}


def test_no_batch_passes_a_mark_however_late_that_is() -> None:
    gang = gang_of(2)
    (channel,) = [
        one
        for one in gang[0].exchange.channels
        if one.consumer is gang[1].exchange and one.producer is gang[0].exchange
    ]
    channel.stall("marks", 5.0)
    gang[0].trigger(1)
    gang[0].produce(1, 1)
    run(gang, 4.0)
    assert gang[1].alignment.received(0) == 0
    run(gang, 4.0)
    assert gang[1].alignment.received(0) == 1
    assert gang[1].alignment.checkpoint == 1


def test_a_mark_passes_data_that_stands_still() -> None:
    gang = gang_of(2)
    for channel in gang[0].exchange.channels:
        channel.stall("data", 5.0)
    gang[0].produce(1, 2)
    gang[0].trigger(1)
    run(gang, 1.0)
    assert gang[1].alignment.received(0) == 0
    assert gang[1].alignment.checkpoint == 1


def test_a_full_consumer_stops_its_producer_alone() -> None:
    gang = gang_of(3)
    gang[2].freeze(3.0)
    gang[0].produce(2, 9)
    gang[0].produce(1, 9)
    run(gang, 2.5)
    assert gang[0].outputs[2].waiting_bytes == 7
    assert gang[0].outputs[1].waiting_bytes == 0


@pytest.mark.parametrize("how", ["cut", "killed", "frozen", "stalled"])
def test_a_channel_that_is_gone_or_silent_is_reported_once_within_seconds(how: str) -> None:
    gang = gang_of(2)
    (channel,) = [one for one in gang[0].exchange.channels if one.number == 1 and one.producer is gang[0].exchange]
    match how:
        case "cut":
            channel.cut()
        case "killed":
            gang[1].kill()
        case "frozen":
            gang[1].freeze(100.0)
        case _:
            channel.stall("data", 100.0)
    run(gang, SILENT_S + 6.0)
    assert {peer for peer, _ in gang[0].lost} == {1}
    assert len(gang[0].lost) == (1 if how in {"cut", "stalled"} else 2)  # one for each direction


def test_a_subtask_that_is_done_may_leave_before_the_others() -> None:
    gang = gang_of(3)
    gang[1].produce(2, 9)
    gang[2].freeze(3.0)
    for member in gang:
        member.end()
    run(gang, 2.5)
    assert [member.done for member in gang] == [True, False, False]
    gang[0].exchange.close()
    run(gang, 30.0)
    assert [member.done for member in gang] == [True, True, True]
    assert [member.lost for member in gang] == [[], [], []]


def test_a_channel_that_is_closed_with_batches_on_their_way_is_lost() -> None:
    gang = gang_of(2)
    gang[0].produce(1, 9)
    gang[0].end()
    gang[1].exchange.close()
    run(gang, 3.0)
    assert [peer for peer, _ in gang[0].lost] == [1, 1]


def test_another_launch_gets_no_channel() -> None:
    network = ExchangeNetwork(Scheduler(Random(1)))  # noqa: S311 - a replay, not a secret
    ours, theirs = Member(network, 0, 1), Member(network, 0, 1)
    theirs.exchange.key = theirs.exchange.key._replace(job_attempt=2)
    ours.connect([theirs.exchange.address])
    run([ours], 3.0)
    assert ours.lost == [(0, "another launch listens")]
    assert not theirs.connected


def test_a_gang_of_200_ends() -> None:
    """With a checkpoint, over 40,000 channels; every subtask has key groups of its own."""
    count = 200
    assert all(first < end for first, end in (key_group_range(number, count) for number in range(count)))
    assert count <= KEY_GROUPS
    gang = gang_of(count)
    for number, member in enumerate(gang):
        member.produce((number + 1) % count, 5)
        member.trigger(1)
        member.end()
    run(gang, 60.0)
    assert all(member.done for member in gang)
    check(gang)


def test_a_channel_that_is_lost_while_batches_wait_behind_its_end_is_lost_with_a_word() -> None:
    """Its end has passed them: what was sent by then is written."""
    (member,) = gang_of(1, latency_s=1.0)
    scheduler = member.scheduler
    member.produce(0, 5)
    member.end()
    while len(member.written[0]) < 2:
        scheduler.run_until(scheduler.now + 0.001)
    member.exchange.channels[0].cut()
    scheduler.run_until(scheduler.now + 5.0)
    assert not member.done
    assert [peer for peer, _ in member.lost] == [0, 0]
