"""The coordinator's end of the wire: accepts subtasks, proves the secret, hands their events to their round's job.

Whoever can reach the port can connect. Until a peer has proved the secret it gets little: one frame of a proof's size,
`_HANDSHAKE_S` seconds, and one of `UNPROVED` places, which a newcomer takes from the one who has held it longest.
Subtasks need milliseconds for their proof, and one that loses its place connects again.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Protocol

import structlog

from lakeward.errors import ConfigError, ProtocolError
from lakeward.machines.channel import Channel, ChannelKey
from lakeward.machines.frames import NONCE, PROOF, decode, encode, frame, length_of, proof, proves
from lakeward.model.events import AnyEvent, Cancel, Envelope, Register

if TYPE_CHECKING:
    from collections.abc import Callable

_HANDSHAKE_S = 10.0
_LAST_WORDS_S = 2.0
UNPROVED = 256
"""Connections at once whose peers have not proved the secret."""
_log = structlog.get_logger("lakeward.server")


class Connection:
    """One subtask's TCP connection, for sending."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        """Wrap a stream."""
        self._writer = writer

    def send(self, envelope: Envelope) -> None:
        """Put an envelope on the wire; never blocks. A broken connection is seen by its reader."""
        if not self._writer.is_closing():
            self._writer.write(encode(envelope))

    def close(self) -> None:
        """End the connection."""
        self._writer.close()


class Attendant(Protocol):
    """A round's job, as the server sees it."""

    def attend(self, register: Register, connection: Connection) -> ChannelKey | None:
        """Take a new connection; None where this attempt no longer counts (it is told `Cancel`)."""
        ...

    def hear(self, key: ChannelKey, connection: Connection, envelope: Envelope) -> None:
        """Take an envelope of an attended connection. Raises ProtocolError, which ends the connection."""
        ...

    def leave(self, key: ChannelKey, connection: Connection) -> None:
        """The connection is gone."""
        ...


class SubtaskServer:
    """Listens for subtasks."""

    def __init__(
        self,
        secret: bytes,
        find: Callable[[str, int], Attendant | None],
        *,
        handshake_s: float = _HANDSHAKE_S,
        unproved: int = UNPROVED,
    ) -> None:
        """Listen nowhere yet.

        Args:
            secret: of this service run; every connection proves it.
            find: the job of a round's name and launch number, None where it is over.
            handshake_s: seconds that a peer has to prove the secret and to register.
            unproved: connections at once whose peers have not proved the secret, > 0.
        """
        self._secret = secret
        self._find = find
        self._server: asyncio.Server | None = None
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._handshake_s = handshake_s
        self._places = unproved
        self._unproved: dict[asyncio.StreamWriter, None] = {}
        """Who has not proved the secret yet, the longest-waiting first."""

    async def start(self, host: str, port: int) -> int:
        """Listen.

        Args:
            host: address to bind.
            port: 0 = any free one.

        Returns:
            The port.

        Raises:
            ConfigError: the address cannot be bound, for instance because the port is in use.
        """
        try:
            self._server = await asyncio.start_server(self._serve, host, port)
        except OSError as error:
            key = "service.port"
            raise ConfigError(key, "a free port", f"{host}:{port}", error.strerror or str(error)) from error
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening and end every connection."""
        if self._server is not None:
            self._server.close()
        serving = dict(self._serving)
        for writer in serving.values():
            writer.close()
        if serving:
            await asyncio.wait(serving, timeout=_LAST_WORDS_S)
        for writer in dict(self._serving).values():
            # A peer that stands still takes no last words, and would keep us for ever.
            writer.transport.abort()
        await asyncio.gather(*serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._serving[task] = writer
            task.add_done_callback(lambda done: self._serving.pop(done, None))
        try:
            self._take_place(writer)
            async with asyncio.timeout(self._handshake_s):
                await self._prove(reader, writer)
                self._unproved.pop(writer, None)
                first = decode(await _read_frame(reader))
            await self._attend(first, reader, Connection(writer))
        except (ProtocolError, TimeoutError) as error:
            _log.warning("connection refused", peer=writer.get_extra_info("peername"), reason=str(error))
        except (OSError, asyncio.IncompleteReadError):
            _log.debug("connection ended", peer=writer.get_extra_info("peername"))
        finally:
            self._unproved.pop(writer, None)
            writer.close()

    def _take_place(self, writer: asyncio.StreamWriter) -> None:
        if len(self._unproved) >= self._places:
            longest = next(iter(self._unproved))
            del self._unproved[longest]
            _log.warning("too many unproved connections", ended=longest.get_extra_info("peername"))
            longest.transport.abort()
        self._unproved[writer] = None

    async def _attend(self, first: Envelope, reader: asyncio.StreamReader, connection: Connection) -> None:
        if not isinstance(first.event, Register):
            message = f"expected Register, found {type(first.event).__name__}"
            raise ProtocolError(message)
        job = self._find(first.round, first.job_attempt)
        key = job.attend(first.event, connection) if job is not None else None
        if job is None or key is None:
            connection.send(_reply(first, Cancel(reason="this attempt no longer counts")))
            return
        try:
            while True:
                job.hear(key, connection, decode(await _read_frame(reader)))
        finally:
            job.leave(key, connection)

    async def _prove(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ours = secrets.token_bytes(NONCE)
        writer.write(frame(ours))
        answer = await _read_frame(reader, NONCE + PROOF)
        theirs, given = answer[:NONCE], answer[NONCE:]
        if not proves(given, proof(self._secret, "client", ours, theirs)):
            message = "the peer did not prove the secret of this service run"
            raise ProtocolError(message)
        writer.write(frame(proof(self._secret, "server", ours, theirs)))


def _reply(to: Envelope, event: AnyEvent) -> Envelope:
    return Channel(ChannelKey(to.round, to.job_attempt, to.subtask, to.task_attempt), "down").send(event)


async def _read_frame(reader: asyncio.StreamReader, exactly: int | None = None) -> bytes:
    return await reader.readexactly(length_of(await reader.readexactly(4), exactly))
