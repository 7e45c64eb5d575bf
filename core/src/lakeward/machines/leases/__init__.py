"""The machine of the service's lease: what is held, renewed, released."""

from __future__ import annotations

from lakeward.machines.leases.calls import CallKind
from lakeward.machines.leases.commands import (
    CallAcquire,
    CallDrop,
    CallRelease,
    CallVerify,
    LeasesCommand,
    LeaseStopped,
    NotProtected,
    Persist,
    Protected,
    ProtectionLost,
)
from lakeward.machines.leases.events import (
    AbandonLease,
    Acquired,
    CallFailed,
    CallOutcomeUnknown,
    CheckpointsRead,
    CoordinatorChanged,
    Done,
    LeasesEvent,
    LeaseStop,
    LeaseTick,
    Protect,
    Restored,
    Retain,
    StartGeneration,
    Unprotect,
    Verified,
)
from lakeward.machines.leases.machine import Leases
from lakeward.machines.leases.state import HeldLeases, LeasesPolicy
from lakeward.machines.leases.transitions import TRANSITIONS, CallState, LeaseGuard

__all__ = [
    "TRANSITIONS",
    "AbandonLease",
    "Acquired",
    "CallAcquire",
    "CallDrop",
    "CallFailed",
    "CallKind",
    "CallOutcomeUnknown",
    "CallRelease",
    "CallState",
    "CallVerify",
    "CheckpointsRead",
    "CoordinatorChanged",
    "Done",
    "HeldLeases",
    "LeaseGuard",
    "LeaseStop",
    "LeaseStopped",
    "LeaseTick",
    "Leases",
    "LeasesCommand",
    "LeasesEvent",
    "LeasesPolicy",
    "NotProtected",
    "Persist",
    "Protect",
    "Protected",
    "ProtectionLost",
    "Restored",
    "Retain",
    "StartGeneration",
    "Unprotect",
    "Verified",
]
