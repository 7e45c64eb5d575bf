"""The consumer's end of a subtask's channels: a Flight server.

Flight runs a thread for each stream. It reads at once whatever comes and passes it on; how much can come is bounded by
the credit that was given.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.flight as fl
import structlog

from lakeward.errors import ProtocolError, StorageError
from lakeward.model.exchange import EndOfChannel
from lakeward.sockets.flight.data_address import bracketed
from lakeward.sockets.flight.handshake import Hello, StreamKind, admit, answer_to
from lakeward.sockets.flight.messages import GOODBYE, PING, decode_mark, decode_place, encode_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakeward.ports import ChannelReceiver, Clock, ExchangeKey
    from lakeward.sockets.flight.data_address import OwnCertificate

_BOTH: frozenset[StreamKind] = frozenset({"data", "marks"})
_HELLO = "hello"
_log = structlog.get_logger("lakeward.exchange")


class _Channel:
    """What is known of one producer's channel; nobody waits for the network while `lock` is held."""

    def __init__(self, producer: int, now: float) -> None:
        self.producer = producer
        self.lock = threading.Lock()
        self.opened: set[StreamKind] = set()
        self.ended: set[StreamKind] = set()
        self.last_received: dict[StreamKind, float] = {"data": now, "marks": now}
        self.next_sequence = 0
        self.marked = threading.Condition(self.lock)
        self.marks = 0
        self.end: int | None = None
        """Number of batches of the whole channel, once its end is known."""
        self.connected = False
        self.lost = False
        self.writing = threading.Lock()
        """Guards `credits` and the writing to it; taken before `lock`."""
        self.credits: fl.MetadataRecordBatchWriter | None = None
        """Leads back to the producer; it may be used only while the call of the data stream runs."""

    @property
    def complete(self) -> bool:
        return self.end is not None and self.next_sequence >= self.end


class IncomingChannels:
    """Listens for producers, and tells the receiver what they send."""

    def __init__(
        self, key: ExchangeKey, receiver: ChannelReceiver, clock: Clock, listen: str, own: OwnCertificate | None
    ) -> None:
        """Listen at any free port of the address `listen`; the receiver is told what arrives.

        With a certificate of its own the server speaks TLS; None: it does not.

        Raises:
            StorageError: no port can be opened.
        """
        self._key = key
        self._receiver = receiver
        self._clock = clock
        self._channels: dict[int, _Channel] = {}
        self._lock = threading.Lock()
        """Guards the dict of channels, and the number of calls that run."""
        self._calls = 0
        self._idle = threading.Condition(self._lock)
        self._closed = False
        where = f"{'grpc+tcp' if own is None else 'grpc+tls'}://{bracketed(listen)}:0"
        pairs = None if own is None else [(own.certificate.encode(), own.key.encode())]
        try:
            self._server = _Server(where, pairs, _Gate(key), self._serve)
        except (OSError, pa.ArrowException) as error:
            message = f"no port for the data of other subtasks can be opened at {where}: {error}"
            raise StorageError(message) from error
        self.port = int(self._server.port)

    def give_credit(self, producer: int, end: int) -> None:
        """See `lakeward.ports.SubtaskExchange`. A few bytes are written; a channel that is gone needs none."""
        self._write_back(producer, encode_number(end))

    def ping(self) -> None:
        """Show all producers that this end lives."""
        for producer in tuple(self._channels):
            self._write_back(producer, PING)

    def goodbye(self) -> None:
        """Tell all producers that nothing more is taken, and ignore what they still send."""
        self._closed = True
        for producer, channel in tuple(self._channels.items()):
            with channel.marked:
                channel.marked.notify_all()
            self._write_back(producer, GOODBYE)

    def look(self, now: float, silent_s: float) -> None:
        """Report the producers that were silent for too long: `silent_s` seconds without a message, not even a ping.

        Then a channel is lost. `now` is in seconds, by the clock.
        """
        for channel in tuple(self._channels.values()):
            if channel.complete:
                continue
            for stream in _BOTH:
                if now - channel.last_received[stream] > silent_s:
                    self._lose(
                        channel,
                        f"nothing received for {now - channel.last_received[stream]:.0f} s on its {stream} stream",
                    )

    def wait(self, timeout_s: float) -> bool:
        """Wait at most `timeout_s` seconds for the calls to end; return whether they did."""
        with self._lock:
            return self._idle.wait_for(lambda: not self._calls, timeout_s)

    def shut_down(self) -> None:
        """Free the port, and wait for calls that still run, however long that takes."""
        self._server.shutdown()

    def leave_behind(self) -> None:
        """Say that streams are still open, which end with the process."""
        _log.warning("a peer does not end its streams; they are left behind", subtask=self._key.subtask)

    # --- calls, each on a thread of Flight ------------------------------------------------------------------------

    def _serve(self, hello: Hello, reader: fl.MetadataRecordBatchReader, writer: fl.MetadataRecordBatchWriter) -> None:
        with self._lock:
            self._calls += 1
        try:
            channel = self._open(hello)
            reason = self._receive(channel, hello, reader, writer)
            self._stream_ended(channel, hello.stream, reason)
        finally:
            with self._lock:
                self._calls -= 1
                self._idle.notify_all()

    def _open(self, hello: Hello) -> _Channel:
        now = self._clock.now()
        with self._lock:
            channel = self._channels.setdefault(hello.producer, _Channel(hello.producer, now))
        with channel.lock:
            if hello.stream in channel.opened or self._closed:
                message = f"the {hello.stream} stream from subtask {hello.producer} is open already, or closed"
                raise fl.FlightUnauthorizedError(message)
            channel.opened.add(hello.stream)
            channel.last_received[hello.stream] = now
        return channel

    def _receive(
        self,
        channel: _Channel,
        hello: Hello,
        reader: fl.MetadataRecordBatchReader,
        writer: fl.MetadataRecordBatchWriter,
    ) -> str:
        """Pass on what comes on a stream, until it ends; return what broke it, empty if nothing did."""
        take = self._take_data if hello.stream == "data" else self._take_mark
        try:
            with channel.writing:
                writer.write_metadata(pa.py_buffer(answer_to(hello, self._key.secret)))
                if hello.stream == "data":
                    channel.credits = writer
                with channel.lock:
                    connected = channel.opened == _BOTH and channel.credits is not None and not channel.connected
                    channel.connected |= connected
            if connected:
                self._receiver.on_connected(channel.producer)
            while not self._closed:
                chunk = reader.read_chunk()
                channel.last_received[hello.stream] = self._clock.now()
                metadata = b"" if chunk.app_metadata is None else chunk.app_metadata.to_pybytes()
                if metadata == GOODBYE:
                    break
                if metadata != PING and not self._closed:
                    take(channel, metadata, chunk.data)
        except StopIteration:
            return ""
        except Exception as error:  # noqa: BLE001 - the stream is of no more use, whatever it was
            return brief(error)
        finally:
            if hello.stream == "data":
                with channel.writing:
                    channel.credits = None
        return ""

    def _take_data(self, channel: _Channel, metadata: bytes, records: pa.RecordBatch | None) -> None:
        sequence, marks = decode_place(metadata)
        if records is None or sequence != channel.next_sequence:
            message = f"exchange: expected batch {channel.next_sequence}, found {sequence}"
            raise ProtocolError(message)
        with channel.marked:
            # A mark goes past batches; it never comes after one that was sent after it.
            channel.marked.wait_for(lambda: channel.marks >= marks or channel.lost or self._closed)
            if channel.lost or self._closed:
                return
        channel.next_sequence += 1
        self._receiver.on_records(channel.producer, sequence, records)

    def _take_mark(self, channel: _Channel, metadata: bytes, records: pa.RecordBatch | None) -> None:
        del records
        mark = decode_mark(metadata)
        if isinstance(mark, EndOfChannel):
            channel.end = mark.first_after
        self._receiver.on_mark(channel.producer, mark)
        with channel.marked:
            channel.marks += 1
            channel.marked.notify_all()

    def _stream_ended(self, channel: _Channel, stream: StreamKind, reason: str) -> None:
        """Note the end of a stream. A producer that died is told from one that closed by whether all its rows came."""
        with channel.lock:
            channel.ended.add(stream)
            both = channel.ended == _BOTH
        if reason:
            self._lose(channel, reason)
        elif both and not channel.complete:
            self._lose(channel, "it closed the channel before its end")

    def _lose(self, channel: _Channel, reason: str) -> None:
        with channel.lock:
            known, channel.lost = channel.lost or self._closed, True
            channel.marked.notify_all()
        if not known:
            self._receiver.on_lost(channel.producer, f"channel from subtask {channel.producer}: {reason}")

    def _write_back(self, producer: int, data: bytes) -> None:
        channel = self._channels.get(producer)
        if channel is None:
            return
        try:
            with channel.writing:
                if channel.credits is not None:
                    channel.credits.write_metadata(pa.py_buffer(data))
        except (OSError, pa.ArrowException) as error:
            self._lose(channel, brief(error))


