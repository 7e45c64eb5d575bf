"""The events and commands of the machine `launches`. A launch is one job of Spark; a round may need several."""

from __future__ import annotations

from msgspec import Struct

# --- events -----------------------------------------------------------------------------------------------------


class LaunchRequested(Struct, frozen=True, kw_only=True):
    """The round's first launch may begin."""

    now: float


class LaunchLost(Struct, frozen=True, kw_only=True):
    """The launch cannot go on: a member of its gang is lost, or a subtask of it is silent."""

    now: float
    reason: str


class LaunchFinished(Struct, frozen=True, kw_only=True):
    """Spark says that a launch is over: none of its tasks runs any more. `reason` is Spark's, empty where it has none.

    `store_asked`: it is not known yet whether the checkpoint is complete that the next launch may go on from.
    """

    now: float
    number: int
    reason: str
    store_asked: bool = False


class StoreAnswered(Struct, frozen=True, kw_only=True):
    """It is known now which checkpoint is the newest."""

    now: float


class WorkReturned(Struct, frozen=True, kw_only=True):
    """What the launch that has ended did not finish can be assigned again. `why`: of its failure, for people."""

    now: float
    why: str = ""


class PauseOver(Struct, frozen=True, kw_only=True):
    """Time has passed: it may be time for the next launch."""

    now: float


class SlotsKnown(Struct, frozen=True, kw_only=True):
    """The slots for the next launch were counted."""

    now: float


class SubtaskDeployed(Struct, frozen=True, kw_only=True):
    """A subtask was deployed."""

    now: float


class AllRead(Struct, frozen=True, kw_only=True):
    """Every split is finished or left out. `written`: and every row of them is in a closed file.

    `nothing`: nothing was read, so that the subtasks of a gang would wait for one another to write nothing.
    """

    now: float
    written: bool
    nothing: bool = False


class RoundOver(Struct, frozen=True, kw_only=True):
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


class Launch(Struct, frozen=True):
    """Launch the job, for the `number`th time, with what is unfinished."""

    number: int


class CancelLaunch(Struct, frozen=True):
    """Cancel the launch; answer with `LaunchFinished` once none of its tasks runs."""

    reason: str


class TellLost(Struct, frozen=True):
    """A launch has ended that has not finished its work, for this reason."""

    reason: str


class ReturnWork(Struct, frozen=True):
    """Return what the launch did not finish; answer with `WorkReturned`, after `AllRead` if nothing is left."""


class CountSlots(Struct, frozen=True):
    """Count the slots for the next launch; answer with `SlotsKnown`."""


class TellStarted(Struct, frozen=True):
    """A subtask of the round is deployed for the first time: Spark has slots for it."""


class TellDrained(Struct, frozen=True):
    """Everything that the round reads is in closed files; returned once."""


class TellLaunchesFailed(Struct, frozen=True):
    """The job was launched as often as it may be."""

    reason: str


class TellAgain(Struct, frozen=True):
    """The job is launched again after `pause_s`, because of `reason`."""

    reason: str
    pause_s: float


class TellOver(Struct, frozen=True):
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
