"""The exchange's network: channels whose data and marks are late on their own, stall, break, and fall silent."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from lakeward.model.exchange import EndOfChannel

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from lakeward.model.exchange import ChannelMark
    from lakeward.ports import ChannelReceiver, ExchangeKey
    from lakeward_simulator.scheduler import Process, Scheduler

SILENT_S = 8.0
"""Seconds without a message after which an end takes its channel for lost."""
_NOTICE_S = 1.0
"""Seconds until an end sees at the latest that its channel is broken."""
_LOOK_S = 2.0


class ExchangeNetwork:
    """Everything between the subtasks of all launches."""

    def __init__(self, scheduler: Scheduler, latency_s: float = 0.05) -> None:
        """Start empty.

        Args:
            scheduler: the world's.
            latency_s: seconds that a message takes at the most, each stream for itself.
        """
        self.scheduler = scheduler
        self.latency_s = latency_s
        self.exchanges: dict[str, SimSubtaskExchange] = {}
        self.channels: list[SimChannel] = []
        """Those that are open."""
        self.window_bytes = 0
        """What a channel may have under way, unless it is one batch; 0: as much as it likes."""
        self.on_overrun: Callable[[str], None] = lambda _: None
        """Told of a channel that has more under way."""

    def delay(self) -> float:
        """Return how long the next message takes."""
        return self.scheduler.random.random() * self.latency_s


class SimExchangeTransport:
    """See `lakeward.ports.ExchangeTransport`: the exchange of one process."""

    def __init__(self, network: ExchangeNetwork, process: Process) -> None:
        """Open nothing yet."""
        self._network = network
        self._process = process

    def open(self, key: ExchangeKey, host: str, receiver: ChannelReceiver) -> SimSubtaskExchange:
        """See `lakeward.ports.ExchangeTransport`."""
        return SimSubtaskExchange(self._network, self._process, key, host, receiver)


class SimSubtaskExchange:
    """See `lakeward.ports.SubtaskExchange`."""

    def __init__(
        self, network: ExchangeNetwork, process: Process, key: ExchangeKey, host: str, receiver: ChannelReceiver
    ) -> None:
        """Listen."""
        self.network = network
        self.process = process
        self.key = key
        self.receiver = receiver
        self.closed = False
        self.channels: list[SimChannel] = []
        """Open ones, as producer and as consumer; the one to itself is there twice."""
        self._silent_s = 0.0
        self._address = f"{host or 'sim'}:{len(network.exchanges) + 1}"
        network.exchanges[self._address] = self
        network.scheduler.after(_LOOK_S, self._look)

    @property
    def address(self) -> str:
        """See `lakeward.ports.SubtaskExchange`."""
        return self._address

    def connect(self, consumer: int, address: str) -> SimChannel:
        """See `lakeward.ports.SubtaskExchange`."""
        channel = SimChannel(self.network, self, consumer)
        self.process.after(self.network.delay(), channel.open, self.network.exchanges.get(address))
        return channel

    def give_credit(self, producer: int, end: int) -> None:
        """See `lakeward.ports.SubtaskExchange`."""
        for channel in self.channels:
            if channel.consumer is self and channel.producer.key.subtask == producer:
                channel.credit(end)
                return

    def close(self) -> None:
        """See `lakeward.ports.SubtaskExchange`."""
        self.closed = True
        for channel in [*self.channels]:
            channel.cut("the peer has closed it")

    def _look(self) -> None:
        """Let the peers of a process that stands still, or died, take their channels for lost."""
        silent = self.process.frozen or not self.process.alive
        self._silent_s = self._silent_s + _LOOK_S if silent else 0.0
        if self._silent_s >= (SILENT_S if self.process.alive else 0.0) and silent:
            for channel in [*self.channels]:
                channel.cut("silent")
        if self.process.alive and not self.closed:
            self.network.scheduler.after(_LOOK_S, self._look)


class SimChannel:
    """See `lakeward.ports.ChannelSender`; with what is on its way in both streams."""

    def __init__(self, network: ExchangeNetwork, producer: SimSubtaskExchange, number: int) -> None:
        """Start unconnected.

        Args:
            network: between the two ends.
            producer: one end.
            number: the consumer's subtask.
        """
        self._network = network
        self.producer = producer
        self.number = number
        self.consumer: SimSubtaskExchange | None = None
        self.lost = False
        self.stalled_until = {"data": 0.0, "marks": 0.0, "credit": 0.0}
        self.slow_s = 0.0
        """Seconds that a message takes at the most besides what others take."""
        self._last = {"data": 0.0, "marks": 0.0, "credit": 0.0}
        self._unsent: list[tuple[int, pa.RecordBatch, int] | ChannelMark] = []
        """What was sent before it was connected."""
        self._held: deque[tuple[int, pa.RecordBatch, int]] = deque()
        """Batches that have come before a mark that was sent before them."""
        self._marks_sent = self._marks_heard = 0
        self._written = 0
        self._under_way: deque[tuple[int, int]] = deque()
        """Sequence and bytes of what was sent, and is not written as far as the producer knows."""
        self._end: int | None = None
        """How many batches there are; known once the producer has said so."""

    def open(self, consumer: SimSubtaskExchange | None) -> None:
        """Connect, or be lost at once."""
        ours = self.producer.key
        if consumer is None or consumer.closed or not consumer.process.alive or self.lost:
            self._lose(self.producer, self.number, "nobody listens")
            return
        theirs = consumer.key
        if (ours.round_name, ours.job_attempt, ours.secret) != (theirs.round_name, theirs.job_attempt, theirs.secret):
            self._lose(self.producer, self.number, "another launch listens")
            return
        self.consumer = consumer
        for channels in (self.producer.channels, consumer.channels, self._network.channels):
            channels.append(self)
        self._put("marks", consumer, consumer.receiver.on_connected, ours.subtask)
        unsent, self._unsent = self._unsent, []
        for one in unsent:
            if isinstance(one, tuple):
                self._put("data", consumer, self._receive, one)
            else:
                self._put("marks", consumer, self._hear, one)

    def send(self, sequence: int, records: pa.RecordBatch) -> None:
        """See `lakeward.ports.ChannelSender`."""
        self._under_way.append((sequence, records.nbytes if self._network.window_bytes else 0))
        size = sum(one for _, one in self._under_way)
        if size > self._network.window_bytes and len(self._under_way) > 1:
            self._network.on_overrun(f"{size} bytes are under way from {self.producer.process.name} to {self.number}")
        batch = (sequence, records, self._marks_sent)
        if self.consumer is None:
            self._unsent.append(batch)
        else:
            self._put("data", self.consumer, self._receive, batch)

    def mark(self, mark: ChannelMark) -> None:
        """See `lakeward.ports.ChannelSender`."""
        self._marks_sent += 1
        if isinstance(mark, EndOfChannel):
            self._end = mark.first_after
        if self.consumer is None:
            self._unsent.append(mark)
        else:
            self._put("marks", self.consumer, self._hear, mark)

    def close(self) -> None:
        """See `lakeward.ports.ChannelSender`."""
        self.cut("the producer has closed it")

    def credit(self, end: int) -> None:
        """Tell the producer what is written."""
        self._written = end
        self._put("credit", self.producer, self._credited, end)

    def _credited(self, end: int) -> None:
        while self._under_way and self._under_way[0][0] < end:
            self._under_way.popleft()
        self.producer.receiver.on_credit(self.number, end)

    def stall(self, stream: str, seconds: float) -> None:
        """Let a stream stand still; for too long, and the channel is lost.

        Args:
            stream: `data`, `marks` or `credit`.
            seconds: how long.
        """
        scheduler = self._network.scheduler
        self.stalled_until[stream] = max(self.stalled_until[stream], scheduler.now + seconds)
        if seconds >= SILENT_S:
            scheduler.after(SILENT_S, self.cut, "silent")

    def cut(self, reason: str = "the channel is gone") -> None:
        """Lose it, with what is on its way; either end is told once. One that has done its work ends without a word."""
        consumer = self.consumer
        if consumer is None or self not in self._network.channels:
            return
        for channels in (self.producer.channels, consumer.channels, self._network.channels):
            channels.remove(self)
        if self._written == self._end:
            return  # its last marks may still be on their way
        self.lost = True
        self._tell(self.producer, self.number, reason)
        self._tell(consumer, self.producer.key.subtask, reason)

    def _lose(self, end: SimSubtaskExchange, peer: int, reason: str) -> None:
        if not self.lost:
            self.lost = True
            self._tell(end, peer, reason)

    def _tell(self, end: SimSubtaskExchange, peer: int, reason: str) -> None:
        if not end.closed:
            end.process.after(self._network.scheduler.random.random() * _NOTICE_S, self._lost, end, peer, reason)

    @staticmethod
    def _lost(end: SimSubtaskExchange, peer: int, reason: str) -> None:
        if not end.closed:
            end.receiver.on_lost(peer, reason)

    def _put(self, stream: str, end: SimSubtaskExchange, deliver: object, *args: object) -> None:
        """Put a message on its way: in order within its stream, whatever the others do."""
        scheduler = self._network.scheduler
        soon = scheduler.now + self._network.delay()
        if self.slow_s:
            soon += scheduler.random.random() * self.slow_s
        at = max(soon, self._last[stream], self.stalled_until[stream])
        self._last[stream] = at
        scheduler.at(at, self._arrive, end, deliver, args, who=end.process)

    def _arrive(self, end: SimSubtaskExchange, deliver: object, args: tuple[object, ...]) -> None:
        if not self.lost and not end.closed and callable(deliver):
            deliver(*args)

    def _receive(self, batch: tuple[int, pa.RecordBatch, int]) -> None:
        self._held.append(batch)
        self._pass()

    def _hear(self, mark: ChannelMark) -> None:
        if self.consumer is not None:
            self._marks_heard += 1
            self.consumer.receiver.on_mark(self.producer.key.subtask, mark)
            self._pass()

    def _pass(self) -> None:
        """Give batches that have come to the consumer, none before a mark that was sent before it."""
        while self.consumer is not None and self._held and self._held[0][2] <= self._marks_heard:
            sequence, records, _ = self._held.popleft()
            self.consumer.receiver.on_records(self.producer.key.subtask, sequence, records)
