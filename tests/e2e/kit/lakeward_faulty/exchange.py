"""The ports of a subtask whose rows are exchanged, with a point at each step of the exchange's life.

Batches and windows are small here, so that a few thousand rows are many batches, most of which wait for credit.

Each point ends with the table's name. In a subtask, in the order of its life: `opening` (before it registers),
`connecting` (deployed, before the first channel), `read-back` (the first rows of a checkpoint were read), `connected`
or `restored` (said so to the driver; `restored` where rows were read back), `sending` (before a batch), `received`
(a batch), `aligning` (the barrier of the first of several producers has come), `sent-Barrier`, `sent-Overtaken`,
`sent-EndOfChannel` (in one of several channels), `segment-written`, `received-kept` and `overtaken-kept` (a part was
written that has batches of the consumer, of the producer), `acknowledged` (a part), `files-closed` and `done` (said so
to the driver).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lakeward.model.events import AckCheckpoint, Connected, SubtaskDone, WriterFinished
from lakeward.model.exchange import Barrier, Side
from lakeward.subtask import run
from lakeward.subtask.ports import OutputLimits
from lakeward_faulty.points import reached

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from lakeward.model.checkpoints import CheckpointRef, PartFile, SubtaskSnapshot
    from lakeward.model.events import Envelope
    from lakeward.model.exchange import ChannelMark, Segment
    from lakeward.model.jobs import SubtaskPlace
    from lakeward.ports import (
        Address,
        ChannelReceiver,
        ChannelSender,
        CheckpointStore,
        Connection,
        ExchangeKey,
        ExchangeTransport,
        Receiver,
        SubtaskExchange,
        Transport,
    )
    from lakeward.subtask.ports import SubtaskPorts

_LIMITS = OutputLimits(window_bytes=512, gathered_rows=40)
_SENT = {AckCheckpoint: "acknowledged", WriterFinished: "files-closed", SubtaskDone: "done"}


def watch_subtasks() -> None:
    """Give the subtasks of this process that exchange rows these ports."""
    real = run.real_ports
    if not isinstance(real, _PartsOf):
        run.real_ports = _PartsOf(real)


class _PartsOf:
    def __init__(self, real: Callable[[SubtaskPlace | None], SubtaskPorts]) -> None:
        self._real = real

    def __call__(self, place: SubtaskPlace | None = None) -> SubtaskPorts:
        parts = self._real(place)
        if place is None or not place.job.exchange:
            return parts
        at = _At(place.job.pool.rpartition(".")[2], place.job.subtasks)
        return replace(
            parts,
            transport=FaultyTransport(parts.transport, at),
            exchange=FaultyExchangeTransport(parts.exchange, at),
            checkpoints=lambda root: FaultyStore(parts.checkpoints(root), at),
            exchange_limits=_LIMITS,
        )


class _At:
    """One subtask."""

    def __init__(self, table: str, subtasks: int) -> None:
        self.table = table
        self.subtasks = subtasks
        self.read_back = False

    def reached(self, point: str) -> None:
        reached(f"{point}.{self.table}")


class FaultyTransport:
    """Connects; what is sent to the driver has points."""

    def __init__(self, inner: Transport, at: _At) -> None:
        self._inner = inner
        self._at = at

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the port has
        return getattr(self._inner, name)

    def connect(self, address: Address, first: Envelope, receiver: Receiver, *, after_s: float) -> Connection:
        connection = self._inner.connect(address, first, receiver, after_s=after_s)
        connection.send = self._watched(connection.send)  # type: ignore[assignment, method-assign]
        return connection

    def _watched(self, send: Callable[[Envelope], None]) -> Callable[[Envelope], None]:
        def watched(envelope: Envelope) -> None:
            send(envelope)
            event = envelope.event
            if isinstance(event, Connected):
                self._at.reached("restored" if self._at.read_back else "connected")
            elif type(event) in _SENT:
                self._at.reached(_SENT[type(event)])

        return watched


class FaultyExchangeTransport:
    """Opens exchanges with points."""

    def __init__(self, inner: ExchangeTransport, at: _At) -> None:
        self._inner = inner
        self._at = at

    def open(self, key: ExchangeKey, host: str, receiver: ChannelReceiver) -> SubtaskExchange:
        exchange = self._inner.open(key, host, FaultyChannelReceiver(receiver, self._at))
        self._at.reached("opening")
        return FaultySubtaskExchange(exchange, self._at)


class FaultySubtaskExchange:
    """Connects channels with points."""

    def __init__(self, inner: SubtaskExchange, at: _At) -> None:
        self._inner = inner
        self._at = at

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the port has
        return getattr(self._inner, name)

    @property
    def address(self) -> str:
        return self._inner.address

    def connect(self, consumer: int, address: str) -> ChannelSender:
        self._at.reached("connecting")
        return FaultySender(self._inner.connect(consumer, address), self._at)

    def give_credit(self, producer: int, end: int) -> None:
        self._inner.give_credit(producer, end)

    def close(self) -> None:
        self._inner.close()


class FaultySender:
    """One channel's producer."""

    def __init__(self, inner: ChannelSender, at: _At) -> None:
        self._inner = inner
        self._at = at

    def send(self, sequence: int, records: pa.RecordBatch) -> None:
        self._at.reached("sending")
        self._inner.send(sequence, records)

    def mark(self, mark: ChannelMark) -> None:
        self._inner.mark(mark)
        self._at.reached(f"sent-{type(mark).__name__}")

    def close(self) -> None:
        self._inner.close()


class FaultyChannelReceiver:
    """All channels' consumer."""

    def __init__(self, inner: ChannelReceiver, at: _At) -> None:
        self._inner = inner
        self._at = at
        self._barriers: defaultdict[int, set[int]] = defaultdict(set)

    def on_records(self, producer: int, sequence: int, records: pa.RecordBatch) -> None:
        self._inner.on_records(producer, sequence, records)
        self._at.reached("received")

    def on_mark(self, producer: int, mark: ChannelMark) -> None:
        self._inner.on_mark(producer, mark)
        if isinstance(mark, Barrier):
            come = self._barriers[mark.checkpoint]
            come.add(producer)
            if len(come) == 1 < self._at.subtasks:
                self._at.reached("aligning")

    def on_credit(self, consumer: int, end: int) -> None:
        self._inner.on_credit(consumer, end)

    def on_connected(self, producer: int) -> None:
        self._inner.on_connected(producer)

    def on_lost(self, peer: int, reason: str) -> None:
        self._inner.on_lost(peer, reason)


class FaultyStore:
    """A subtask's store of checkpoints."""

    def __init__(self, inner: CheckpointStore, at: _At) -> None:
        self._inner = inner
        self._at = at

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the port has
        return getattr(self._inner, name)

    def write_segment(self, ref: CheckpointRef, name: str, batches: Iterable[pa.RecordBatch]) -> Segment:
        segment = self._inner.write_segment(ref, name, batches)
        self._at.reached("segment-written")
        return segment

    def write_part(self, ref: CheckpointRef, snapshot: SubtaskSnapshot) -> PartFile:
        part = self._inner.write_part(ref, snapshot)
        sides = {channel.side for channel in snapshot.exchange.channels} if snapshot.exchange is not None else set()
        if Side.IN in sides:
            self._at.reached("received-kept")
        if Side.OUT in sides:
            self._at.reached("overtaken-kept")
        return part

    def read_segment(self, segment: Segment) -> Iterator[pa.RecordBatch]:
        for records in self._inner.read_segment(segment):
            self._at.read_back = True
            self._at.reached("read-back")
            yield records
