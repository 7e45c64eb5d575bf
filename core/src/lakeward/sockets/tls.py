"""TLS over the connections between executors and the driver: the handshake, and bytes that are encrypted."""

from __future__ import annotations

import asyncio
import ssl
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from lakeward.errors import ProtocolError
from lakeward.sockets.certificates import client_context

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

_PIECE = 1 << 16
"""Bytes that are read from the network, or decrypted, at once."""
_LEAST_S = 0.001


class TlsState:
    """One end of TLS, without IO."""

    def __init__(self, context: ssl.SSLContext, peer: str | None) -> None:
        """Start with nothing received.

        `peer` is the name or address that a server's certificate has to be for; None: this end is the server.
        """
        self._received, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._to_send, server_side=peer is None, server_hostname=peer)

    @property
    def pending(self) -> bool:
        """True where there is something to be sent."""
        return bool(self._to_send.pending)

    def receive(self, data: bytes) -> None:
        """Take what came from the network."""
        self._received.write(data)

    def to_send(self) -> bytes:
        """Return, once, what is to be sent."""
        return self._to_send.read()

    def handshake(self) -> bool:
        """Go on with the handshake; return whether it is done. Raises ssl.SSLError; then an alert is to be sent."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def encrypt(self, data: bytes) -> bytes:
        """Return what is to be sent for this data, and all that was to be sent before."""
        self._tls.write(data)
        return self.to_send()

    def decrypt(self, count: int) -> bytes | None:
        """Return at most so many bytes, none at the end of the stream, None where more must be received first."""
        try:
            return self._tls.read(count)
        except ssl.SSLWantReadError:
            return None
        except ssl.SSLZeroReturnError:
            return b""


class TlsSocket:
    """An executor's end: a blocking socket for one thread that sends and another one that receives.

    An `ssl.SSLSocket` is not safe for that: OpenSSL forbids it, and Pythons that take a lock around it let a `recv`
    that waits hold up every `send`. Here nobody waits for the network while it holds the lock of the TLS state.
    """

    def __init__(self, connection: socket.socket, trusted: str, host: str) -> None:
        """Shake no hands yet. The connected socket belongs to this object from here on.

        `trusted` are certificates as PEM text; `host` is the name or address that the peer's has to be for.
        """
        self._connection = connection
        self._tls = TlsState(client_context(trusted, "service.tls_ca"), host)
        self._state = threading.Lock()
        """Guards the TLS state; held for computing alone."""
        self._order = threading.Lock()
        """Keeps what is sent in its order; taken before `_state`."""

    def handshake(self, left_s: Callable[[], float]) -> None:
        """Shake hands and check the peer's certificate, while `left_s` gives seconds that are left for all of it.

        Raises:
            ProtocolError: the peer's certificate is not to be trusted, or it does not speak TLS.
            TimeoutError: the peer took too long.
            OSError: the connection broke.
        """
        try:
            while not self._tls.handshake():
                self._flush()
                self._wait(left_s())
        except ssl.SSLError as error:
            with suppress(OSError):  # the alert tells the peer why; a peer that is gone needs none
                self._flush()
            raise ProtocolError(_reason(error)) from error
        self._flush()

    def recv(self, count: int) -> bytes:
        """See `socket.socket.recv`."""
        while True:
            with self._state:
                data, pending = self._tls.decrypt(count), self._tls.pending
            if pending:
                self._flush()  # an answer to a change of keys
            if data is not None:
                return data
            if not self._fill():
                return b""

    def sendall(self, data: bytes) -> None:
        """See `socket.socket.sendall`."""
        with self._order:
            with self._state:
                encrypted = self._tls.encrypt(data)
            self._connection.sendall(encrypted)

    def settimeout(self, seconds: float | None) -> None:
        """See `socket.socket.settimeout`."""
        self._connection.settimeout(seconds)

    def getsockname(self) -> tuple[str, int]:
        """See `socket.socket.getsockname`; without what IPv6 has besides."""
        host, port, *_ = self._connection.getsockname()
        return host, port

    def shutdown(self, how: int) -> None:
        """See `socket.socket.shutdown`; frames have a length, so the peer need not be told where they end."""
        self._connection.shutdown(how)

    def close(self) -> None:
        """See `socket.socket.close`."""
        self._connection.close()

    def _wait(self, left_s: float) -> None:
        """Wait for more of the handshake, so many seconds at the most."""
        if left_s < 0:
            message = "the peer at the coordinator's address took too long for the TLS handshake"
            raise TimeoutError(message)
        self._connection.settimeout(max(left_s, _LEAST_S))
        if not self._fill():
            message = "connection closed by the coordinator during the TLS handshake"
            raise ConnectionError(message)

    def _fill(self) -> bool:
        """Wait for bytes of the network; False where the peer has closed the connection."""
        data = self._connection.recv(_PIECE)
        with self._state:
            self._tls.receive(data)
        return bool(data)

    def _flush(self) -> None:
        with self._order:
            with self._state:
                encrypted = self._tls.to_send()
            self._connection.sendall(encrypted)


class PlainStream:
    """The driver's end of a connection without TLS, on the event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def readexactly(self, count: int) -> bytes:
        """See `asyncio.StreamReader.readexactly`."""
        return await self._reader.readexactly(count)

    def write(self, data: bytes) -> None:
        """See `asyncio.StreamWriter.write`."""
        self.writer.write(data)


class TlsStream:
    """The driver's end of a connection with TLS, on the event loop.

    `asyncio.StreamWriter.start_tls` breaks where a peer is gone by the end of the handshake (it returns no transport),
    and a listener with TLS of its own would not let us count the connections that have not shaken hands.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, context: ssl.SSLContext) -> None:
        """Shake no hands yet."""
        self._reader = reader
        self.writer = writer
        self._tls = TlsState(context, None)
        self._plain = bytearray()
        """What is decrypted and not read."""

    async def handshake(self) -> None:
        """Shake hands.

        Raises:
            ProtocolError: the peer speaks no TLS, or does not trust our certificate.
            OSError, asyncio.IncompleteReadError: the connection broke.
        """
        try:
            while not self._tls.handshake():
                self.writer.write(self._tls.to_send())
                await self._fill()
        except ssl.SSLError as error:
            self.writer.write(self._tls.to_send())
            message = f"no TLS connection with the peer: {error.reason or error}"
            raise ProtocolError(message) from error
        self.writer.write(self._tls.to_send())

    async def readexactly(self, count: int) -> bytes:
        """See `asyncio.StreamReader.readexactly`."""
        while len(self._plain) < count:
            data = self._tls.decrypt(_PIECE)
            if self._tls.pending:
                self.writer.write(self._tls.to_send())  # an answer to a change of keys
            if data is None:
                await self._fill()
            elif data:
                self._plain += data
            else:
                raise asyncio.IncompleteReadError(bytes(self._plain), count)
        found = bytes(self._plain[:count])
        del self._plain[:count]
        return found

    def write(self, data: bytes) -> None:
        """See `asyncio.StreamWriter.write`."""
        self.writer.write(self._tls.encrypt(data))

    async def _fill(self) -> None:
        data = await self._reader.read(_PIECE)
        if not data:
            raise asyncio.IncompleteReadError(data, None)
        self._tls.receive(data)


def _reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        hint = "check service.tls_cert, service.tls_ca and service.host"
        return f"the driver's certificate is not to be trusted: {error.verify_message}; {hint}"
    return f"no TLS with the peer at the coordinator's address: {error.reason or error}"
