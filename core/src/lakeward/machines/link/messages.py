"""The events and commands of the machine `link`. `now` is in seconds on the subtask's clock."""

from __future__ import annotations

from msgspec import Struct

from lakeward.model.events import AnyEvent, Envelope

# --- events -----------------------------------------------------------------------------------------------------


class StartRequested(Struct, frozen=True, kw_only=True):
    """The subtask starts: connect and register."""

    now: float


class EnvelopeReceived(Struct, frozen=True, kw_only=True):
    """The coordinator sent an envelope; the first one on a connection answers the registration."""

    now: float
    envelope: Envelope


class ConnectionLost(Struct, frozen=True, kw_only=True):
    """The connection broke, or could not be made."""

    now: float
    reason: str


class PeerRejected(Struct, frozen=True, kw_only=True):
    """The peer did not prove the secret, or sent what is no envelope; the connection is closed."""

    now: float
    reason: str


class SendRequested(Struct, frozen=True, kw_only=True):
    """The subtask sends an event."""

    now: float
    event: AnyEvent


class HeartbeatRequested(Struct, frozen=True, kw_only=True):
    """The subtask sends a heartbeat, with the acknowledgement of what was received."""

    now: float


class CloseRequested(Struct, frozen=True, kw_only=True):
    """The subtask ends."""

    now: float


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
