"""The machine of a subtask's recovery: restored rows on their way to the writer, and checkpoints meanwhile."""

from __future__ import annotations

from lakeward.machines.recovery.recovery import Recovery
from lakeward.machines.recovery.transitions import TRANSITIONS, RecoveryGuard, RecoveryPhase

__all__ = ["TRANSITIONS", "Recovery", "RecoveryGuard", "RecoveryPhase"]
