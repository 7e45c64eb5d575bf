"""A subtask's link to the coordinator: it registers, reconnects, and resends unacknowledged events. Pure.

Rules
* The first envelope on a connection answers the registration: `Deploy` the first time, anything but `Cancel` later.
* A `Heartbeat` before the `Deploy` says that the coordinator waits for other subtasks: a sign of life, nothing else.
* While the connection is down a data event waits and a control event is dropped. After a reconnect all data events
  that are not acknowledged are sent again in order, before anything new.
* `SubtaskDone` is a control event and would be lost with its connection: it is sent again as well, and nobody is
  settled before it was sent.
* After a lost connection the link reconnects at once, then every `RECONNECT_S`, until nothing was received for the
  fence time. Then the subtask stops, because a later start of the service may delete what it writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

import msgspec

from lakeward.errors import ProtocolError
from lakeward.machines.link.protocol import (
    CloseRequested,
    Connect,
    ConnectionLost,
    Deliver,
    Disconnect,
    EnvelopeReceived,
    HeartbeatRequested,
    LinkCommand,
    LinkEvent,
    PeerRejected,
    ReportLost,
    ReportRejected,
    ReportSettled,
    SendRequested,
    StartRequested,
    Transmit,
)
from lakeward.machines.link.transitions import TRANSITIONS, LinkGuard, LinkPhase
from lakeward.machines.machine_state import next_state
from lakeward.machines.transport.channel import Channel, ChannelKey
from lakeward.model.events import Cancel, Deploy, Heartbeat, Register, SubtaskDone

if TYPE_CHECKING:
    from lakeward.model.events import AnyEvent, Envelope

RECONNECT_S = 0.2
"""Seconds between two tries to connect."""
_NEW, _REGISTERING, _CONNECTED = LinkPhase.NEW, LinkPhase.REGISTERING, LinkPhase.CONNECTED
_RECONNECTING, _CLOSED = LinkPhase.RECONNECTING, LinkPhase.CLOSED


class LinkMachine:
    """The machine of one attempt's link."""

    def __init__(self, round_name: str, job_attempt: int, register: Register, fence_s: float) -> None:
        """Start with nothing connected.

        Args:
            round_name: the round.
            job_attempt: the launch.
            register: the subtask's registration, without an attempt number.
            fence_s: seconds of silence after which the subtask stops, > 0.
        """
        self._round_name = round_name
        self._job_attempt = job_attempt
        self._register = register
        self._fence_s = fence_s
        self._phase = LinkPhase.NEW
        self._channel: Channel | None = None
        self._done: Envelope | None = None
        """`SubtaskDone`, once it was sent."""
        self._last_received = 0.0
        """When something was received last, in seconds."""
        self._asked: float | None = None
        """When the first heartbeat was sent that is not answered yet; before the deployment, when the coordinator last
        said that it waits for others."""

    @property
    def phase(self) -> LinkPhase:
        """The link's phase."""
        return self._phase

    @property
    def sent(self) -> int:
        """Number of the last data event that was sent."""
        return self._channel.sent if self._channel is not None else 0

    def silent_s(self, now: float) -> float:
        """Return for how many seconds nothing was received."""
        return now - self._last_received

    def unanswered_s(self, now: float) -> float:
        """Return for how many seconds heartbeats have gone unanswered; 0 if none has.

        Before the deployment, seconds since the coordinator said that it waits for others; 0 where it did not.
        """
        return 0.0 if self._asked is None else now - self._asked

    def step(self, event: LinkEvent) -> tuple[LinkCommand, ...]:
        """Take one event.

        Args:
            event: what happened.

        Returns:
            What is to be done, in this order.

        Raises:
            IllegalEventError: no row for this event; nothing was changed.
        """
        guard = self._guard(event)
        before = self._phase
        self._phase = next_state("link", TRANSITIONS, before, event, guard)
        return () if before is _CLOSED else self._answer(event, before, self._take(event, before, guard))

    # --- where an event leads -------------------------------------------------------------------------------

    def _guard(self, event: LinkEvent) -> LinkGuard:
        """Return the guard of an event; nothing is changed."""
        if self._phase in {_NEW, _CLOSED}:
            return LinkGuard.ALWAYS
        if isinstance(event, EnvelopeReceived):
            return self._guard_of(event.envelope)
        registers = self._phase is _REGISTERING and isinstance(event, PeerRejected)
        if isinstance(event, ConnectionLost | PeerRejected) and not registers:
            silent = self.silent_s(event.now) > self._fence_s
            return LinkGuard.SILENT if silent else LinkGuard.IN_TIME
        return LinkGuard.ALWAYS

    def _guard_of(self, envelope: Envelope) -> LinkGuard:
        if self._phase is _CONNECTED:
            try:
                self._open_channel().check(envelope)
            except ProtocolError:
                return LinkGuard.REFUSED
            return LinkGuard.ACCEPTED
        answer = envelope.event
        if self._phase is _REGISTERING and isinstance(answer, Heartbeat):
            return LinkGuard.AWAITED
        accepted = isinstance(answer, Deploy) if self._phase is _REGISTERING else not isinstance(answer, Cancel)
        return LinkGuard.ACCEPTED if accepted else LinkGuard.REFUSED

    def _take(self, event: LinkEvent, before: LinkPhase, guard: LinkGuard) -> AnyEvent | None:
        """Return what is new in an event: None for an envelope that was received before."""
        if not isinstance(event, EnvelopeReceived):
            return None
        if before is not _CONNECTED:
            return event.envelope.event
        return self._open_channel().take(event.envelope) if guard is LinkGuard.ACCEPTED else None

    # --- what is to be done -----------------------------------------------------------------------------------

    def _answer(self, event: LinkEvent, before: LinkPhase, found: AnyEvent | None) -> tuple[LinkCommand, ...]:
        match event:
            case StartRequested():
                self._last_received = event.now
                commands = self._connect(0.0)
            case EnvelopeReceived():
                commands = self._received(event, before, found)
            case ConnectionLost() | PeerRejected():
                commands = self._lost(event, before)
            case SendRequested():
                commands = self._send(event.event)
            case HeartbeatRequested():
                self._asked = event.now if self._asked is None else self._asked
                commands = self._heartbeat()
            case CloseRequested():
                commands = () if before is _NEW else (Disconnect(),)
            case _:
                assert_never(event)
        return commands

    def _received(self, event: EnvelopeReceived, before: LinkPhase, found: AnyEvent | None) -> tuple[LinkCommand, ...]:
        self._last_received, self._asked = event.now, None
        if self._phase is _CLOSED:
            return (Disconnect(), _refusal(event.envelope.event))
        if self._phase is _RECONNECTING:
            return (Disconnect(), *self._connect(0.0))
        if before is _REGISTERING:
            return self._admitted(event.now, found)
        if before is _RECONNECTING:
            unacked = self._open_channel().unacked()
            again = unacked if self._done is None else (*unacked, self._done)
            return (*(Transmit(envelope) for envelope in again), *self._settled())
        # Acknowledge at once: a checkpoint may wait for it. The rest of the mailbox is handled afterwards.
        answers = self._heartbeat() if event.envelope.sequence else ()
        if isinstance(found, Heartbeat):
            return (*answers, *self._settled())
        return answers if found is None else (*answers, Deliver(found))

    def _admitted(self, now: float, found: AnyEvent | None) -> tuple[LinkCommand, ...]:
        if not isinstance(found, Deploy):
            self._asked = now  # the coordinator says so again and again, until the deployment
            return ()
        self._register = msgspec.structs.replace(self._register, attempt=found.attempt)
        self._channel = Channel(self._key(found.attempt), "up")
        return (Deliver(found),)

    def _lost(self, event: ConnectionLost | PeerRejected, before: LinkPhase) -> tuple[LinkCommand, ...]:
        if before is _REGISTERING:
            self._asked = None
        if self._phase is not _CLOSED:
            return self._connect(0.0 if before is _CONNECTED else RECONNECT_S)
        if before is _REGISTERING and isinstance(event, PeerRejected):
            return (ReportRejected(event.reason),)
        return (ReportLost(self.silent_s(event.now), event.reason),)

    def _send(self, event: AnyEvent) -> tuple[LinkCommand, ...]:
        envelope = self._open_channel().send(event)
        commands: tuple[LinkCommand, ...] = (Transmit(envelope),) if self._phase is _CONNECTED else ()
        if not isinstance(event, SubtaskDone):
            return commands
        self._done = envelope
        return (*commands, *self._settled())

    def _heartbeat(self) -> tuple[LinkCommand, ...]:
        if self._phase is not _CONNECTED:
            return ()
        channel = self._open_channel()
        return (Transmit(channel.send(Heartbeat(acked=channel.received))),)

    def _settled(self) -> tuple[LinkCommand, ...]:
        sent = self._done is not None and self._phase is _CONNECTED
        return (ReportSettled(),) if sent and not self._open_channel().unacked() else ()

    def _connect(self, after_s: float) -> tuple[LinkCommand, ...]:
        key = self._key(self._register.attempt or 0)
        return (Connect(Channel(key, "up").send(self._register), after_s),)

    def _open_channel(self) -> Channel:
        if self._channel is None:
            message = "link: there is no channel before the attempt is deployed"
            raise ProtocolError(message)
        return self._channel

    def _key(self, attempt: int) -> ChannelKey:
        return ChannelKey(self._round_name, self._job_attempt, self._register.subtask, attempt)


def _refusal(answer: AnyEvent) -> LinkCommand:
    if isinstance(answer, Cancel):
        return Deliver(answer)
    return ReportRejected(f"register: expected Deploy or Cancel, found {type(answer).__name__}")
