"""The attempts of a round, for its checkpoints: which are alive, which participate, and each one's phase."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.machines.checkpoints.events import Attempt, CheckpointsEvent, SubtaskEvent, SubtaskRegistered
from lakeward.machines.checkpoints.transitions import (
    ALIVE,
    PARTICIPATING,
    TRANSITIONS,
    CheckpointGuard,
    ParticipantPhase,
)
from lakeward.machines.machine_state import next_state

if TYPE_CHECKING:
    from collections.abc import Iterator

MACHINE = "checkpoints"


class AttemptState:
    """The newest attempt of a subtask."""

    def __init__(self, subtask: int, attempt: int) -> None:
        """Start as an attempt that has not registered."""
        self.subtask = subtask
        self.attempt = attempt
        self._phase = ParticipantPhase.UNKNOWN
        self.received = 0
        """How many of its data events the coordinator has processed."""
        self.closed_after = 0
        """Number of its last data event before its gateway closed."""
        self.acked = 0
        """How many of the coordinator's data events it has processed."""
        self.sent_before_cut = 0
        """Number of the last data event that was sent to it before the coordinator's cut."""
        self.down_closed = False
        """Whether the coordinator's gateway to it is closed."""
        self.newest_part: tuple[int, object] | None = None
        """The newest completed checkpoint that it is part of, and its snapshot there."""

    def copy(self) -> AttemptState:
        """Return a copy that can be changed without changing this."""
        copied = AttemptState.__new__(AttemptState)
        vars(copied).update(vars(self))
        return copied

    @property
    def phase(self) -> ParticipantPhase:
        """The attempt's phase; only `move` changes it."""
        return self._phase

    @property
    def key(self) -> Attempt:
        """Subtask and attempt."""
        return (self.subtask, self.attempt)

    @property
    def participates(self) -> bool:
        """True while it is part of the running checkpoint."""
        return self._phase in PARTICIPATING

    @property
    def has_unacked(self) -> bool:
        """True while it has not processed what was sent to it before the cut."""
        return self.acked < self.sent_before_cut

    def move(self, guard: CheckpointGuard, cause: CheckpointsEvent) -> None:
        """Move to the state that the table gives.

        Args:
            guard: what the event finds.
            cause: the event.

        Raises:
            IllegalEventError: the table has no state for this guard.
        """
        self._phase = next_state(MACHINE, TRANSITIONS, self._phase, cause, guard)


class AttemptStates:
    """The newest attempt of each subtask; older ones are gone."""

    def __init__(self) -> None:
        """Start without attempts."""
        self._newest: dict[int, AttemptState] = {}

    def __iter__(self) -> Iterator[AttemptState]:
        """Iterate over all of them, by subtask."""
        return iter([*self._newest.values()])

    def copy(self) -> AttemptStates:
        """Return a copy that can be changed without changing this."""
        copied = AttemptStates()
        copied._newest = {subtask: state.copy() for subtask, state in self._newest.items()}
        return copied

    def alive(self) -> list[AttemptState]:
        """Return the attempts that are alive, by subtask."""
        return [state for state in self if state.phase in ALIVE]

    def participants(self) -> list[AttemptState]:
        """Return the attempts that participate in the running checkpoint, by subtask."""
        return [state for state in self if state.participates]

    def newest(self, subtask: int) -> AttemptState | None:
        """Return a subtask's newest attempt, None before any registered."""
        return self._newest.get(subtask)

    def add(self, event: SubtaskRegistered) -> AttemptState:
        """Add a new attempt, which replaces the older one of its subtask."""
        state = AttemptState(event.subtask, event.attempt)
        known = event.subtask in self._newest
        self._newest[event.subtask] = state
        if not known:
            self._newest = dict(sorted(self._newest.items()))  # here and not in each look: they are far more
        return state

    def sender(self, event: SubtaskEvent) -> AttemptState | None:
        """Return the attempt that an event is about; None if it is gone or never registered."""
        state = self._newest.get(event.subtask)
        found = state is not None and state.attempt == event.attempt and state.phase is not ParticipantPhase.GONE
        return state if found else None

    def phase_of(self, attempt: Attempt) -> ParticipantPhase:
        """Return the phase of an attempt."""
        state = self._newest.get(attempt[0])
        if state is None or attempt[1] > state.attempt:
            return ParticipantPhase.UNKNOWN
        return state.phase if attempt[1] == state.attempt else ParticipantPhase.GONE
