"""Where the launches of one round stand."""

from __future__ import annotations

from lakeward.machines.launches.messages import LaunchesCommand, LaunchesEvent
from lakeward.machines.machine import Machine, MachineState
from lakeward.model.backoff import NO_PAUSES, RetryPauses


class LaunchPhase(MachineState):
    """The phase of a round's launches."""

    PLANNED = "planned"
    """It was not launched yet."""
    RUNNING = "running"
    ENDING = "ending"
    """The launch was cancelled, and another one follows."""
    WRITTEN = "written"
    """Everything is in closed files; the launch ends by itself."""
    STOPPING = "stopping"
    """The round is over; the launch was cancelled."""
    ASKING = "asking"
    """The launch is over; the store has not said whether the newest checkpoint is complete."""
    RETURNING = "returning"
    """The launch is over; what it did not finish is being returned."""
    PAUSED = "paused"
    """The next launch waits for its time."""
    COUNTING = "counting"
    """The slots for the next launch are being counted."""
    ENDED = "ended"
    """None of the round's tasks runs, and no launch follows."""


class LaunchesState(Machine[LaunchesEvent, LaunchesCommand]):
    """The launches of one round, so far."""

    def __init__(self, *, limit: int, pauses: RetryPauses = NO_PAUSES) -> None:
        """Begin before the first of `limit` launches at the most; `pauses` go by the number of launches so far."""
        super().__init__()
        self.phase = LaunchPhase.PLANNED
        self.limit = limit
        self.pauses = pauses
        self.number = 0
        """So often it was launched."""
        self.reason = ""
        """Why the newest launch was lost; empty while it is not."""
        self.paused_until: float | None = None
        """When the next launch may be prepared, None while none waits for its time."""
        self.started = False
        """A subtask of some launch was deployed."""
        self.at_work = False
        """A subtask of the newest launch was deployed, and what that launch did not finish is not returned yet."""

    @property
    def is_up(self) -> bool:
        """True while a launch is under way."""
        return self.phase in {LaunchPhase.RUNNING, LaunchPhase.ENDING, LaunchPhase.WRITTEN, LaunchPhase.STOPPING}

    @property
    def running(self) -> bool:
        """True while a launch is under way or about to be made again: it has to be stopped if its round ends."""
        return self.phase not in {LaunchPhase.PLANNED, LaunchPhase.ENDED}

    @property
    def ended(self) -> bool:
        """True once messages of subtasks do not count any more."""
        return self.phase in {LaunchPhase.STOPPING, LaunchPhase.ENDED}

    @property
    def drained(self) -> bool:
        """True once everything is in closed files, or the round needs no more of it."""
        return self.phase is LaunchPhase.WRITTEN or self.ended
