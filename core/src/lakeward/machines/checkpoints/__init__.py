"""The machine of a round's checkpoints, and the gateways that it closes and opens."""

from __future__ import annotations

from lakeward.machines.checkpoints.machine import CheckpointCoordinator
from lakeward.machines.checkpoints.transitions import TRANSITIONS, CheckpointPhase, ParticipantPhase

__all__ = ["TRANSITIONS", "CheckpointCoordinator", "CheckpointPhase", "ParticipantPhase"]
