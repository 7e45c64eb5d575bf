"""The machine of a round's checkpoints, and the gateways that it closes and opens."""

from __future__ import annotations

from lakeward.machines.checkpoints.rules import ATTEMPT_RULES, RULES, CheckpointCoordinator
from lakeward.machines.checkpoints.state import CheckpointPhase, ParticipantPhase

__all__ = ["ATTEMPT_RULES", "RULES", "CheckpointCoordinator", "CheckpointPhase", "ParticipantPhase"]
