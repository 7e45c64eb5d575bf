"""A subtask's link to the coordinator: it registers, reconnects, and resends unacknowledged events.

* The first envelope on a connection answers the registration: `Deploy` the first time, anything but `Cancel` later.
* A `Heartbeat` before the `Deploy` says that the coordinator waits for other subtasks: a sign of life, nothing else.
* While the connection is down a data event waits and a control event is dropped. After a reconnect all data events
  that are not acknowledged are sent again in order, before anything new.
* `SubtaskDone` is a control event and would be lost with its connection: it is sent again as well, and nobody is
  settled before it was sent.
* After a lost connection the link reconnects at once, then every `RECONNECT_S`, until nothing was received for the
  fence time. Then the subtask stops, because a later start of the service may delete what it writes.

The machine's driver ignores everything that arrives on an earlier connection, so it never becomes an event.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, cast

import msgspec
from msgspec import Struct

from lakeward.errors import ProtocolError
from lakeward.machines.machine import AtTime, Machine, MachineState, Rule, Rules
from lakeward.machines.transport.channel import Channel, ChannelKey
from lakeward.model.events import AnyEvent, Cancel, Deploy, Envelope, Heartbeat, SubtaskDone

if TYPE_CHECKING:
    from lakeward.model.events import Register

# --- events -----------------------------------------------------------------------------------------------------


class StartRequested(AtTime, frozen=True):
    """The subtask starts: connect and register."""


class EnvelopeReceived(AtTime, frozen=True, kw_only=True):
    """The coordinator sent an envelope; the first one on a connection answers the registration."""

    envelope: Envelope


class ConnectionLost(AtTime, frozen=True, kw_only=True):
    """The connection broke, or could not be made."""

    reason: str


class PeerRejected(AtTime, frozen=True, kw_only=True):
    """The peer did not prove the secret, or sent what is no envelope; the connection is closed."""

    reason: str


class SendRequested(AtTime, frozen=True, kw_only=True):
    """The subtask sends an event."""

    event: AnyEvent


class HeartbeatRequested(AtTime, frozen=True):
    """The subtask sends a heartbeat, with the acknowledgement of what was received."""


class CloseRequested(AtTime, frozen=True):
    """The subtask ends."""


LinkEvent = (
    StartRequested
    | EnvelopeReceived
    | ConnectionLost
    | PeerRejected
    | SendRequested
    | HeartbeatRequested
    | CloseRequested
)

# --- commands ---------------------------------------------------------------------------------------------------


class Connect(Struct, frozen=True):
    """After `after_s` seconds open a connection, prove the secret, and send this envelope first."""

    register: Envelope
    after_s: float


class Transmit(Struct, frozen=True):
    """Put an envelope on the connection."""

    envelope: Envelope


class Disconnect(Struct, frozen=True):
    """Close the connection, or stop opening it."""


class Deliver(Struct, frozen=True):
    """Give the subtask an event of the coordinator."""

    event: AnyEvent


class ReportLost(Struct, frozen=True):
    """Tell the subtask that nothing was received for longer than the fence time."""

    silent_s: float
    reason: str


class ReportRejected(Struct, frozen=True):
    """Tell the subtask that whoever listens at the coordinator's address is not the coordinator."""

    reason: str


class ReportSettled(Struct, frozen=True):
    """Tell the subtask, once it has sent `SubtaskDone`, that everything it sent is acknowledged."""


LinkCommand = Connect | Transmit | Disconnect | Deliver | ReportLost | ReportRejected | ReportSettled


class LinkPhase(MachineState):
    """The phase of a link."""

    NEW = "new"
    """Nothing was connected yet."""
    REGISTERING = "registering"
    """The first connection is being opened, or the coordinator waits for other subtasks; there is no deployment yet."""
    CONNECTED = "connected"
    """Envelopes go both ways."""
    RECONNECTING = "reconnecting"
    """The connection was lost, another one is being opened; data events wait."""
    CLOSED = "closed"
    """The subtask ended, the coordinator refused it, or it was silent for longer than the fence time."""


