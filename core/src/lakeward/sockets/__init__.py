"""The real transport: frames over TCP, each connection with the proof of the secret first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.sockets.client import ClientConnection

if TYPE_CHECKING:
    from lakeward.model.events import Envelope
    from lakeward.ports import Address, Clock, Receiver
    from lakeward.sockets.certificates import ServerTls
    from lakeward.sockets.server import SocketListener

HANDSHAKE_S = 10.0
"""Seconds that a peer has to prove the secret and to send its first envelope."""
UNPROVED = 256
"""Connections at once whose peers have not proved the secret."""


class SocketTransport:
    """See `lakeward.ports.Transport`."""

    def __init__(
        self,
        clock: Clock,
        *,
        tls: ServerTls | None = None,
        handshake_s: float = HANDSHAKE_S,
        unproved: int = UNPROVED,
    ) -> None:
        """Open nothing yet.

        A listener speaks TLS with `tls`; None: it does not. A peer has `handshake_s` seconds to prove the secret and to
        register; `unproved` (> 0) connections at once may have peers that have not.
        """
        self._clock = clock
        self._tls = tls
        self._handshake_s = handshake_s
        self._unproved = unproved

    async def listen(self, address: Address, receiver: Receiver) -> SocketListener:
        """See `lakeward.ports.Transport`."""
        from lakeward.sockets.server import SocketListener  # noqa: PLC0415 - subtasks only connect

        listener = SocketListener(
            address, receiver, tls=self._tls, handshake_s=self._handshake_s, unproved=self._unproved
        )
        await listener.open()
        return listener

    def connect(self, address: Address, first: Envelope, receiver: Receiver, *, after_s: float) -> ClientConnection:
        """See `lakeward.ports.Transport`."""
        return ClientConnection(address, first, receiver, self._clock, after_s=after_s)
