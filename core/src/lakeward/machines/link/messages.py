"""The events and commands of the machine `link`. `now` is in seconds on the subtask's clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakeward.model.events import AnyEvent, Envelope

# --- events -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequested:
    """The subtask starts: connect and register."""

    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvelopeReceived:
    """The coordinator sent an envelope; the first one on a connection answers the registration."""

    now: float
    envelope: Envelope


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLost:
    """The connection broke, or could not be made."""

    now: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRejected:
    """The peer did not prove the secret, or sent what is no envelope; the connection is closed."""

    now: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SendRequested:
    """The subtask sends an event."""

    now: float
    event: AnyEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRequested:
    """The subtask sends a heartbeat, with the acknowledgement of what was received."""

    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseRequested:
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


@dataclass(frozen=True, slots=True)
class Connect:
    """After `after_s` seconds open a connection, prove the secret, and send this envelope first."""

    register: Envelope
    after_s: float


@dataclass(frozen=True, slots=True)
class Transmit:
    """Put an envelope on the connection."""

    envelope: Envelope


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close the connection, or stop opening it."""


@dataclass(frozen=True, slots=True)
class Deliver:
    """Give the subtask an event of the coordinator."""

    event: AnyEvent


@dataclass(frozen=True, slots=True)
class ReportLost:
    """Tell the subtask that nothing was received for longer than the fence time."""

    silent_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class ReportRejected:
    """Tell the subtask that whoever listens at the coordinator's address is not the coordinator."""

    reason: str


@dataclass(frozen=True, slots=True)
class ReportSettled:
    """Tell the subtask, once it has sent `SubtaskDone`, that everything it sent is acknowledged."""


LinkCommand = Connect | Transmit | Disconnect | Deliver | ReportLost | ReportRejected | ReportSettled
