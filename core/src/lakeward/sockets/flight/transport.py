"""See `lakeward.ports.ExchangeTransport`: over Arrow Flight."""

from __future__ import annotations

import atexit
import threading
from functools import partial
from typing import TYPE_CHECKING

from lakeward.sockets.flight.data_address import DataAddress, make_certificate
from lakeward.sockets.flight.listen_address import listen_address
from lakeward.sockets.flight.poster import Poster

if TYPE_CHECKING:
    from lakeward.ports import ChannelReceiver, Clock, ExchangeKey
    from lakeward.sockets.flight.listen_address import ListenAddress
    from lakeward.sockets.flight.outgoing import OutgoingChannel

SILENT_S = 8.0
"""Seconds without a message from a peer, not even a ping, after which the channel is lost."""
_PINGS = 8
"""Pings in that time."""
_CLOSE_S = 3.0
"""Seconds that closing waits for each peer and for the server."""


class FlightExchange:
    """See `lakeward.ports.ExchangeTransport`."""

    def __init__(self, clock: Clock, *, coordinator: tuple[str, int] = ("", 0), silent_s: float = SILENT_S) -> None:
        """Open nothing yet.

        `coordinator` is host and port of control: a subtask without a host of its own is reached at the address that
        its connection to there has here. A channel is lost after `silent_s` (> 0) seconds without a message, not even a
        ping.
        """
        self._clock = clock
        self._coordinator = coordinator
        self._silent_s = silent_s

    def open(self, key: ExchangeKey, host: str, receiver: ChannelReceiver) -> FlightSubtaskExchange:
        """See `lakeward.ports.ExchangeTransport`; an empty host is found out, and the own address in a network."""
        place = listen_address(host, self._coordinator)
        return FlightSubtaskExchange(key, place, receiver, self._clock, self._silent_s)


class FlightSubtaskExchange:
    """See `lakeward.ports.SubtaskExchange`."""

    def __init__(
        self, key: ExchangeKey, place: ListenAddress, receiver: ChannelReceiver, clock: Clock, silent_s: float
    ) -> None:
        """Listen at a place where other executors reach this one; the receiver is told what arrives.

        A channel is lost after `silent_s` seconds without a message.

        Raises:
            StorageError: no port can be opened.
        """
        # Flight is loaded by a subtask that exchanges rows, and by no other.
        from lakeward.sockets.flight.incoming import IncomingChannels  # noqa: PLC0415

        self._key = key
        self._receiver = receiver
        self._clock = clock
        self._silent_s = silent_s
        own = make_certificate(clock) if key.trusted else None
        self._incoming = IncomingChannels(key, receiver, clock, place.listen, own)
        self._address = str(DataAddress(place.host, self._incoming.port, "" if own is None else own.certificate))
        self._outgoing: list[OutgoingChannel] = []
        self._lock = threading.Lock()
        self._closed = False
        self._poster = Poster(clock, silent_s / _PINGS, self._ping, self._look)
        # At the interpreter's exit Flight waits for open streams without a limit. What is registered last runs first.
        atexit.register(self.close)

    @property
    def address(self) -> str:
        """See `lakeward.ports.SubtaskExchange`; with TLS, the certificate follows it."""
        return self._address

    def connect(self, consumer: int, address: str) -> OutgoingChannel:
        """See `lakeward.ports.SubtaskExchange`."""
        from lakeward.sockets.flight.outgoing import OutgoingChannel  # noqa: PLC0415 - as above

        ping_s = self._silent_s / _PINGS
        channel = OutgoingChannel(self._key, consumer, address, self._receiver, self._clock, self._poster, ping_s)
        with self._lock:
            self._outgoing.append(channel)
        return channel

    def give_credit(self, producer: int, end: int) -> None:
        """See `lakeward.ports.SubtaskExchange`."""
        self._poster.post(partial(self._incoming.give_credit, producer, end))

    def close(self) -> None:
        """See `lakeward.ports.SubtaskExchange`: what was sent on a channel that has ended still arrives."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            outgoing = tuple(self._outgoing)
        atexit.unregister(self.close)
        for channel in outgoing:
            channel.close()
        self._poster.post(self._incoming.goodbye)
        for _ in range(2):  # a channel that takes too long is broken, and then ends
            until = self._clock.now() + _CLOSE_S
            for channel in outgoing:
                channel.join(max(0.0, until - self._clock.now()))
        ended = self._incoming.wait(_CLOSE_S)
        self._poster.post(self._incoming.shut_down)  # by this thread: no new one starts at the interpreter's exit
        if not self._poster.stop(_CLOSE_S) or not ended:
            self._incoming.leave_behind()

    def _ping(self) -> None:
        for channel in tuple(self._outgoing):
            channel.ping()
        self._incoming.ping()

    def _look(self) -> None:
        now = self._clock.now()
        for channel in tuple(self._outgoing):
            channel.look(now, self._silent_s)
        self._incoming.look(now, self._silent_s)
