"""The states of a subtask's link, and every transition between them.

A row gives the next state by guard; an event without a row is illegal. The machine's driver ignores everything that
arrives on an earlier connection, so it never becomes an event.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from lakeward.machines.link.protocol import (
    CloseRequested,
    ConnectionLost,
    EnvelopeReceived,
    HeartbeatRequested,
    LinkEvent,
    PeerRejected,
    SendRequested,
    StartRequested,
)
from lakeward.machines.machine_state import MachineState

if TYPE_CHECKING:
    from collections.abc import Mapping


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


class LinkGuard(MachineState):
    """The condition that, with the state and the event, selects the next state."""

    ALWAYS = "always"
    ACCEPTED = "accepted"
    """An envelope is what is expected: a deployment, a readmission, or the next one of the channel."""
    AWAITED = "awaited"
    """The coordinator has taken the registration; it deploys this subtask once the others have registered too."""
    REFUSED = "refused"
    """An envelope refuses this attempt, or is not what is expected."""
    IN_TIME = "in time"
    """The coordinator was silent for no longer than the fence time."""
    SILENT = "silent"
    """It was silent for longer."""


_NEW, _REGISTERING, _CONNECTED = LinkPhase.NEW, LinkPhase.REGISTERING, LinkPhase.CONNECTED
_RECONNECTING, _CLOSED = LinkPhase.RECONNECTING, LinkPhase.CLOSED
_ALWAYS, _ACCEPTED, _REFUSED = LinkGuard.ALWAYS, LinkGuard.ACCEPTED, LinkGuard.REFUSED
_IN_TIME, _SILENT = LinkGuard.IN_TIME, LinkGuard.SILENT

TRANSITIONS: Mapping[tuple[LinkPhase, type[LinkEvent]], Mapping[LinkGuard, LinkPhase]] = MappingProxyType(
    {
        (_NEW, StartRequested): {_ALWAYS: _REGISTERING},
        (_NEW, CloseRequested): {_ALWAYS: _CLOSED},
        (_REGISTERING, EnvelopeReceived): {
            _ACCEPTED: _CONNECTED,
            LinkGuard.AWAITED: _REGISTERING,
            _REFUSED: _CLOSED,
        },
        (_REGISTERING, ConnectionLost): {_IN_TIME: _REGISTERING, _SILENT: _CLOSED},
        (_REGISTERING, PeerRejected): {_ALWAYS: _CLOSED},  # another process listens at the address
        (_REGISTERING, CloseRequested): {_ALWAYS: _CLOSED},
        (_CONNECTED, EnvelopeReceived): {_ACCEPTED: _CONNECTED, _REFUSED: _RECONNECTING},  # a gap in the numbers
        (_CONNECTED, ConnectionLost): {_IN_TIME: _RECONNECTING, _SILENT: _CLOSED},
        (_CONNECTED, PeerRejected): {_IN_TIME: _RECONNECTING, _SILENT: _CLOSED},
        (_CONNECTED, SendRequested): {_ALWAYS: _CONNECTED},
        (_CONNECTED, HeartbeatRequested): {_ALWAYS: _CONNECTED},
        (_CONNECTED, CloseRequested): {_ALWAYS: _CLOSED},
        (_RECONNECTING, EnvelopeReceived): {_ACCEPTED: _CONNECTED, _REFUSED: _CLOSED},
        (_RECONNECTING, ConnectionLost): {_IN_TIME: _RECONNECTING, _SILENT: _CLOSED},
        (_RECONNECTING, PeerRejected): {_IN_TIME: _RECONNECTING, _SILENT: _CLOSED},
        (_RECONNECTING, SendRequested): {_ALWAYS: _RECONNECTING},
        (_RECONNECTING, HeartbeatRequested): {_ALWAYS: _RECONNECTING},
        (_RECONNECTING, CloseRequested): {_ALWAYS: _CLOSED},
        (_CLOSED, EnvelopeReceived): {_ALWAYS: _CLOSED},
        (_CLOSED, ConnectionLost): {_ALWAYS: _CLOSED},
        (_CLOSED, PeerRejected): {_ALWAYS: _CLOSED},
        (_CLOSED, SendRequested): {_ALWAYS: _CLOSED},  # another thread may not know yet that the link is closed
        (_CLOSED, HeartbeatRequested): {_ALWAYS: _CLOSED},
        (_CLOSED, CloseRequested): {_ALWAYS: _CLOSED},
    }
)
"""(state, event) to the next state by guard. Complete: what is not in it is illegal."""