class _Gate(fl.ServerMiddlewareFactory):  # type: ignore[misc] # Flight has no types
    """Refuses every call that does not prove the secret, before anything of it is read."""

    def __init__(self, key: ExchangeKey) -> None:
        self._key = key

    def start_call(self, info: fl.CallInfo, headers: Mapping[str, Any]) -> _Admitted:
        if info.method != fl.FlightMethod.DO_EXCHANGE:
            message = "only channels are served here"
            raise fl.FlightUnauthorizedError(message)
        try:
            return _Admitted(admit(headers, self._key))
        except ProtocolError as error:
            _log.warning("channel refused", subtask=self._key.subtask, reason=str(error))
            raise fl.FlightUnauthenticatedError(str(error)) from error


class _Admitted(fl.ServerMiddleware):  # type: ignore[misc] # Flight has no types
    """Carries a call's hello to its handler."""

    def __init__(self, hello: Hello) -> None:
        self.hello = hello


class _Server(fl.FlightServerBase):  # type: ignore[misc] # Flight has no types
    """Listens from its construction on. `serve` is not called: it would only wait, and take the signals' handlers."""

    def __init__(
        self, where: str, pairs: list[tuple[bytes, bytes]] | None, gate: _Gate, serve: Callable[..., None]
    ) -> None:
        self._serve_stream = serve
        super().__init__(where, tls_certificates=pairs, middleware={_HELLO: gate})

    def do_exchange(
        self,
        context: fl.ServerCallContext,
        descriptor: fl.FlightDescriptor,
        reader: fl.MetadataRecordBatchReader,
        writer: fl.MetadataRecordBatchWriter,
    ) -> None:
        del descriptor
        self._serve_stream(context.get_middleware(_HELLO).hello, reader, writer)


def brief(error: Exception) -> str:
    """Return what went wrong, without the state of gRPC's insides."""
    return str(error).partition(". gRPC client debug context")[0].partition(". Detail:")[0]
