"""A round's job is launched until everything that the round reads is in closed files, or often enough.

A launch that is lost is cancelled, and the next one follows once none of its tasks runs. What it did not finish is
returned first, which waits for the store where the next launch goes on from the newest checkpoint. A launch after the
first waits for its pause, and for the number of slots.
"""

from __future__ import annotations

from msgspec import Struct

from lakeward.machines.machine import AtTime, Machine, MachineState, Rule, Rules
from lakeward.model.backoff import NO_PAUSES, RetryPauses

# --- events -----------------------------------------------------------------------------------------------------


class LaunchRequested(AtTime, frozen=True):
    """The round's first launch may begin."""


class LaunchLost(AtTime, frozen=True, kw_only=True):
    """The launch cannot go on: a member of its gang is lost, or a subtask of it is silent."""

    reason: str


class LaunchFinished(AtTime, frozen=True, kw_only=True):
    """Spark says that a launch is over: none of its tasks runs any more. `reason` is Spark's, empty where it has none.

    `store_asked`: it is not known yet whether the checkpoint is complete that the next launch may go on from.
    """

    number: int
    reason: str
    store_asked: bool = False


class StoreAnswered(AtTime, frozen=True):
    """It is known now which checkpoint is the newest."""


class WorkReturned(AtTime, frozen=True, kw_only=True):
    """What the launch that has ended did not finish can be assigned again. `why`: of its failure, for people."""

    why: str = ""


class PauseOver(AtTime, frozen=True):
    """Time has passed: it may be time for the next launch."""


class SlotsKnown(AtTime, frozen=True):
    """The slots for the next launch were counted."""


class SubtaskDeployed(AtTime, frozen=True):
    """A subtask was deployed."""


class AllRead(AtTime, frozen=True, kw_only=True):
    """Every split is finished or left out. `written`: and every row of them is in a closed file.

    `nothing`: nothing was read, so that the subtasks of a gang would wait for one another to write nothing.
    """

    written: bool
    nothing: bool = False


class RoundOver(AtTime, frozen=True):
    """The round has ended and needs its job no more."""


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


PLANNED, RUNNING, ENDING, WRITTEN = LaunchPhase.PLANNED, LaunchPhase.RUNNING, LaunchPhase.ENDING, LaunchPhase.WRITTEN
STOPPING, ASKING, RETURNING = LaunchPhase.STOPPING, LaunchPhase.ASKING, LaunchPhase.RETURNING
PAUSED, COUNTING, ENDED = LaunchPhase.PAUSED, LaunchPhase.COUNTING, LaunchPhase.ENDED
Commands = tuple[LaunchesCommand, ...]
UNFINISHED = "its subtasks ended with splits unfinished"

# --- conditions -----------------------------------------------------------------------------------------------------


def is_to_pause(launches: LaunchesState, _: WorkReturned) -> bool:
    """The next launch is to wait."""
    return launches.pauses.after(launches.number) > 0


def is_time(launches: LaunchesState, event: PauseOver) -> bool:
    """The pause before the next launch is over."""
    return launches.paused_until is not None and event.now >= launches.paused_until


def is_written_or_nothing(launches: LaunchesState, event: AllRead) -> bool:
    """No subtask is left to write anything."""
    return event.written or has_nothing_to_write(launches, event)


def has_nothing_to_write(launches: LaunchesState, event: AllRead) -> bool:
    """Nothing was read, and no subtask is at work."""
    return event.nothing and not launches.at_work


# --- what is done ---------------------------------------------------------------------------------------------------


def launch(launches: LaunchesState, _: LaunchesEvent) -> Commands:
    """Launch it for the next time."""
    launches.number += 1
    launches.reason = ""
    return (Launch(launches.number),)


def lose(launches: LaunchesState, event: LaunchLost) -> Commands:
    """Cancel the launch, and remember why."""
    launches.reason = event.reason
    return (CancelLaunch(event.reason),)


def ask(launches: LaunchesState, event: LaunchFinished) -> Commands:
    """Say that the launch has ended; what it did not finish is returned once the store has answered."""
    launches.reason = launches.reason or event.reason or UNFINISHED
    launches.at_work = False
    return (TellLost(launches.reason),)


def give_up(launches: LaunchesState, event: WorkReturned) -> Commands:
    """Say that it was tried often enough."""
    why = event.why or launches.reason
    return (TellLaunchesFailed(f"job launched {launches.number} times, the last time: {why}"),)


