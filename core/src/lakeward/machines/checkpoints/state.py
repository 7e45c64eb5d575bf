"""What the machine `checkpoints` knows of a round: its schedule, its attempts, and the running checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from lakeward.errors import UsageError
from lakeward.machines.checkpoints.messages import Attempt, CheckpointsCommand, CheckpointsEvent
from lakeward.machines.machine import Machine, MachineState, Rules, UndoDict
from lakeward.model.settings import CheckpointSettings

if TYPE_CHECKING:
    from collections.abc import Mapping


class CheckpointPhase(MachineState):
    """The phase of a round's checkpoints."""

    IDLE = "idle"
    """No checkpoint runs."""
    CLOSING = "closing"
    """`Close` was sent to all participants; not all have acknowledged it."""
    CUTTING = "cutting"
    """All participants are closed; data events that they sent before are still in transit."""
    SNAPPING = "snapping"
    """The coordinator's gateways close and its snapshot is taken, in this very step of the loop."""
    DRAINING = "draining"
    """The snapshot is taken; not all data events that the coordinator sent before are acknowledged."""
    COLLECTING = "collecting"
    """All participants were triggered; not all parts are stored."""
    STORING = "storing"
    """`_metadata` is being written. All gateways are open."""
    ENDING = "ending"
    """The round has ended, `_metadata` is still being written; it counts unless it is superseded meanwhile."""
    ENDED = "ended"
    """The round has ended."""


class ParticipantPhase(MachineState):
    """The phase of an attempt in the running checkpoint."""

    UNKNOWN = "unknown"
    """It never registered, and no newer attempt of its subtask did."""
    NOT_PARTICIPATING = "not_participating"
    """It is alive; no checkpoint runs, or it is not part of the running one."""
    CLOSE_SENT = "close_sent"
    """`Close` was sent to it."""
    CLOSED = "closed"
    """It sends no data event."""
    TRIGGERED = "triggered"
    """`TriggerCheckpoint` was sent to it."""
    TAKEN = "taken"
    """It took its snapshot and sends again; both gateways are open."""
    STORED = "stored"
    """Its part is in the store."""
    FINISHED = "finished"
    """It finished; everything that it did is in the coordinator's part."""
    GONE = "gone"
    """It was lost or replaced."""


RUNNING = (
    CheckpointPhase.CLOSING,
    CheckpointPhase.CUTTING,
    CheckpointPhase.DRAINING,
    CheckpointPhase.COLLECTING,
)
"""A checkpoint runs and has a deadline. Once `_metadata` is being written, only the store's answer ends it."""
PARTICIPATING = (
    ParticipantPhase.CLOSE_SENT,
    ParticipantPhase.CLOSED,
    ParticipantPhase.TRIGGERED,
    ParticipantPhase.TAKEN,
    ParticipantPhase.STORED,
)
"""The phases of attempts that are part of the running checkpoint."""
ALIVE = (ParticipantPhase.NOT_PARTICIPATING, *PARTICIPATING)
_ABORTABLE = frozenset({*RUNNING, CheckpointPhase.SNAPPING})
_PARTICIPATING, _ALIVE = frozenset(PARTICIPATING), frozenset(ALIVE)


class Schedule(Struct, frozen=True):
    """When checkpoints of one round are due, and how many in a row have failed."""

    settings: CheckpointSettings
    started: float
    due: float | None
    """When the next one starts, in seconds; None: never."""
    failures: int = 0

    @classmethod
    def of(cls, settings: CheckpointSettings, now: float) -> Schedule:
        """Make the first checkpoint due one interval from now.

        Raises:
            UsageError: no checkpoint can be taken in these times.
        """
        if settings.timeout_s <= 0 or min(settings.interval_s, settings.pause_s, settings.tolerated) < 0:
            message = f"checkpoints: expected a timeout above 0 and nothing below 0, found {settings}"
            raise UsageError(message)
        return cls(settings, now, now + settings.interval_s if settings.interval_s else None)

    @property
    def deadline(self) -> float:
        """When all parts of the newest checkpoint have to be stored, in seconds."""
        return self.started + self.settings.timeout_s

    def ended(self, now: float) -> Schedule:
        """The checkpoint has completed or was aborted: the next one is due later."""
        interval = self.settings.interval_s
        due = max(self.started + interval, now + self.settings.pause_s) if interval else None
        return replace(self, due=due)


