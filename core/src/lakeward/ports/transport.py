"""The port of the connections between coordinator and subtasks: sockets, or the simulator's network.

A connection begins with the proof of the service run's secret, both ways; `Receiver` sees nothing before that.
Each direction delivers in order. What is on its way when a connection breaks is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from lakeward.model.events import Envelope


class Address(NamedTuple):
    """Where a coordinator listens, and the secret that both sides prove.

    `trusted` is whom a subtask trusts to be the coordinator: certificates as PEM text; empty: no TLS.
    """

    host: str
    port: int
    secret: bytes
    trusted: str = ""


class Connection(Protocol):
    """One connection, as one of its ends sees it. Compared by identity."""

    def send(self, envelope: Envelope) -> None:
        """Send an envelope. A broken connection raises nothing here: its receiver sees that."""
        ...

    def close(self) -> None:
        """Close the connection; calling it twice is harmless."""
        ...


class Receiver(Protocol):
    """Who is told what arrives on connections."""

    def on_message(self, connection: Connection, envelope: Envelope) -> None:
        """Take the next envelope. Raises ProtocolError, which closes the connection."""
        ...

    def on_disconnect(self, connection: Connection, error: Exception) -> None:
        """Learn that a connection is gone, or could not be made; nothing arrives on it any more.

        `error` is a ProtocolError where the peer did not prove the secret or sent what is no envelope; else why.
        """
        ...


class Listener(Protocol):
    """An address that is listened at."""

    port: int

    async def close(self) -> None:
        """Stop listening and close every connection."""
        ...


class Transport(Protocol):
    """Makes connections. Subtasks connect, the coordinator listens."""

    async def listen(self, address: Address, receiver: Receiver) -> Listener:
        """Accept connections at an address (port 0: any free one), and tell the receiver about them, on the event loop.

        The listener knows its port.

        Raises:
            ConfigError: the address cannot be bound, for instance because the port is in use.
        """
        ...

    def connect(self, address: Address, first: Envelope, receiver: Receiver, *, after_s: float) -> Connection:
        """Open a connection to the coordinator after `after_s` seconds; return at once.

        The receiver is told from a thread of the connection's own; that the connection could not be made is a
        disconnect. `first` is sent as soon as both sides have proved the secret. Nothing is to be sent before the first
        envelope arrived.
        """
        ...