class LinkState(Machine[LinkEvent, LinkCommand]):
    """The link of one attempt, its channel, and when the coordinator was heard."""

    def __init__(self, round_name: str, job_attempt: int, register: Register, fence_s: float) -> None:
        """Start with nothing connected; `register` has no attempt number yet.

        After `fence_s` seconds of silence, > 0, the subtask stops.
        """
        super().__init__()
        self.round_name = round_name
        self.job_attempt = job_attempt
        self.register = register
        self.fence_s = fence_s
        self.phase = LinkPhase.NEW
        self.channel: Channel | None = None
        """None before the deployment; a step that changes it changes a copy."""
        self.done: Envelope | None = None
        """`SubtaskDone`, once it was sent."""
        self.last_received = 0.0
        """When something was received last, in seconds."""
        self.asked: float | None = None
        """When the first heartbeat was sent that is not answered yet; before the deployment, when the coordinator last
        said that it waits for others."""

    @property
    def sent(self) -> int:
        """Number of the last data event that was sent."""
        return self.channel.sent if self.channel is not None else 0

    def silent_s(self, now: float) -> float:
        """Return for how many seconds nothing was received."""
        return now - self.last_received

    def unanswered_s(self, now: float) -> float:
        """Return for how many seconds heartbeats have gone unanswered; 0 if none has.

        Before the deployment, seconds since the coordinator said that it waits for others; 0 where it did not.
        """
        return 0.0 if self.asked is None else now - self.asked

    def open_channel(self) -> Channel:
        """Return the channel, to be read."""
        if self.channel is None:
            message = "link: there is no channel before the attempt is deployed"
            raise ProtocolError(message)
        return self.channel

    def changed_channel(self) -> Channel:
        """Return a copy of the channel, which is to be changed and takes its place."""
        self.channel = copy(self.open_channel())
        return self.channel


RECONNECT_S = 0.2
"""Seconds between two tries to connect."""
NEW, REGISTERING, CONNECTED = LinkPhase.NEW, LinkPhase.REGISTERING, LinkPhase.CONNECTED
RECONNECTING, CLOSED = LinkPhase.RECONNECTING, LinkPhase.CLOSED
Commands = tuple[LinkCommand, ...]
ConnectionGone = ConnectionLost | PeerRejected

# --- conditions -----------------------------------------------------------------------------------------------------


def is_deployment(_: LinkState, event: EnvelopeReceived) -> bool:
    """The registration is answered: the subtask is deployed."""
    return isinstance(event.envelope.event, Deploy)


def is_heartbeat(_: LinkState, event: EnvelopeReceived) -> bool:
    """The coordinator says what it has received, and that it lives."""
    return isinstance(event.envelope.event, Heartbeat)


def is_cancelled(_: LinkState, event: EnvelopeReceived) -> bool:
    """The attempt does not count any more."""
    return isinstance(event.envelope.event, Cancel)


def does_not_fit(link: LinkState, event: EnvelopeReceived) -> bool:
    """There is a gap in the numbers, or the envelope is of another attempt."""
    try:
        link.open_channel().check(event.envelope)
    except ProtocolError:
        return True
    return False


def is_repeated(link: LinkState, event: EnvelopeReceived) -> bool:
    """The data event was received before."""
    return 0 < event.envelope.sequence <= link.open_channel().received


def is_in_time(link: LinkState, event: ConnectionGone) -> bool:
    """The coordinator was silent for no longer than the fence time."""
    return link.silent_s(event.now) <= link.fence_s


# --- what is done ---------------------------------------------------------------------------------------------------


def connect(link: LinkState, after_s: float = 0.0) -> Commands:
    """Open a connection and register, once deployed as the attempt that it is."""
    key = _key(link, link.register.attempt or 0)
    return (Connect(Channel(key, "up").send(link.register), after_s),)


