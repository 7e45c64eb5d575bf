"""The machines of an exchange: the alignment of a consumer's channels, and the producer's end of one channel."""

from __future__ import annotations

from lakeward.machines.exchange.alignment import BarrierAlignment
from lakeward.machines.exchange.output_queue import OutputQueue
from lakeward.machines.exchange.transitions import TRANSITIONS, AlignmentGuard, AlignmentPhase

__all__ = ["TRANSITIONS", "AlignmentGuard", "AlignmentPhase", "BarrierAlignment", "OutputQueue"]
