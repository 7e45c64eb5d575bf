"""What lies in the service's inbox beside the events of the machine of all tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakeward.coordinator.rounds.round import Round
    from lakeward.machines.rounds import RoundsEvent


@dataclass(frozen=True, slots=True)
class ForRound:
    """An event of one round."""

    round: Round
    event: object


@dataclass(frozen=True, slots=True)
class OfRound:
    """An event of the machine of all tables that a round tells: of no interest once the round is over."""

    round: Round
    event: RoundsEvent
