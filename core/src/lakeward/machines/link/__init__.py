"""The machine of a subtask's link to the coordinator: registering, reconnecting, sending again."""

from __future__ import annotations

from lakeward.machines.link.messages import (
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
from lakeward.machines.link.rules import RECONNECT_S, RULES, LinkMachine
from lakeward.machines.link.state import LinkPhase

__all__ = [
    "RECONNECT_S",
    "RULES",
    "CloseRequested",
    "Connect",
    "ConnectionLost",
    "Deliver",
    "Disconnect",
    "EnvelopeReceived",
    "HeartbeatRequested",
    "LinkCommand",
    "LinkEvent",
    "LinkMachine",
    "LinkPhase",
    "PeerRejected",
    "ReportLost",
    "ReportRejected",
    "ReportSettled",
    "SendRequested",
    "StartRequested",
    "Transmit",
]
