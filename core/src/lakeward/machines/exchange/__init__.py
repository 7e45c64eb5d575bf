"""The machines of an exchange: the alignment of a consumer's channels, and the producer's end of one channel."""

from __future__ import annotations

from lakeward.machines.exchange.alignment import ALIGNMENT, AlignmentPhase, BarrierAlignment
from lakeward.machines.exchange.output_queue import OUTPUT, OutputPhase, OutputQueue

__all__ = ["ALIGNMENT", "OUTPUT", "AlignmentPhase", "BarrierAlignment", "OutputPhase", "OutputQueue"]
