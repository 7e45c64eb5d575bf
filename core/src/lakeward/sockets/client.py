"""A subtask's end of a connection: a blocking socket, and a thread that opens it and receives."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
from typing import TYPE_CHECKING

from lakeward.errors import ProtocolError
from lakeward.machines.transport.frames import NONCE, PROOF, decode, encode, frame, length_of, proof, proves
from lakeward.sockets.tls import TlsSocket

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.events import Envelope
    from lakeward.ports import Address, Clock, Receiver

CONNECT_S = 5.0
"""Seconds to connect, for the TLS handshake, for the proof, and for the answer to the first envelope, each."""
Stream = socket.socket | TlsSocket
_LEAST_S = 0.001


class ClientConnection:
    """See `lakeward.ports.Connection`. One thread sends at a time; any thread may close."""

    def __init__(self, address: Address, first: Envelope, receiver: Receiver, clock: Clock, *, after_s: float) -> None:
        """Start the thread. See `lakeward.ports.Transport.connect`."""
        self._address = address
        self._first = first
        self._receiver = receiver
        self._clock = clock
        self._after_s = after_s
        self._socket: Stream | None = None
        self._lock = threading.Lock()
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="connection", daemon=True).start()

    def send(self, envelope: Envelope) -> None:
        """See `lakeward.ports.Connection`."""
        connection = self._socket
        if connection is not None:
            try:
                connection.sendall(encode(envelope))
            except OSError:
                self.close()

    def close(self) -> None:
        """See `lakeward.ports.Connection`; the receiving thread sees it."""
        with self._lock:
            self._closed.set()
            connection, self._socket = self._socket, None
        if connection is not None:
            _end(connection)

    def _run(self) -> None:
        try:
            if not self._closed.wait(self._after_s):
                self._receive(self._open())
        except (OSError, ProtocolError) as error:
            self.close()
            self._receiver.on_disconnect(self, error)

    def _open(self) -> Stream:
        connection = open_stream(self._address, self._clock)
        try:
            connection.settimeout(CONNECT_S)
            connection.sendall(encode(self._first))
        except BaseException:
            connection.close()
            raise
        with self._lock:
            if not self._closed.is_set():
                self._socket = connection
                return connection
        connection.close()
        message = "connection closed here"
        raise ConnectionError(message)

    def _receive(self, connection: Stream) -> None:
        answer = decode(_read_frame(connection))
        connection.settimeout(None)
        self._receiver.on_message(self, answer)
        while True:
            self._receiver.on_message(self, decode(_read_frame(connection)))


def open_stream(address: Address, clock: Clock) -> Stream:
    """Connect to the coordinator: TCP, TLS where its address says so, and the proof of the secret both ways.

    Each takes `CONNECT_S` at most, by the clock; then the connection is ready for envelopes.

    Raises:
        ProtocolError: the peer did not prove the secret, or its certificate is not to be trusted.
        TimeoutError: the peer took too long.
        OSError: the connection could not be made, or broke.
    """
    connection = socket.create_connection((address.host, address.port), timeout=CONNECT_S)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = _secured(connection, address, clock)
        prove(stream, address.secret, clock)
    except BaseException:
        connection.close()
        raise
    return stream


def _secured(connection: socket.socket, address: Address, clock: Clock) -> Stream:
    if not address.trusted:
        return connection
    deadline = clock.now() + CONNECT_S
    secured = TlsSocket(connection, address.trusted, address.host)
    secured.handshake(lambda: deadline - clock.now())
    return secured


def prove(connection: Stream, secret: bytes, clock: Clock) -> None:
    """Prove the secret to the coordinator, and check the coordinator's proof; all within `CONNECT_S`.

    Raises:
        ProtocolError: the peer did not prove it.
        TimeoutError: the peer took too long.
        OSError: the connection broke.
    """
    deadline = clock.now() + CONNECT_S

    def left() -> float:
        return deadline - clock.now()

    theirs = _read_frame(connection, NONCE, left)
    ours = secrets.token_bytes(NONCE)
    connection.sendall(frame(ours + proof(secret, "client", theirs, ours)))
    if not proves(_read_frame(connection, PROOF, left), proof(secret, "server", theirs, ours)):
        message = "the coordinator did not prove the secret of this service run"
        raise ProtocolError(message)


def _end(connection: Stream) -> None:
    """Close a socket, and end a read of another thread first: the socket would stay open until that read returns."""
    with contextlib.suppress(OSError):  # the connection is down already
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _read_frame(connection: Stream, exactly: int | None = None, left_s: Callable[[], float] | None = None) -> bytes:
    """Read a frame; with `exactly`, only one of that length, and within `left_s` seconds in total."""
    return _read(connection, length_of(_read(connection, 4, left_s), exactly), left_s)


def _read(connection: Stream, count: int, left_s: Callable[[], float] | None) -> bytes:
    data = bytearray()
    while len(data) < count:
        if left_s is not None:
            # The socket's own time limit would start again with each byte received.
            connection.settimeout(max(left_s(), _LEAST_S))
        piece = connection.recv(min(count - len(data), 1 << 20))
        if not piece:
            message = "connection closed by the coordinator"
            raise ConnectionError(message)
        data += piece
        if left_s is not None and left_s() < 0:
            message = f"the peer at the coordinator's address took more than {CONNECT_S:.0f} s to prove the secret"
            raise TimeoutError(message)
    return bytes(data)
