"""Routes the messages of registered subtasks to their round's job."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from lakeward.errors import ProtocolError
from lakeward.machines.transport.channel import Channel, ChannelKey
from lakeward.model.events import AnyEvent, Cancel, Envelope, Register
from lakeward.ports.transport import Address

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.ports import Connection, Listener, Transport


class ConnectionHandler(Protocol):
    """A round's job, as the server sees it."""

    def on_connect(self, register: Register, connection: Connection) -> ChannelKey | None:
        """Accept a new connection; return None if this attempt no longer counts (the server sends it `Cancel`)."""
        ...

    def on_message(self, key: ChannelKey, connection: Connection, envelope: Envelope) -> None:
        """Handle an envelope of an attempt's connection. A ProtocolError closes the connection."""
        ...

    def on_disconnect(self, key: ChannelKey, connection: Connection) -> None:
        """Handle the end of a connection."""
        ...


class _Registered(NamedTuple):
    job: ConnectionHandler
    key: ChannelKey


class SubtaskServer:
    """Listens for subtasks. See `lakeward.ports.Receiver`."""

    def __init__(
        self, transport: Transport, secret: bytes, find: Callable[[str, int], ConnectionHandler | None]
    ) -> None:
        """Prepare the server; `start` listens.

        Args:
            transport: makes connections.
            secret: of this start of the service; every connection must prove that it knows it.
            find: returns the job of a round's name and launch number, None if it has ended.
        """
        self._transport = transport
        self._secret = secret
        self._find = find
        self._listener: Listener | None = None
        self._registered: dict[Connection, _Registered] = {}

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
        self._listener = await self._transport.listen(Address(host, port, self._secret), self)
        return self._listener.port

    async def close(self) -> None:
        """Stop listening and end every connection."""
        if self._listener is not None:
            await self._listener.close()

    def on_message(self, connection: Connection, envelope: Envelope) -> None:
        """See `lakeward.ports.Receiver`; the first message on a connection registers a subtask."""
        registered = self._registered.get(connection)
        if registered is None:
            self._register(connection, envelope)
        else:
            registered.job.on_message(registered.key, connection, envelope)

    def on_disconnect(self, connection: Connection, error: Exception) -> None:
        """See `lakeward.ports.Receiver`."""
        del error
        registered = self._registered.pop(connection, None)
        if registered is not None:
            registered.job.on_disconnect(registered.key, connection)

    def _register(self, connection: Connection, first: Envelope) -> None:
        if not isinstance(first.event, Register):
            message = f"expected Register, found {type(first.event).__name__}"
            raise ProtocolError(message)
        job = self._find(first.round, first.job_attempt)
        key = job.on_connect(first.event, connection) if job is not None else None
        if job is None or key is None:
            connection.send(_reply(first, Cancel(reason="this attempt no longer counts")))
            connection.close()
            return
        self._registered[connection] = _Registered(job, key)


def _reply(to: Envelope, event: AnyEvent) -> Envelope:
    return Channel(ChannelKey(to.round, to.job_attempt, to.subtask, to.task_attempt), "down").send(event)
