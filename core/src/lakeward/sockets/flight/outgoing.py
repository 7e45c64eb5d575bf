"""The producer's end of one channel: two Flight streams, each over a connection of its own.

A connection of its own keeps a mark from waiting behind the bytes of batches that are on their way already.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.flight as fl

from lakeward.errors import ProtocolError
from lakeward.model.exchange import EndOfChannel
from lakeward.sockets.flight.data_address import NAME, DataAddress
from lakeward.sockets.flight.handshake import Hello, StreamKind, check_answer, headers_of
from lakeward.sockets.flight.incoming import brief
from lakeward.sockets.flight.messages import GOODBYE, PING, decode_number, encode_mark, encode_place

if TYPE_CHECKING:
    from lakeward.model.exchange import ChannelMark
    from lakeward.ports import ChannelReceiver, Clock, ExchangeKey
    from lakeward.sockets.flight.poster import Poster

_OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),  # or both streams of a channel would share a connection
    ("grpc.enable_http_proxy", 0),  # executors reach each other without the proxy that leads out of the cluster
    ("grpc.enable_retries", 0),
]
_GONE = (OSError, pa.ArrowException, ProtocolError)


class _Stream:
    """One stream to a consumer."""

    def __init__(self, key: ExchangeKey, consumer: int, address: DataAddress, stream: StreamKind) -> None:
        trust = {"tls_root_certs": address.certificate.encode(), "override_hostname": NAME} if key.trusted else {}
        self._client = fl.FlightClient(address.location, generic_options=_OPTIONS, **trust)
        self._hello = Hello.of(key, consumer, stream)
        self._secret = key.secret
        options = fl.FlightCallOptions(headers=headers_of(self._hello, key.secret))
        self.writer, self.reader = self._client.do_exchange(fl.FlightDescriptor.for_command(stream), options)

    def check_peer(self) -> None:
        """Wait for the consumer's proof, and check it."""
        found = self.reader.read_chunk().app_metadata
        check_answer(b"" if found is None else found.to_pybytes(), self._hello, self._secret)

    def write(self, data: bytes) -> None:
        """Write a small message."""
        self.writer.write_metadata(pa.py_buffer(data))

    def cancel(self) -> None:
        """Break the stream; whoever waits on it gets an error."""
        self.reader.cancel()

    def close(self) -> None:
        """Wait for the consumer's end of the stream, and free it."""
        with suppress(*_GONE, StopIteration):  # it may be broken, which is known by now
            self.writer.close()
        with suppress(*_GONE):
            self._client.close()


