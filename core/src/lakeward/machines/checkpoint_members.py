"""The attempts of a round as its checkpoints see them: who lives, who is part of the running one, and how far it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.machines.checkpoint_phases import MEMBERS, AttemptPhase
from lakeward.machines.checkpoint_protocol import (
    Attempt,
    CloseAcked,
    Declined,
    GatewayOpened,
    PartStored,
    SubtaskRegistered,
    SubtaskWord,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

Checkpointed = CloseAcked | GatewayOpened | PartStored | Declined
"""The words of an attempt that name a checkpoint."""


@dataclass(slots=True)
class Member:
    """The newest attempt of a subtask."""

    subtask: int
    attempt: int
    phase: AttemptPhase = AttemptPhase.UNKNOWN
    received: int = 0
    """Data events of it that were processed."""
    cut_at: int = 0
    """Its last data event before the cut."""
    acked: int = 0
    """Data events to it that it processed."""
    sent: int = 0
    """The last data event to it before the cut."""
    down_closed: bool = False
    counts: tuple[int, object] | None = None
    """The newest completed checkpoint that it is part of, and its snapshot there."""

    @property
    def key(self) -> Attempt:
        """Subtask and attempt."""
        return (self.subtask, self.attempt)

    def too_early(self, event: Checkpointed) -> bool:
        """Tell what it cannot have done yet, or cannot have done so, from what it says of the running checkpoint."""
        if self.phase not in MEMBERS:
            return False
        if isinstance(event, CloseAcked):
            return self.phase is not AttemptPhase.TOLD and event.sent != self.cut_at
        return isinstance(event, GatewayOpened | PartStored) and self.phase in {AttemptPhase.TOLD, AttemptPhase.SHUT}


class Members:
    """The newest attempt of each subtask; older ones are gone."""

    def __init__(self) -> None:
        """Start with nobody."""
        self._newest: dict[int, Member] = {}

    def __iter__(self) -> Iterator[Member]:
        """All of them, by subtask."""
        return iter([member for _, member in sorted(self._newest.items())])

    def of(self, phases: frozenset[AttemptPhase]) -> list[Member]:
        """Return those that stand there, by subtask."""
        return [member for member in self if member.phase in phases]

    def newest(self, subtask: int) -> Member | None:
        """Return a subtask's newest attempt, None before any registered."""
        return self._newest.get(subtask)

    def add(self, event: SubtaskRegistered) -> Member:
        """Keep a new attempt, in place of the older one."""
        member = Member(event.subtask, event.attempt)
        self._newest[event.subtask] = member
        return member

    def speaker(self, event: SubtaskWord) -> Member | None:
        """Return who speaks; None where that attempt is gone or was never there."""
        member = self._newest.get(event.subtask)
        there = member is not None and member.attempt == event.attempt and member.phase is not AttemptPhase.GONE
        return member if there else None

    def phase_of(self, attempt: Attempt) -> AttemptPhase:
        """Return where an attempt stands."""
        member = self._newest.get(attempt[0])
        if member is None or attempt[1] > member.attempt:
            return AttemptPhase.UNKNOWN
        return member.phase if attempt[1] == member.attempt else AttemptPhase.GONE

    def unacked(self) -> list[Member]:
        """Return those that have not processed what was sent to them before the cut."""
        return [member for member in self.of(MEMBERS) if member.acked < member.sent]