def pause(launches: LaunchesState, event: WorkReturned) -> Commands:
    """Wait before the next launch."""
    pause_s = launches.pauses.after(launches.number)
    launches.paused_until = event.now + pause_s
    return (TellAgain(event.why or launches.reason, pause_s),)


def launch_again(launches: LaunchesState, event: WorkReturned) -> Commands:
    """Launch it again without a pause."""
    return (TellAgain(event.why or launches.reason, 0.0),)


def end_pause(launches: LaunchesState, _: LaunchesEvent) -> Commands:
    """Wait for no time any more."""
    launches.paused_until = None
    return ()


def work(launches: LaunchesState, _: SubtaskDeployed) -> Commands:
    """The launch has a subtask at work."""
    launches.started = launches.at_work = True
    return ()


RULES: Rules[LaunchesState, LaunchesCommand] = Rules(
    "launches",
    LaunchPhase,
    Rule(PLANNED, LaunchRequested, to=RUNNING, do=launch),
    Rule(
        (RUNNING, ENDING),
        SubtaskDeployed,
        when=lambda launches, _: not launches.started,
        do=work,
        then=(TellStarted(),),
    ),
    Rule((RUNNING, ENDING, WRITTEN, STOPPING), SubtaskDeployed, do=work),
    # --- a launch is lost, or ends by itself ----------------------------------------------------------------------
    Rule(RUNNING, LaunchLost, to=ENDING, do=lose),
    Rule((ENDING, WRITTEN, STOPPING, ASKING, RETURNING, PAUSED, COUNTING, ENDED), LaunchLost),
    Rule(tuple(LaunchPhase), LaunchFinished, when=lambda launches, event: event.number != launches.number),
    Rule((RUNNING, ENDING), LaunchFinished, when=lambda _, event: event.store_asked, to=ASKING, do=ask),
    Rule((RUNNING, ENDING), LaunchFinished, to=RETURNING, do=ask, then=(ReturnWork(),)),
    Rule((WRITTEN, STOPPING), LaunchFinished, to=ENDED, do=end_pause, then=(TellOver(),)),
    Rule(ASKING, StoreAnswered, to=RETURNING, then=(ReturnWork(),)),
    Rule((PLANNED, RUNNING, ENDING, WRITTEN, STOPPING, RETURNING, PAUSED, COUNTING, ENDED), StoreAnswered),
    # --- the next one ---------------------------------------------------------------------------------------------
    Rule(RETURNING, WorkReturned, when=lambda launches, _: launches.number >= launches.limit, to=ENDED, do=give_up),
    Rule(RETURNING, WorkReturned, when=is_to_pause, to=PAUSED, do=pause),
    Rule(RETURNING, WorkReturned, to=COUNTING, do=launch_again, then=(CountSlots(),)),
    Rule(ENDED, WorkReturned),
    Rule(PAUSED, PauseOver, when=is_time, to=COUNTING, do=end_pause, then=(CountSlots(),)),
    Rule(tuple(LaunchPhase), PauseOver),
    Rule(COUNTING, SlotsKnown, to=RUNNING, do=launch),
    Rule(ENDED, SlotsKnown),
    # --- nothing is left to do ------------------------------------------------------------------------------------
    Rule((RUNNING, ENDING), AllRead, when=lambda _, event: event.written, to=WRITTEN, then=(TellDrained(),)),
    Rule(
        (RUNNING, ENDING),
        AllRead,
        when=has_nothing_to_write,
        to=WRITTEN,
        then=(TellDrained(), CancelLaunch("nothing is left to read or to write")),
    ),
    Rule(
        (PLANNED, ASKING, RETURNING, PAUSED, COUNTING),
        AllRead,
        when=is_written_or_nothing,
        to=ENDED,
        do=end_pause,
        then=(TellDrained(), TellOver()),
    ),
    Rule(tuple(LaunchPhase), AllRead),
    # --- the round is over ----------------------------------------------------------------------------------------
    Rule((RUNNING, ENDING, WRITTEN, STOPPING), RoundOver, to=STOPPING, then=(CancelLaunch("its round is over"),)),
    Rule((PLANNED, ASKING, RETURNING, PAUSED, COUNTING), RoundOver, to=ENDED, do=end_pause, then=(TellOver(),)),
    Rule(ENDED, RoundOver),
)


class Launches(LaunchesState):
    """The machine of one round's launches."""

    rules = RULES