def start(link: LinkState, event: StartRequested) -> Commands:
    """Register for the first time."""
    link.last_received = event.now
    return connect(link)


def wait_for_others(link: LinkState, event: EnvelopeReceived) -> Commands:
    """Count the time from here: the coordinator says so again and again, until the deployment."""
    link.last_received = link.asked = event.now
    return ()


def be_deployed(link: LinkState, event: EnvelopeReceived) -> Commands:
    """Open the channel of the attempt."""
    _note_received(link, event)
    deploy = cast("Deploy", event.envelope.event)
    link.register = msgspec.structs.replace(link.register, attempt=deploy.attempt)
    link.channel = Channel(_key(link, deploy.attempt), "up")
    return (Deliver(deploy),)


def be_refused(link: LinkState, event: EnvelopeReceived) -> Commands:
    """Tell the subtask that it is cancelled, or that its peer is no coordinator."""
    _note_received(link, event)
    answer = event.envelope.event
    if isinstance(answer, Cancel):
        return (Disconnect(), Deliver(answer))
    return (Disconnect(), ReportRejected(f"register: expected Deploy or Cancel, found {type(answer).__name__}"))


def register_later(link: LinkState, _: ConnectionLost) -> Commands:
    """Try again: whoever waited for others does not know whether the coordinator still does."""
    link.asked = None
    return connect(link, RECONNECT_S)


def report_rejected(link: LinkState, event: PeerRejected) -> Commands:
    """Tell the subtask that another process listens at the address."""
    link.asked = None
    return (ReportRejected(event.reason),)


def report_lost(link: LinkState, event: ConnectionGone) -> Commands:
    """Tell the subtask that it has no coordinator."""
    return (ReportLost(link.silent_s(event.now), event.reason),)


def report_never_deployed(link: LinkState, event: ConnectionLost) -> Commands:
    """Tell the subtask that no coordinator deploys it."""
    link.asked = None
    return report_lost(link, event)


def reconnect(link: LinkState, _: ConnectionGone) -> Commands:
    """Replace the connection at once."""
    return connect(link)


def reconnect_later(link: LinkState, _: ConnectionGone) -> Commands:
    """Try again."""
    return connect(link, RECONNECT_S)


def replace_connection(link: LinkState, event: EnvelopeReceived) -> Commands:
    """Have everything sent again over another connection."""
    _note_received(link, event)
    return (Disconnect(), *connect(link))


def send_again(link: LinkState, event: EnvelopeReceived) -> Commands:
    """Send what is not acknowledged."""
    _note_received(link, event)
    unacked = link.open_channel().unacked()
    again = unacked if link.done is None else (*unacked, link.done)
    return (*(Transmit(envelope) for envelope in again), *settle(link))


def acknowledge(link: LinkState, event: EnvelopeReceived) -> Commands:
    """Say what was received."""
    _note_received(link, event)
    return (Transmit(_heartbeat(link)),)


def take_acknowledgement(link: LinkState, event: EnvelopeReceived) -> Commands:
    """Keep no longer what the coordinator has."""
    _note_received(link, event)
    link.changed_channel().take(event.envelope)
    return settle(link)


def deliver(link: LinkState, event: EnvelopeReceived) -> Commands:
    """Acknowledge data at once, as a checkpoint may wait for it; the rest of the mailbox is handled afterwards."""
    link.changed_channel().take(event.envelope)
    answers = acknowledge(link, event) if event.envelope.sequence else _note_received(link, event)
    return (*answers, Deliver(event.envelope.event))


def keep(link: LinkState, event: SendRequested) -> Envelope:
    """Number what is data, and keep what is to be sent again."""
    envelope = link.changed_channel().send(event.event)
    if isinstance(event.event, SubtaskDone):
        link.done = envelope
    return envelope


