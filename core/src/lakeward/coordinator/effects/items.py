"""What lies in the service's inbox beside the events of the machine of all tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakeward.coordinator.rounds.round import Round
    from lakeward.machines.rounds import RoundsEvent


@dataclass(frozen=True, slots=True)
class ForRound:
    """An event that goes to one round: the answer to an effect, or the end of a launch."""

    round: Round
    event: object


@dataclass(frozen=True, slots=True)
class OfRound:
    """An event that comes from a round and goes to the machine of all tables; dropped once the round is over."""

    round: Round
    event: RoundsEvent
