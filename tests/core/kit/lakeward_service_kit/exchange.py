"""An exchange in one process: channels that deliver at once, or when the test says so."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from lakeward.model.exchange import ChannelMark
    from lakeward.ports import ChannelReceiver, ExchangeKey


class MemoryExchange:
    """See `lakeward.ports.ExchangeTransport`. `stalled` holds back what is sent in a channel, or all credit of it."""

    def __init__(self) -> None:
        """Start without a subtask."""
        self._receivers: dict[int, ChannelReceiver] = {}
        self.stalled: set[tuple[int, int]] = set()
        """Producer and consumer of the channels whose batches do not arrive for now."""
        self._held: dict[tuple[int, int], deque[tuple[int, pa.RecordBatch]]] = {}

    def open(self, key: ExchangeKey, host: str, receiver: ChannelReceiver) -> MemorySubtaskExchange:
        """See Protocol."""
        del host
        self._receivers[key.subtask] = receiver
        return MemorySubtaskExchange(self, key.subtask)

    def receiver(self, subtask: int) -> ChannelReceiver:
        """Return who is told of what comes to a subtask."""
        return self._receivers[subtask]

    def deliver(self, producer: int, consumer: int, sequence: int, records: pa.RecordBatch) -> None:
        """Pass a batch on, unless its channel is stalled."""
        if (producer, consumer) in self.stalled:
            self._held.setdefault((producer, consumer), deque()).append((sequence, records))
        else:
            self.receiver(consumer).on_records(producer, sequence, records)

    def let_go(self) -> None:
        """Deliver what was held back; no channel is stalled any more."""
        self.stalled.clear()
        held, self._held = self._held, {}
        for (producer, consumer), batches in held.items():
            for sequence, records in batches:
                self.receiver(consumer).on_records(producer, sequence, records)


class MemorySubtaskExchange:
    """See `lakeward.ports.SubtaskExchange`."""

    def __init__(self, exchange: MemoryExchange, subtask: int) -> None:
        """Keep whose it is."""
        self._exchange = exchange
        self._subtask = subtask
        self.address = f"memory:{subtask}"

    def connect(self, consumer: int, address: str) -> MemoryChannel:
        """See Protocol."""
        del address
        self._exchange.receiver(consumer).on_connected(self._subtask)
        return MemoryChannel(self._exchange, self._subtask, consumer)

    def give_credit(self, producer: int, end: int) -> None:
        """See Protocol."""
        self._exchange.receiver(producer).on_credit(self._subtask, end)

    def close(self) -> None:
        """See Protocol."""


class MemoryChannel:
    """See `lakeward.ports.ChannelSender`."""

    def __init__(self, exchange: MemoryExchange, producer: int, consumer: int) -> None:
        """Keep where it leads."""
        self._exchange = exchange
        self._producer = producer
        self._consumer = consumer

    def send(self, sequence: int, records: pa.RecordBatch) -> None:
        """See Protocol."""
        self._exchange.deliver(self._producer, self._consumer, sequence, records)

    def mark(self, mark: ChannelMark) -> None:
        """See Protocol."""
        self._exchange.receiver(self._consumer).on_mark(self._producer, mark)

    def close(self) -> None:
        """See Protocol."""