def send(link: LinkState, event: SendRequested) -> Commands:
    """Send it."""
    envelope = keep(link, event)
    return (Transmit(envelope), *(settle(link) if isinstance(event.event, SubtaskDone) else ()))


def let_wait(link: LinkState, event: SendRequested) -> Commands:
    """Send it after the reconnect, if it is data or the end."""
    keep(link, event)
    return ()


def ask(link: LinkState, event: HeartbeatRequested) -> Commands:
    """Count the time until something is received; while there is no connection, nothing is sent."""
    link.asked = event.now if link.asked is None else link.asked
    return (Transmit(_heartbeat(link)),) if link.phase is CONNECTED else ()


def settle(link: LinkState) -> Commands:
    """Tell the subtask that it may end, once that was sent and everything is acknowledged."""
    return (ReportSettled(),) if link.done is not None and not link.open_channel().unacked() else ()


def _note_received(link: LinkState, event: EnvelopeReceived) -> Commands:
    link.last_received, link.asked = event.now, None
    return ()


def _heartbeat(link: LinkState) -> Envelope:
    channel = link.open_channel()
    return channel.send(Heartbeat(acked=channel.received))


def _key(link: LinkState, attempt: int) -> ChannelKey:
    return ChannelKey(link.round_name, link.job_attempt, link.register.subtask, attempt)


RULES: Rules[LinkState, LinkCommand] = Rules(
    "link",
    LinkPhase,
    Rule(NEW, StartRequested, to=REGISTERING, do=start),
    Rule(NEW, CloseRequested, to=CLOSED),
    Rule(REGISTERING, EnvelopeReceived, when=is_deployment, to=CONNECTED, do=be_deployed),
    Rule(REGISTERING, EnvelopeReceived, when=is_heartbeat, do=wait_for_others),
    Rule(REGISTERING, EnvelopeReceived, to=CLOSED, do=be_refused),
    Rule(REGISTERING, ConnectionLost, when=is_in_time, do=register_later),
    Rule(REGISTERING, ConnectionLost, to=CLOSED, do=report_never_deployed),
    Rule(REGISTERING, PeerRejected, to=CLOSED, do=report_rejected),
    Rule(CONNECTED, EnvelopeReceived, when=does_not_fit, to=RECONNECTING, do=replace_connection),
    Rule(CONNECTED, EnvelopeReceived, when=is_repeated, do=acknowledge),
    Rule(CONNECTED, EnvelopeReceived, when=is_heartbeat, do=take_acknowledgement),
    Rule(CONNECTED, EnvelopeReceived, do=deliver),
    Rule(CONNECTED, (ConnectionLost, PeerRejected), when=is_in_time, to=RECONNECTING, do=reconnect),
    Rule(CONNECTED, SendRequested, do=send),
    Rule(RECONNECTING, EnvelopeReceived, when=is_cancelled, to=CLOSED, do=be_refused),
    Rule(RECONNECTING, EnvelopeReceived, to=CONNECTED, do=send_again),
    Rule(RECONNECTING, (ConnectionLost, PeerRejected), when=is_in_time, do=reconnect_later),
    Rule(RECONNECTING, SendRequested, do=let_wait),
    Rule((CONNECTED, RECONNECTING), (ConnectionLost, PeerRejected), to=CLOSED, do=report_lost),
    Rule((CONNECTED, RECONNECTING), HeartbeatRequested, do=ask),
    Rule((REGISTERING, CONNECTED, RECONNECTING), CloseRequested, to=CLOSED, then=(Disconnect(),)),
    # What was under way on a connection comes late, and another thread may not know yet that the link is closed.
    Rule(CLOSED, (EnvelopeReceived, ConnectionLost, PeerRejected, SendRequested, HeartbeatRequested, CloseRequested)),
)


class LinkMachine(LinkState):
    """The machine of one attempt's link."""

    rules = RULES