class OutgoingChannel:
    """See `lakeward.ports.ChannelSender`. A thread connects and sends batches, another one receives credit."""

    def __init__(  # noqa: PLR0917 - whom to whom, then the parts to do it with
        self,
        key: ExchangeKey,
        consumer: int,
        address: str,
        receiver: ChannelReceiver,
        clock: Clock,
        poster: Poster,
        ping_s: float,
    ) -> None:
        """Start to connect to a consumer, at the address that it registered.

        The receiver is the producer's: it is told of credit and of the loss of the channel. The poster writes marks. A
        ping goes out after `ping_s` seconds without a batch.
        """
        self._key = key
        self._consumer = consumer
        self._address = address
        self._receiver = receiver
        self._clock = clock
        self._poster = poster
        self._ping_s = ping_s
        self._queue: SimpleQueue[tuple[bytes, pa.RecordBatch] | None] = SimpleQueue()
        self._lock = threading.Lock()
        """Guards the two fields below; nobody waits for the network while it is held."""
        self._streams: list[_Stream] = []
        self._closed = False
        """Closed or lost: nothing is reported any more."""
        self._marking = threading.Lock()
        """Guards the three fields below, and the writing of marks."""
        self._connected = False
        self._marks: _Stream | None = None
        self._marked = 0
        """Marks that were sent so far; used by the thread that sends."""
        self._early: list[bytes] = []
        """Marks that were sent before the stream was open."""
        self._ended = False
        """All of the channel was sent, its end too."""
        self._last_received = clock.now()
        self._thread = threading.Thread(target=self._run, name=f"exchange-to-{consumer}", daemon=True)
        self._thread.start()

    def send(self, sequence: int, records: pa.RecordBatch) -> None:
        """See `lakeward.ports.ChannelSender`."""
        self._queue.put((encode_place(sequence, self._marked), records))

    def mark(self, mark: ChannelMark) -> None:
        """See `lakeward.ports.ChannelSender`."""
        if isinstance(mark, EndOfChannel):
            self._ended = True
        self._marked += 1
        self._poster.post(partial(self._write_mark, encode_mark(mark)))

    def close(self) -> None:
        """See `lakeward.ports.ChannelSender`: what was sent still arrives if the channel has ended, else it breaks."""
        with self._lock:
            self._closed = True
        if self._ended:
            self._poster.post(partial(self._queue.put, None))  # after the marks that were sent before
        else:
            self._break()

    def join(self, timeout_s: float) -> None:
        """Wait at most `timeout_s` seconds for the end of a closed channel; break it if it takes longer."""
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._break()

    def ping(self) -> None:
        """Show the consumer that this end lives: on the marks stream; on the other one batches do, or its thread."""
        if self._marks is not None:
            self._write_mark(PING)

    def look(self, now: float, silent_s: float) -> None:
        """Report the consumer if it was silent for too long; see `IncomingChannels.look`."""
        if now - self._last_received > silent_s:
            self._lose(f"nothing received for {now - self._last_received:.0f} s")

    # --- its threads ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        reading: threading.Thread | None = None
        try:
            data = self._connect()
            reading = threading.Thread(
                target=self._read_credit, args=(data,), name=f"exchange-credit-{self._consumer}", daemon=True
            )
            reading.start()
            self._send_all(data)
        except (*_GONE, StopIteration) as error:
            self._lose(brief(error) or "the consumer closed its end")
        finally:
            with self._marking:
                self._marks = None
            with self._lock:
                streams, self._streams = self._streams, []
            if reading is not None:
                reading.join()
            for stream in streams:
                stream.close()

    def _connect(self) -> _Stream:
        address = DataAddress.parse(self._address)
        if bool(address.certificate) != bool(self._key.trusted):
            message = f"exchange: expected {'a' if self._key.trusted else 'no'} certificate in the consumer's address"
            raise ProtocolError(message)
        data, marks = (self._open(address, "data"), self._open(address, "marks"))
        data.check_peer()
        marks.check_peer()
        with self._marking:
            self._last_received, self._connected = self._clock.now(), True
            self._marks, early, self._early = marks, self._early, []
            for one in early:
                marks.write(one)
        return data

    def _open(self, address: DataAddress, kind: StreamKind) -> _Stream:
        stream = _Stream(self._key, self._consumer, address, kind)
        with self._lock:
            self._streams.append(stream)
            closed = self._closed and not self._ended
        if closed:
            stream.cancel()
        return stream

    def _send_all(self, data: _Stream) -> None:
        begun = False
        while True:
            try:
                item = self._queue.get(timeout=self._ping_s)
            except Empty:
                data.write(PING)
                continue
            if item is None:
                break
            place, records = item
            if not begun:
                data.writer.begin(records.schema)
                begun = True
            data.writer.write_with_metadata(records, pa.py_buffer(place))
        with self._marking:
            marks, self._marks = self._marks, None
        if not self._ended:
            return  # the streams are broken
        # Not by `done_writing`: Flight ends the writing itself, on the thread that reads, once the other side ends the
        # stream. Two threads that end it at once make gRPC abort the process.
        data.write(GOODBYE)
        if marks is not None:
            marks.writer.done_writing()

    def _read_credit(self, data: _Stream) -> None:
        try:
            while True:
                found = data.reader.read_chunk().app_metadata
                self._last_received = self._clock.now()
                message = b"" if found is None else found.to_pybytes()
                if message == GOODBYE:
                    break
                if message != PING and not self._closed:
                    self._receiver.on_credit(self._consumer, decode_number(message))
        except StopIteration:
            pass
        except _GONE as error:
            self._lose(brief(error))
            return
        if self._ended:
            self.close()
        else:
            self._lose("the consumer closed its end")

    def _write_mark(self, data: bytes) -> None:
        try:
            with self._marking:
                if self._marks is not None:
                    self._marks.write(data)
                elif not self._connected:
                    self._early.append(data)
        except _GONE as error:
            self._lose(brief(error))

    def _lose(self, reason: str) -> None:
        with self._lock:
            known, self._closed = self._closed, True
        if not known:
            self._break()
            self._receiver.on_lost(self._consumer, f"channel to subtask {self._consumer}: {reason}")

    def _break(self) -> None:
        with self._lock:
            streams = tuple(self._streams)
        for stream in streams:
            stream.cancel()
        self._queue.put(None)
