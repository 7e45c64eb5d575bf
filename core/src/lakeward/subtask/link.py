"""A subtask's link to the coordinator: drives the machine `link` with what arrives and what is sent."""

from __future__ import annotations

import os
import socket
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.errors import ProtocolError
from lakeward.machines.driver import MachineDriver
from lakeward.machines.link import (
    CloseRequested,
    Connect,
    ConnectionLost,
    Deliver,
    Disconnect,
    EnvelopeReceived,
    HeartbeatRequested,
    LinkCommand,
    LinkEvent,
    LinkMachine,
    PeerRejected,
    ReportLost,
    ReportRejected,
    ReportSettled,
    SendRequested,
    StartRequested,
    Transmit,
)
from lakeward.model.events import AnyEvent, Envelope, Register
from lakeward.ports.transport import Address

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.jobs import SubtaskPlace
    from lakeward.ports import Clock, Connection, Transport


@dataclass(frozen=True, slots=True)
class LostCoordinator:
    """Nothing was received from the coordinator for the fence time."""

    silent_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class AllAcknowledged:
    """`SubtaskDone` was sent, and everything that was sent before it is acknowledged."""


Delivered = AnyEvent | LostCoordinator | AllAcknowledged | ProtocolError
"""What a link delivers to its subtask: an event of the coordinator, or a change of the connection."""


class Link:
    """One subtask's link. Any thread may send; a caller that needs a stable `sent` must use a lock of its own."""

    def __init__(
        self,
        place: SubtaskPlace,
        transport: Transport,
        clock: Clock,
        on_event: Callable[[Delivered], None],
        data_address: str = "",
    ) -> None:
        """Prepare the link; `start` connects.

        `on_event` is called with each event, in order, on the receiving thread; it must return quickly. `data_address`
        is where this subtask is reached for the data of others, empty where there is no exchange.
        """
        job = place.job
        self._address = Address(job.host, job.port, job.secret, job.trusted)
        self._transport = transport
        self._clock = clock
        self._on_event = on_event
        self._connection: Connection | None = None
        self._lock = threading.Lock()
        """Guards the machine, and keeps sent events in order."""
        host = socket.gethostname()
        register = Register(subtask=place.subtask, host=host, pid=os.getpid(), data_address=data_address)
        self._machine = LinkMachine(job.round_name, job.job_attempt, register, job.fence_s)
        self._driver = MachineDriver[LinkEvent, LinkCommand](self._machine, self._execute)
        self._delivered: list[Delivered] = []
        """By the current step, for when the lock is released."""

    def start(self) -> None:
        """Connect and register; the coordinator's answer, a `Deploy` or a `Cancel`, is the first event."""
        self._step(StartRequested(now=self._clock.now()))

    def send(self, event: AnyEvent) -> None:
        """Send an event; while the connection is down a data event waits and a control event is dropped."""
        self._step(SendRequested(now=self._clock.now(), event=event))

    def heartbeat(self) -> None:
        """Send a heartbeat, with the acknowledgement of what was received."""
        self._step(HeartbeatRequested(now=self._clock.now()))

    def close(self) -> None:
        """End the connection; calling it twice is harmless."""
        self._step(CloseRequested(now=self._clock.now()))

    @property
    def sent(self) -> int:
        """Number of the last data event that was sent."""
        with self._lock:
            return self._machine.sent

    @property
    def silent_s(self) -> float:
        """Seconds since the coordinator sent anything."""
        return self._machine.silent_s(self._clock.now())

    @property
    def unanswered_s(self) -> float:
        """Seconds without an expected word of the coordinator: it is gone, or hangs while its connections stay open."""
        return self._machine.unanswered_s(self._clock.now())

    def on_message(self, connection: Connection, envelope: Envelope) -> None:
        """See `lakeward.ports.Receiver`."""
        self._step(EnvelopeReceived(now=self._clock.now(), envelope=envelope), connection)

    def on_disconnect(self, connection: Connection, error: Exception) -> None:
        """See `lakeward.ports.Receiver`."""
        now = self._clock.now()
        if isinstance(error, ProtocolError):
            self._step(PeerRejected(now=now, reason=str(error)), connection)
        else:
            self._step(ConnectionLost(now=now, reason=str(error)), connection)

    def _step(self, event: LinkEvent, connection: Connection | None = None) -> None:
        """Step the machine; ignore what happens on any but the newest connection."""
        with self._lock:
            if connection is not None and connection is not self._connection:
                return
            self._driver.post(event)
            delivered, self._delivered = self._delivered, []
        for one in delivered:
            self._on_event(one)

    def _execute(self, command: LinkCommand, _: LinkEvent) -> None:
        match command:
            case Connect():
                self._connection = self._transport.connect(
                    self._address, command.register, self, after_s=command.after_s
                )
            case Transmit() if self._connection is not None:
                self._connection.send(command.envelope)
            case Disconnect() if self._connection is not None:
                self._connection.close()
                self._connection = None
            case Deliver():
                self._delivered.append(command.event)
            case ReportLost():
                self._delivered.append(LostCoordinator(command.silent_s, command.reason))
            case ReportRejected():
                self._delivered.append(ProtocolError(command.reason))
            case ReportSettled():
                self._delivered.append(AllAcknowledged())
