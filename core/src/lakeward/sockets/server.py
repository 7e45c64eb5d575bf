"""The coordinator's end of connections: accepts peers, checks that they know the secret, and passes envelopes on.

Anyone who can reach the port can connect. Until a peer has proved the secret it may send one frame of a proof's size,
within `handshake_s` seconds, and there are at most `unproved` such connections: a new one replaces the oldest. Subtasks
need milliseconds for their proof, and one whose connection is replaced connects again.
"""

from __future__ import annotations

import asyncio
import errno
import secrets
import socket
from typing import TYPE_CHECKING

import structlog

from lakeward.errors import ConfigError, ProtocolError
from lakeward.machines.transport.frames import NONCE, PROOF, decode, encode, frame, length_of, proof, proves
from lakeward.sockets.tls import PlainStream, TlsStream

if TYPE_CHECKING:
    from lakeward.model.events import Envelope
    from lakeward.ports import Address, Receiver
    from lakeward.sockets.certificates import ServerTls

_CLOSE_S = 2.0
_log = structlog.get_logger("lakeward.server")


class ServerConnection:
    """See `lakeward.ports.Connection`. Used on the event loop only."""

    def __init__(self, stream: PlainStream | TlsStream) -> None:
        """Wrap a stream whose peer has proved the secret."""
        self._stream = stream

    def send(self, envelope: Envelope) -> None:
        """See `lakeward.ports.Connection`; never blocks."""
        if not self._stream.writer.is_closing():
            self._stream.write(encode(envelope))

    def close(self) -> None:
        """See `lakeward.ports.Connection`; what was sent before still goes out."""
        self._stream.writer.close()


class SocketListener:
    """See `lakeward.ports.Listener`."""

    def __init__(
        self,
        address: Address,
        receiver: Receiver,
        *,
        tls: ServerTls | None = None,
        handshake_s: float,
        unproved: int,
    ) -> None:
        """Prepare the listener; `open` listens. Port 0 is any free one.

        Every peer has to speak TLS with `tls`; None: nobody has to. A peer has `handshake_s` seconds to prove the
        secret and to send its first envelope; `unproved` (> 0) connections at once may have peers that have not proved
        it.
        """
        self.port = address.port
        self._address = address
        self._receiver = receiver
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._closing = False
        self._handshake_s = handshake_s
        self._unproved_limit = unproved
        self._unproved: dict[asyncio.StreamWriter, None] = {}
        """Connections whose peers have not proved the secret yet, the oldest first."""

    async def open(self) -> None:
        """Listen. Raises as `lakeward.ports.Transport.listen`."""
        host, port = self._address.host, self._address.port
        try:
            self._server = await asyncio.start_server(self._accept, host, port)
        except (OSError, UnicodeError) as error:
            raise _cannot_listen(host, port, error) from error
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """See `lakeward.ports.Listener`."""
        self._closing = True
        if self._server is not None:
            await _stop_accepting(self._server)
            self._server.close()
        serving = dict(self._serving)
        for writer in serving.values():
            writer.close()
        if serving:
            await asyncio.wait(serving, timeout=_CLOSE_S)
        for writer in dict(self._serving).values():
            # A peer that hangs never reads what was sent last: waiting for it would take for ever.
            writer.transport.abort()
        await asyncio.gather(*serving, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closing:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._serving[task] = writer
        task.add_done_callback(self._served)

    def _served(self, task: asyncio.Task[None]) -> None:
        # A task that is cancelled before its first step closes nothing itself.
        self._serving.pop(task).close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        try:
            self._take_place(writer)
            async with asyncio.timeout(self._handshake_s):
                stream = await self._secure(reader, writer)
                await self._prove(stream)
                self._unproved.pop(writer, None)
                first = decode(await _read_frame(stream))
            await self._receive(first, stream)
        except (ProtocolError, TimeoutError) as error:
            _log.warning("connection refused", peer=peer, reason=self._reason(error))
        except (OSError, asyncio.IncompleteReadError):
            _log.debug("connection ended", peer=peer)
        finally:
            self._unproved.pop(writer, None)

    async def _receive(self, first: Envelope, stream: PlainStream | TlsStream) -> None:
        envelope, connection = first, ServerConnection(stream)
        why: Exception = ConnectionError("connection closed here")
        try:
            while True:
                self._receiver.on_message(connection, envelope)
                envelope = decode(await _read_frame(stream))
        except Exception as error:
            why = error
            raise
        finally:
            self._receiver.on_disconnect(connection, why)

    def _take_place(self, writer: asyncio.StreamWriter) -> None:
        if len(self._unproved) >= self._unproved_limit:
            longest = next(iter(self._unproved))
            del self._unproved[longest]
            _log.warning("too many unproved connections", ended=longest.get_extra_info("peername"))
            longest.transport.abort()
        self._unproved[writer] = None

    async def _secure(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> PlainStream | TlsStream:
        if self._tls is None:
            return PlainStream(reader, writer)
        stream = TlsStream(reader, writer, self._tls.context)
        await stream.handshake()
        return stream

    def _reason(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            what = "no TLS handshake and no" if self._tls is not None else "no"
            return f"{what} proof of the secret within {self._handshake_s:g} s"
        return str(error)

    async def _prove(self, stream: PlainStream | TlsStream) -> None:
        secret = self._address.secret
        ours = secrets.token_bytes(NONCE)
        stream.write(frame(ours))
        answer = await _read_frame(stream, NONCE + PROOF)
        theirs, given = answer[:NONCE], answer[NONCE:]
        if not proves(given, proof(secret, "client", ours, theirs)):
            message = "the peer did not prove the secret of this service run"
            raise ProtocolError(message)
        stream.write(frame(proof(secret, "server", ours, theirs)))


async def _stop_accepting(server: asyncio.Server) -> None:
    # A connection that asyncio has just accepted is never closed if its server closes before it is set up: two steps.
    loop = asyncio.get_running_loop()
    for listening in server.sockets:
        loop.remove_reader(listening)
    for _ in range(2):
        await asyncio.sleep(0)


def _cannot_listen(host: str, port: int, error: OSError | UnicodeError) -> ConfigError:
    reason = getattr(error, "strerror", None) or str(error)
    # From Python 3.13 on, asyncio says that no address is this machine's by an error without a number.
    if isinstance(error, socket.gaierror | UnicodeError) or error.errno in {errno.EADDRNOTAVAIL, None}:
        return ConfigError("service.bind", "an address of this machine", host, reason)
    return ConfigError("service.port", "a free port", f"{host}:{port}", reason)


async def _read_frame(stream: PlainStream | TlsStream, exactly: int | None = None) -> bytes:
    return await stream.readexactly(length_of(await stream.readexactly(4), exactly))
