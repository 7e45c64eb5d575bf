"""Routes the messages of registered subtasks to their round."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lakeward.errors import ProtocolError
from lakeward.machines.transport.channel import Channel, ChannelKey
from lakeward.model.events import AnyEvent, Cancel, Envelope, Register
from lakeward.ports.transport import Address

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.coordinator.rounds.effects import Effect
    from lakeward.coordinator.rounds.round import Round
    from lakeward.coordinator.workers.subtask_address import SubtaskAddress
    from lakeward.ports import Connection, Listener, Transport


class _Registered(NamedTuple):
    round: Round
    key: ChannelKey


class SubtaskServer:
    """Listens for subtasks. See `lakeward.ports.Receiver`."""

    def __init__(
        self,
        transport: Transport,
        address: SubtaskAddress,
        find: Callable[[str, int], Round | None],
        execute: Callable[[Round, tuple[Effect, ...]], None],
    ) -> None:
        """Prepare the server; `start` listens.

        It listens where `address` says, which gets the port, and every connection must prove that it knows the secret.
        `find` returns the round
        of this name, if its launch of this number is the one under way. `execute` executes what follows from a message.
        """
        self._transport = transport
        self._address = address
        self._find = find
        self._execute = execute
        self._listener: Listener | None = None
        self._registered: dict[Connection, _Registered] = {}

    async def start(self) -> int:
        """Listen; return the port.

        Raises:
            ConfigError: the address cannot be bound, for instance because the port is in use.
        """
        ours = self._address
        self._listener = await self._transport.listen(Address(ours.bind, ours.port, ours.secret), self)
        ours.port = self._listener.port
        return ours.port

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
            effects = registered.round.receive(registered.key, connection, envelope)
            self._execute(registered.round, effects)

    def on_disconnect(self, connection: Connection, error: Exception) -> None:
        """See `lakeward.ports.Receiver`."""
        del error
        registered = self._registered.pop(connection, None)
        if registered is not None:
            self._execute(registered.round, registered.round.disconnect(registered.key, connection))

    def _register(self, connection: Connection, first: Envelope) -> None:
        if not isinstance(first.event, Register):
            message = f"expected Register, found {type(first.event).__name__}"
            raise ProtocolError(message)
        found = self._find(first.round, first.job_attempt)
        key, effects = (None, ()) if found is None else found.connect(first.event, connection)
        if found is not None:
            self._execute(found, effects)
        if found is None or key is None:
            connection.send(_reply(first, Cancel(reason="this attempt no longer counts")))
            connection.close()
            return
        self._registered[connection] = _Registered(found, key)


def _reply(to: Envelope, event: AnyEvent) -> Envelope:
    return Channel(ChannelKey(to.round, to.job_attempt, to.subtask, to.task_attempt), "down").send(event)
