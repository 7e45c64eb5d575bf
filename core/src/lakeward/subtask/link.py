"""A subtask's connection to the coordinator: proves the secret, registers, receives on a thread, reconnects.

What was sent and not acknowledged is sent again after a reconnect.
A subtask that has not heard from the coordinator for the fence time stops itself (`LostCoordinator`).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.errors import FencedError, ProtocolError
from lakeward.machines.channel import Channel, ChannelKey
from lakeward.machines.frames import NONCE, PROOF, decode, encode, frame, length_of, proof, proves
from lakeward.model.events import AnyEvent, Cancel, Deploy, Envelope, Heartbeat, Left, Register

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.jobs import SubtaskPlace
    from lakeward.ports import Clock
    from lakeward.subtask.mailbox import Mailbox

_CONNECT_S = 5.0
_PAUSE_S = 0.2
_LEAST_S = 0.001


@dataclass(frozen=True, slots=True)
class LostCoordinator:
    """Posted to the mailbox: nothing was heard for the fence time."""

    silent_s: float


class Link:
    """One subtask's link. Any thread may send; who needs `sent` to stand still meanwhile has a lock of its own."""

    def __init__(self, place: SubtaskPlace, clock: Clock, mailbox: Mailbox) -> None:
        """Connect nothing yet.

        Args:
            place: which task this is, and where the coordinator listens.
            clock: the machine's clock.
            mailbox: where it is posted that the coordinator is lost, or counts this attempt no more.
        """
        self._place = place
        self._clock = clock
        self._mailbox = mailbox
        self._hear: Callable[[AnyEvent], None] = mailbox.put_said
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._channel: Channel | None = None
        self._attempt: int | None = None
        self._farewell: tuple[Envelope, ...] = ()
        """That everything is closed; said again after a reconnect, for it has no number."""
        self._heard = clock.now()
        self._asked: float | None = None
        """When the first sign of life was sent that nothing has answered yet."""
        self._closed = threading.Event()
        self._settled = threading.Condition(self._lock)

    def register(self) -> Deploy | Cancel:
        """Connect and register.

        Returns:
            What to work on, or why not.

        Raises:
            FencedError: the coordinator cannot be reached within the fence time.
        """
        while True:
            try:
                connection, answer = self._connect()
            except OSError as error:
                self._give_up_if_silent(error)
                self._closed.wait(_PAUSE_S)
                continue
            if isinstance(answer.event, Deploy):
                self._attempt = answer.event.attempt
                self._channel = Channel(self._key(answer.event.attempt), "up")
                self._adopt(connection)
                return answer.event
            connection.close()
            if isinstance(answer.event, Cancel):
                return answer.event
            message = f"register: expected Deploy or Cancel, found {type(answer.event).__name__}"
            raise ProtocolError(message)

    def listen(self, hear: Callable[[AnyEvent], None]) -> None:
        """Receive from now on.

        Args:
            hear: is given each event, in order, on the receiving thread; it is not to take long.
        """
        self._hear = hear
        threading.Thread(target=self._receive, name="link", daemon=True).start()

    def send(self, event: AnyEvent) -> None:
        """Send an event; while the connection is down a data event waits and a control event is dropped.

        Args:
            event: what to say.
        """
        with self._lock:
            if self._channel is not None:
                envelope = self._channel.send(event)
                self._farewell = (envelope,) if isinstance(event, Left) else ()
                self._put(envelope)

    @property
    def sent(self) -> int:
        """Number of the last data event that was sent."""
        with self._lock:
            return self._channel.sent if self._channel is not None else 0

    def beat(self) -> None:
        """Send a sign of life, with the acknowledgement of what was received."""
        with self._lock:
            if self._asked is None:
                self._asked = self._clock.now()
            if self._channel is not None:
                self._put(self._channel.send(Heartbeat(acked=self._channel.received)))

    @property
    def unanswered_s(self) -> float:
        """Seconds without an answer of the coordinator: it is gone, or stands still while its connections live."""
        asked = self._asked
        return 0.0 if asked is None else self._clock.now() - asked

    def finish(self) -> None:
        """Wait until everything that was sent is acknowledged.

        Raises:
            FencedError: not within the fence time.
        """
        with self._settled:
            while self._channel is not None and self._channel.unacked():
                self._put(self._channel.send(Heartbeat(acked=self._channel.received)))
                if not self._settled.wait(_PAUSE_S) and self._silent_s() > self._place.job.fence_s:
                    message = f"coordinator silent for {self._silent_s():.0f} s; stopping with unacknowledged results"
                    raise FencedError(message)

    def close(self) -> None:
        """End the connection; calling it twice is harmless."""
        self._closed.set()
        with self._lock:
            if self._socket is not None:
                _end(self._socket)
                self._socket = None

    def _receive(self) -> None:
        while not self._closed.is_set():
            try:
                self._receive_one()
            except (OSError, ProtocolError):
                if not self._reconnect():
                    return

    def _receive_one(self) -> None:
        connection = self._socket
        if connection is None or self._channel is None:
            message = "connection is down"
            raise OSError(message)
        envelope = decode(_read_frame(connection))
        with self._settled:
            self._heard = self._clock.now()
            self._asked = None
            event = self._channel.receive(envelope)
            self._settled.notify_all()
            if envelope.sequence:
                # At once: a checkpoint may wait for it. What is behind it in the mailbox is done after it.
                self._put(self._channel.send(Heartbeat(acked=self._channel.received)))
        if event is not None and not isinstance(event, Heartbeat):
            self._hear(event)

    def _reconnect(self) -> bool:
        while not self._closed.is_set():
            if self._silent_s() > self._place.job.fence_s:
                self._mailbox.put_said(LostCoordinator(self._silent_s()))
                return False
            try:
                connection, answer = self._connect()
            except (OSError, ProtocolError):
                self._closed.wait(_PAUSE_S)
                continue
            if isinstance(answer.event, Cancel):
                _end(connection)
                self._mailbox.put_said(answer.event)
                return False
            self._adopt(connection)
            with self._lock:
                again = (*self._channel.unacked(), *self._farewell) if self._channel else ()
                for envelope in again:
                    self._put(envelope)
            return True
        return False

    def _connect(self) -> tuple[socket.socket, Envelope]:
        job = self._place.job
        connection = socket.create_connection((job.host, job.port), timeout=_CONNECT_S)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._prove(connection)
            register = Register(
                subtask=self._place.subtask, host=socket.gethostname(), pid=os.getpid(), attempt=self._attempt
            )
            connection.sendall(encode(self._wrap(register)))
            answer = decode(_read_frame(connection))
            connection.settimeout(None)
        except BaseException:
            connection.close()
            raise
        self._heard = self._clock.now()
        return connection, answer

    def _prove(self, connection: socket.socket) -> None:
        secret = self._place.job.secret
        deadline = self._clock.now() + _CONNECT_S

        def left() -> float:
            return deadline - self._clock.now()

        theirs = _read_frame(connection, NONCE, left)
        ours = secrets.token_bytes(NONCE)
        connection.sendall(frame(ours + proof(secret, "client", theirs, ours)))
        if not proves(_read_frame(connection, PROOF, left), proof(secret, "server", theirs, ours)):
            message = "the coordinator did not prove the secret of this service run"
            raise ProtocolError(message)
        connection.settimeout(_CONNECT_S)

    def _wrap(self, event: AnyEvent) -> Envelope:
        return Channel(self._key(self._attempt or 0), "up").send(event)

    def _key(self, attempt: int) -> ChannelKey:
        return ChannelKey(self._place.job.round_name, self._place.job.job_attempt, self._place.subtask, attempt)

    def _adopt(self, connection: socket.socket) -> None:
        with self._lock:
            if self._socket is not None:
                _end(self._socket)
            self._socket = None if self._closed.is_set() else connection
        if self._closed.is_set():
            _end(connection)

    def _put(self, envelope: Envelope) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendall(encode(envelope))
        except OSError:
            # The receiving thread sees the same break and reconnects; a data event is sent again then.
            _end(self._socket)
            self._socket = None

    def _silent_s(self) -> float:
        return self._clock.now() - self._heard

    def _give_up_if_silent(self, error: OSError) -> None:
        job = self._place.job
        if self._silent_s() > job.fence_s:
            message = f"coordinator at {job.host}:{job.port} not reached for {job.fence_s:.0f} s: {error}"
            raise FencedError(message) from error


def _end(connection: socket.socket) -> None:
    """End a connection that another thread may be reading from: closed alone, it would stay open until that returns."""
    with contextlib.suppress(OSError):  # it is down already
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _read_frame(
    connection: socket.socket, exactly: int | None = None, left_s: Callable[[], float] | None = None
) -> bytes:
    """Read a frame; where `exactly` is given, of that length alone, and within `left_s` seconds altogether."""
    return _read(connection, length_of(_read(connection, 4, left_s), exactly), left_s)


def _read(connection: socket.socket, count: int, left_s: Callable[[], float] | None) -> bytes:
    data = bytearray()
    while len(data) < count:
        if left_s is not None:
            # A time limit of the socket alone starts anew with each byte that drips in.
            connection.settimeout(max(left_s(), _LEAST_S))
        piece = connection.recv(min(count - len(data), 1 << 20))
        if not piece:
            message = "connection closed by the coordinator"
            raise ConnectionError(message)
        data += piece
        if left_s is not None and left_s() < 0:
            message = f"the peer at the coordinator's address took more than {_CONNECT_S:.0f} s to prove the secret"
            raise TimeoutError(message)
    return bytes(data)
