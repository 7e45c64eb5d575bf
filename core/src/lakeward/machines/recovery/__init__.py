"""The machine of a subtask's recovery: restored rows on their way to the writer, and checkpoints meanwhile."""

from __future__ import annotations

from lakeward.machines.recovery.rules import RULES, Recovery
from lakeward.machines.recovery.state import RecoveryPhase

__all__ = ["RULES", "Recovery", "RecoveryPhase"]