class AttemptState(Struct, frozen=True):
    """The newest attempt of a subtask."""

    key: Attempt
    received: int = 0
    """How many of its data events the coordinator has processed."""
    closed_after: int = 0
    """Number of its last data event before its gateway closed."""
    acked: int = 0
    """How many of the coordinator's data events it has processed."""
    sent_before_cut: int = 0
    """Number of the last data event that was sent to it before the coordinator's cut."""
    down_closed: bool = False
    """Whether the coordinator's gateway to it is closed."""
    newest_part: tuple[int, object] | None = None
    """The newest completed checkpoint that it is part of, and its snapshot there."""

    @property
    def has_unacked(self) -> bool:
        """True while it has not processed what was sent to it before the cut."""
        return self.acked < self.sent_before_cut


class CheckpointsState(Machine[CheckpointsEvent, CheckpointsCommand]):
    """The checkpoints of one round, and what each attempt has to do with the running one."""

    phase: CheckpointPhase
    attempt_rules: ClassVar[Rules[Any, CheckpointsCommand]]

    def __init__(self, settings: CheckpointSettings, *, now: float, latest: int = 0) -> None:
        """Start with no checkpoint, at `now` seconds.

        `latest`: the highest number used so far for a checkpoint of this round, restored ones included.
        """
        super().__init__()
        self.schedule = Schedule.of(settings, now)
        self.phase = CheckpointPhase.IDLE
        self.latest = latest
        """The highest number so far; while a checkpoint runs, its number."""
        self.attempts = UndoDict[int, AttemptState](self.undo)
        """By subtask; older attempts are gone."""
        self.subtasks: tuple[int, ...] = ()
        """Those that have registered, in order."""
        self.phases = UndoDict[Attempt, ParticipantPhase](self.undo)
        """Of the newest attempts."""
        self.begun = False
        """Whether a checkpoint has started in this launch."""
        self.completed: frozenset[int] = frozenset()
        self.snapshot: object = None
        """The coordinator's part of the running checkpoint."""
        self.parts: Mapping[Attempt, tuple[object, object]] = {}
        """The other parts of the running checkpoint, in the order in which they were stored."""
        self.step_due = False
        """A commit is to be made of the running checkpoint."""
        self.closes_files = False
        """The running checkpoint closes all files: the same for all attempts, also if it is triggered again."""
        self.step_missed = False
        """The newest checkpoint that was to close all files was aborted: the next one does not, so that one completes.

        It has to be aligned, behind all rows that wait and all that are restored. If each took too long, the round
        would fail for too many of them, and go on from the same place for ever.
        """
        self.superseded = False
        """No round will be restored from a checkpoint of this round."""

    @property
    def detail(self) -> str:
        """The newest checkpoint, for errors."""
        return f", checkpoint {self.latest}"

    @property
    def running(self) -> int | None:
        """The checkpoint that runs or is being stored, None for none."""
        return None if self.phase in {CheckpointPhase.IDLE, CheckpointPhase.ENDED} else self.latest

    @property
    def failures(self) -> int:
        """How many in a row have failed."""
        return self.schedule.failures

    @property
    def next_due(self) -> float | None:
        """When the machine next needs a `TimePassed`, in seconds; None while it waits for no time."""
        if self.phase in _ABORTABLE:
            return self.schedule.deadline
        return self.schedule.due if self.phase is CheckpointPhase.IDLE and self.any_alive else None

    @property
    def any_alive(self) -> bool:
        """Whether any attempt is alive."""
        return any(phase in _ALIVE for phase in self.phases.values())

    def alive(self) -> list[AttemptState]:
        """Return the attempts that are alive, by subtask."""
        return [one for one in map(self.attempts.__getitem__, self.subtasks) if self.phases[one.key] in _ALIVE]

    def participants(self) -> list[AttemptState]:
        """Return the attempts that participate in the running checkpoint, by subtask."""
        return [one for one in map(self.attempts.__getitem__, self.subtasks) if self.phases[one.key] in _PARTICIPATING]

    def phase_of(self, attempt: Attempt) -> ParticipantPhase:
        """Return the phase of an attempt; all but the newest of a subtask are gone."""
        newest = self.attempts.get(attempt[0])
        if newest is None or attempt[1] > newest.key[1]:
            return ParticipantPhase.UNKNOWN
        return self.phases[attempt] if attempt == newest.key else ParticipantPhase.GONE

    def change(self, attempt: AttemptState) -> None:
        """Keep what became of an attempt."""
        self.attempts[attempt.key[0]] = attempt

    def add(self, attempt: AttemptState) -> None:
        """Add a new attempt, which replaces the older one of its subtask."""
        subtask, _ = attempt.key
        if subtask in self.attempts:
            self.phases.drop(self.attempts[subtask].key)
        else:
            self.subtasks = tuple(sorted((*self.subtasks, subtask)))
        self.change(attempt)
