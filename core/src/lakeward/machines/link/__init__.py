"""The machine of a subtask's link to the coordinator: registering, reconnecting, sending again."""

from __future__ import annotations

from lakeward.machines.link.machine import LinkMachine
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

__all__ = [
    "TRANSITIONS",
    "CloseRequested",
    "Connect",
    "ConnectionLost",
    "Deliver",
    "Disconnect",
    "EnvelopeReceived",
    "HeartbeatRequested",
    "LinkCommand",
    "LinkEvent",
    "LinkGuard",
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
