"""The events and commands of the machine `launches`. A launch is one job of Spark; a round may need several."""

from __future__ import annotations

from dataclasses import dataclass

# --- events -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequested:
    """The round's first launch may begin."""

    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchLost:
    """The launch cannot go on: a member of its gang is lost, or a subtask of it is silent."""

    now: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchFinished:
    """Spark says that a launch is over: none of its tasks runs any more. `reason` is Spark's, empty where it has none.

    `store_asked`: it is not known yet whether the checkpoint is complete that the next launch may go on from.
    """

    now: float
    number: int
    reason: str
    store_asked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAnswered:
    """It is known now which checkpoint is the newest."""

    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkReturned:
    """What the launch that has ended did not finish can be assigned again. `why`: of its failure, for people."""

    now: float
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseOver:
    """Time has passed: it may be time for the next launch."""

    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotsKnown:
    """The slots for the next launch were counted."""

    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskDeployed:
    """A subtask was deployed."""

    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AllRead:
    """Every split is finished or left out. `written`: and every row of them is in a closed file.

    `nothing`: nothing was read, so that the subtasks of a gang would wait for one another to write nothing.
    """

    now: float
    written: bool
    nothing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundOver:
    """The round has ended and needs its job no more."""

    now: float


LaunchesEvent = (
    LaunchRequested
    | LaunchLost
    | LaunchFinished
    | StoreAnswered
    | WorkReturned
    | PauseOver
    | SlotsKnown
    | SubtaskDeployed
    | AllRead
    | RoundOver
)

# --- commands ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Launch:
    """Launch the job, for the `number`th time, with what is unfinished."""

    number: int


@dataclass(frozen=True, slots=True)
class CancelLaunch:
    """Cancel the launch; answer with `LaunchFinished` once none of its tasks runs."""

    reason: str


@dataclass(frozen=True, slots=True)
class TellLost:
    """A launch has ended that has not finished its work, for this reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class ReturnWork:
    """Return what the launch did not finish; answer with `WorkReturned`, after `AllRead` if nothing is left."""


@dataclass(frozen=True, slots=True)
class CountSlots:
    """Count the slots for the next launch; answer with `SlotsKnown`."""


@dataclass(frozen=True, slots=True)
class TellStarted:
    """A subtask of the round is deployed for the first time: Spark has slots for it."""


@dataclass(frozen=True, slots=True)
class TellDrained:
    """Everything that the round reads is in closed files; returned once."""


@dataclass(frozen=True, slots=True)
class TellLaunchesFailed:
    """The job was launched as often as it may be."""

    reason: str


@dataclass(frozen=True, slots=True)
class TellAgain:
    """The job is launched again after `pause_s`, because of `reason`."""

    reason: str
    pause_s: float


@dataclass(frozen=True, slots=True)
class TellOver:
    """None of the round's tasks runs any more, and none is launched again; returned once."""


LaunchesCommand = (
    Launch
    | CancelLaunch
    | TellLost
    | ReturnWork
    | CountSlots
    | TellStarted
    | TellDrained
    | TellLaunchesFailed
    | TellAgain
    | TellOver
)
