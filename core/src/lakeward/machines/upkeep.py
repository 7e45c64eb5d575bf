"""Upkeep of tables in jobs of their own, each in slots that no round has; rounds come first.

A table that is due waits for a free slot, then the lake is asked what there is to do. The job gets as many tasks as
slots are free. If rounds need more slots than are left, the newest job is cancelled, and its table is due again. What a
job has written is committed, or discarded; after a commit the lake is asked again, until it finds nothing to do.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from lakeward.machines.machine import Machine, MachineState, Rule, Rules, UndoDict
from lakeward.model.backoff import backoff_s

# --- events -----------------------------------------------------------------------------------------------------


class _AtTime(Struct, frozen=True, kw_only=True):
    now: float


class _OfTable(_AtTime, frozen=True, kw_only=True):
    table_id: int


class TableChanged(_OfTable, frozen=True):
    """The table has changed: the lake is to be asked what is due."""


class UpkeepPlanned(_OfTable, frozen=True, kw_only=True):
    """The lake has planned so many tasks."""

    tasks: int


class TasksEnded(_OfTable, frozen=True, kw_only=True):
    """The job is over; `reason` says why it failed, None if it did not."""

    reason: str | None = None


class UpkeepCommitted(_OfTable, frozen=True, kw_only=True):
    """The lake has answered. `landed`: the files are replaced; False where that can never be."""

    landed: bool


class UpkeepDiscarded(_OfTable, frozen=True):
    """What the job has written is deleted, or left to the next plan."""


class UpkeepFailed(_OfTable, frozen=True, kw_only=True):
    """The lake could not plan or commit, or it is unknown whether it has."""

    reason: str


class TableLeft(_OfTable, frozen=True):
    """No more upkeep of this table: it was dropped, or the service ends."""


class SlotsFree(_AtTime, frozen=True, kw_only=True):
    """So many slots are there that no round has; less than none where rounds wait for some."""

    free: int


class UpkeepTimePassed(_AtTime, frozen=True):
    """Time has passed: a table that failed may be tried again."""


class UpkeepStopped(_AtTime, frozen=True):
    """The service ends: no more upkeep of any table."""


class SlotsGiven(_OfTable, frozen=True, kw_only=True):
    """Of the machine itself: so many slots are free for the table."""

    slots: int


class SlotsTaken(_OfTable, frozen=True):
    """Of the machine itself: rounds need the slots of the table's job."""


class UpkeepRetryDue(_OfTable, frozen=True):
    """Of the machine itself: the pause of the table may be over."""


UpkeepEvent = (
    TableChanged
    | UpkeepPlanned
    | TasksEnded
    | UpkeepCommitted
    | UpkeepDiscarded
    | UpkeepFailed
    | TableLeft
    | SlotsFree
    | UpkeepTimePassed
    | UpkeepStopped
)
_TableEvent = (
    TableChanged
    | UpkeepPlanned
    | TasksEnded
    | UpkeepCommitted
    | UpkeepDiscarded
    | UpkeepFailed
    | TableLeft
    | SlotsGiven
    | SlotsTaken
    | UpkeepRetryDue
)

# --- commands ---------------------------------------------------------------------------------------------------


class PlanUpkeep(Struct, frozen=True):
    """Ask the lake what is due, in at most so many tasks; answer with `UpkeepPlanned` or `UpkeepFailed`."""

    table_id: int
    most: int


class LaunchUpkeep(Struct, frozen=True):
    """Launch a job of the plan's first tasks, so many; answer with `TasksEnded`."""

    table_id: int
    tasks: int


class CancelUpkeep(Struct, frozen=True):
    """Cancel the table's job; `TasksEnded` still comes."""

    table_id: int
    reason: str


class CommitUpkeep(Struct, frozen=True):
    """Commit what the job has done; answer with `UpkeepCommitted` or `UpkeepFailed`."""

    table_id: int


class DiscardUpkeep(Struct, frozen=True):
    """Delete what the job has written; answer with `UpkeepDiscarded`, also where it failed."""

    table_id: int


class TellUpkeepAgain(Struct, frozen=True):
    """The table's upkeep is tried again after `pause_s` seconds, because of `reason`."""

    table_id: int
    reason: str
    pause_s: float


UpkeepCommand = PlanUpkeep | LaunchUpkeep | CancelUpkeep | CommitUpkeep | DiscardUpkeep | TellUpkeepAgain


class UpkeepPhase(MachineState):
    """The phase of one table's upkeep."""

    QUIET = "quiet"
    """Nothing is due."""
    DUE = "due"
    """It waits for a free slot."""
    PLANNING = "planning"
    RUNNING = "running"
    CANCELLING = "cancelling"
    """The job was cancelled, and has not ended."""
    COMMITTING = "committing"
    DISCARDING = "discarding"
    """What the job has written is being deleted."""
    PAUSED = "paused"
    """It failed, and waits for its time."""


class TableUpkeep(Struct, frozen=True):
    """The upkeep of one table that is not quiet."""

    since: float
    """When it became due: who waits longest is first."""
    slots: int = 0
    """Those of its job, while that runs."""
    launch: int = 0
    """Number of its job among all: the newest is cancelled first."""
    failures: int = 0
    """In a row."""
    failure: str = ""
    """Why the job that is being discarded failed; empty where it did not."""
    again_at: float = 0.0
    asked_again: bool = False
    """The table has changed since the lake was asked."""
    leaving: bool = False
    """No further job is launched."""


class UpkeepState(Machine[UpkeepEvent, UpkeepCommand]):
    """The upkeep of all tables."""

    def __init__(self, first_s: float, most_s: float) -> None:
        """Begin with nothing due and no slot; what failed is tried again after `first_s` to `most_s` seconds."""
        super().__init__()
        self.phases: UndoDict[int, UpkeepPhase] = UndoDict(self.undo)
        self.tables: UndoDict[int, TableUpkeep] = UndoDict(self.undo)
        self.free = 0
        self.stopping = False
        self._launches = 0
        self._first_s = first_s
        self._most_s = most_s

    def phase_of(self, table_id: int) -> UpkeepPhase:
        """Return the phase of a table."""
        return self.phases.get(table_id, UpkeepPhase.QUIET)

    @property
    def under_way(self) -> frozenset[int]:
        """The tables of which something is under way: a call of the lake, or a job."""
        resting = {UpkeepPhase.DUE, UpkeepPhase.PAUSED}
        return frozenset(table_id for table_id, phase in self.phases.items() if phase not in resting)

    @property
    def waits(self) -> bool:
        """Whether a table waits for a slot."""
        return UpkeepPhase.DUE in self.phases.values()

    def is_retry_due(self, now: float) -> bool:
        """Return whether the pause of a table that failed is over."""
        paused = (key for key, phase in self.phases.items() if phase is UpkeepPhase.PAUSED)
        return any(self.tables[key].again_at <= now for key in paused)

    # --- what the rules use ---------------------------------------------------------------------------------

    def room(self, besides: int | None = None) -> int:
        """Return how many slots are free, the table's own among them; each table that is planned gets one."""
        taken = sum(one.slots for table_id, one in self.tables.items() if table_id != besides)
        planning = sum(phase is UpkeepPhase.PLANNING for table_id, phase in self.phases.items() if table_id != besides)
        return self.free - taken - planning

    def change(self, table_id: int, **fields: object) -> None:
        """Replace fields of a table."""
        self.tables[table_id] = replace(self.tables[table_id], **fields)

    def launch(self, event: UpkeepPlanned) -> tuple[UpkeepCommand, ...]:
        """Launch as many tasks as there is room for."""
        tasks = min(event.tasks, self.room(besides=event.table_id))
        self._launches += 1
        self.change(event.table_id, slots=tasks, launch=self._launches)
        return (LaunchUpkeep(event.table_id, tasks),)

    def pause(self, table_id: int, now: float, reason: str) -> tuple[UpkeepCommand, ...]:
        """Try a table again later."""
        failures = self.tables[table_id].failures + 1
        pause_s = backoff_s(failures, self._first_s, self._most_s)
        self.change(table_id, failures=failures, failure="", slots=0, again_at=now + pause_s)
        return (TellUpkeepAgain(table_id, reason, pause_s),)

    # --- one step -------------------------------------------------------------------------------------------

    def take(self, event: UpkeepEvent) -> tuple[UpkeepCommand, ...]:
        """See `Machine`; afterwards slots are taken back, or given."""
        commands: tuple[UpkeepCommand, ...] = ()
        if isinstance(event, SlotsFree):
            self.free = event.free
        elif isinstance(event, UpkeepTimePassed):
            for table_id in [key for key, phase in self.phases.items() if phase is UpkeepPhase.PAUSED]:
                commands += self.step_table(table_id, UpkeepRetryDue(now=event.now, table_id=table_id))
        elif isinstance(event, UpkeepStopped):
            self.stopping = True
            for table_id in tuple(self.phases):
                commands += self.step_table(table_id, TableLeft(now=event.now, table_id=table_id))
        else:
            commands = self.step_table(event.table_id, event)
        return commands + self._take_back(event.now) + self._give(event.now)

    def step_table(self, table_id: int, event: _TableEvent) -> tuple[UpkeepCommand, ...]:
        """Take an event of one table."""
        return self.rules.step(self, self.phases, table_id, event, UpkeepPhase.QUIET)

    def _take_back(self, now: float) -> tuple[UpkeepCommand, ...]:
        """Cancel jobs, the newest first, until those that are left fit."""
        commands: tuple[UpkeepCommand, ...] = ()
        running = [key for key, phase in self.phases.items() if phase is UpkeepPhase.RUNNING]
        excess = sum(self.tables[key].slots for key in running) - max(0, self.free)
        for table_id in sorted(running, key=lambda key: self.tables[key].launch, reverse=True):
            if excess <= 0:
                break
            excess -= self.tables[table_id].slots
            commands += self.step_table(table_id, SlotsTaken(now=now, table_id=table_id))
        return commands

    def _give(self, now: float) -> tuple[UpkeepCommand, ...]:
        commands: tuple[UpkeepCommand, ...] = ()
        due = [key for key, phase in self.phases.items() if phase is UpkeepPhase.DUE]
        for table_id in sorted(due, key=lambda key: (self.tables[key].since, key)):
            if (room := self.room()) > 0:
                commands += self.step_table(table_id, SlotsGiven(now=now, table_id=table_id, slots=room))
        return commands


QUIET, DUE, PLANNING, RUNNING = UpkeepPhase.QUIET, UpkeepPhase.DUE, UpkeepPhase.PLANNING, UpkeepPhase.RUNNING
CANCELLING, COMMITTING = UpkeepPhase.CANCELLING, UpkeepPhase.COMMITTING
DISCARDING, PAUSED = UpkeepPhase.DISCARDING, UpkeepPhase.PAUSED
_UNDER_WAY = (PLANNING, RUNNING, CANCELLING, COMMITTING, DISCARDING)
Commands = tuple[UpkeepCommand, ...]
VOID = "the files that it replaces are gone, or others have committed in its way"

# --- conditions -----------------------------------------------------------------------------------------------------


def is_leaving(upkeep: UpkeepState, event: _OfTable) -> bool:
    """No further job of the table is launched."""
    return upkeep.tables[event.table_id].leaving


def has_nothing(upkeep: UpkeepState, event: UpkeepPlanned) -> bool:
    """Nothing is to be done, and the table has not changed meanwhile."""
    return event.tasks == 0 and (is_leaving(upkeep, event) or not upkeep.tables[event.table_id].asked_again)


def has_room(upkeep: UpkeepState, event: UpkeepPlanned) -> bool:
    """A job may be launched."""
    return not is_leaving(upkeep, event) and upkeep.room(besides=event.table_id) > 0


def has_failed(upkeep: UpkeepState, event: _OfTable) -> bool:
    """What is discarded comes of a failure."""
    return bool(upkeep.tables[event.table_id].failure)


def is_time(upkeep: UpkeepState, event: UpkeepRetryDue) -> bool:
    """The pause of the table is over."""
    return upkeep.tables[event.table_id].again_at <= event.now


# --- what is done ---------------------------------------------------------------------------------------------------


def become_due(upkeep: UpkeepState, event: TableChanged) -> Commands:
    """Wait for a slot, unless the service ends."""
    upkeep.tables[event.table_id] = TableUpkeep(since=event.now)
    return ()


def ask_again(upkeep: UpkeepState, event: _OfTable) -> Commands:
    """Ask the lake once more when it has answered."""
    upkeep.change(event.table_id, asked_again=True)
    return ()


def plan(upkeep: UpkeepState, event: SlotsGiven) -> Commands:
    """Ask the lake what is due."""
    upkeep.change(event.table_id, asked_again=False)
    return (PlanUpkeep(event.table_id, event.slots),)


def wait_again(upkeep: UpkeepState, event: _OfTable) -> Commands:
    """Wait for a slot again, behind all who wait."""
    upkeep.change(event.table_id, since=event.now, slots=0, failures=0, asked_again=False)
    return ()


def keep_place(upkeep: UpkeepState, event: _OfTable) -> Commands:
    """Wait for a slot again, at the place that it had."""
    upkeep.change(event.table_id, slots=0)
    return ()


def rest(upkeep: UpkeepState, event: _OfTable) -> Commands:
    """Forget the table until it is due again."""
    upkeep.tables.drop(event.table_id)
    upkeep.phases.drop(event.table_id)
    return ()


def leave(upkeep: UpkeepState, event: _OfTable) -> Commands:
    """Launch no further job of it."""
    upkeep.change(event.table_id, leaving=True)
    return ()


def cancel_to_leave(upkeep: UpkeepState, event: TableLeft) -> Commands:
    """Cancel the job for good."""
    leave(upkeep, event)
    return (CancelUpkeep(event.table_id, "the service ends, or the table was dropped"),)


def cancel_for_round(_: UpkeepState, event: SlotsTaken) -> Commands:
    """Cancel the job; its table stays due."""
    return (CancelUpkeep(event.table_id, "a round needs its slots"),)


def commit(upkeep: UpkeepState, event: TasksEnded) -> Commands:
    """Commit what the job has done; it has no slots any more."""
    upkeep.change(event.table_id, slots=0)
    return (CommitUpkeep(event.table_id),)


def discard_failed(upkeep: UpkeepState, event: TasksEnded) -> Commands:
    """Delete what a job has written that failed by itself."""
    upkeep.change(event.table_id, slots=0, failure=event.reason or "its job failed")
    return (DiscardUpkeep(event.table_id),)


def discard_void(upkeep: UpkeepState, event: UpkeepCommitted) -> Commands:
    """Delete what a job has written in vain."""
    upkeep.change(event.table_id, failure=VOID)
    return (DiscardUpkeep(event.table_id),)


def discard(upkeep: UpkeepState, event: _OfTable) -> Commands:
    """Delete what a job has written that was cancelled."""
    upkeep.change(event.table_id, slots=0)
    return (DiscardUpkeep(event.table_id),)


def pause_failed(upkeep: UpkeepState, event: UpkeepFailed) -> Commands:
    """Try it later: what was written stays until the next plan."""
    return upkeep.pause(event.table_id, event.now, event.reason)


def pause_discarded(upkeep: UpkeepState, event: UpkeepDiscarded) -> Commands:
    """Try it later."""
    return upkeep.pause(event.table_id, event.now, upkeep.tables[event.table_id].failure)


RULES: Rules[UpkeepState, UpkeepCommand] = Rules(
    "upkeep",
    UpkeepPhase,
    # --- it is due ------------------------------------------------------------------------------------------------
    Rule(QUIET, TableChanged, when=lambda upkeep, _: upkeep.stopping, do=rest),
    Rule(QUIET, TableChanged, to=DUE, do=become_due),
    Rule(_UNDER_WAY, TableChanged, do=ask_again),
    Rule((DUE, PAUSED), TableChanged),
    Rule(DUE, SlotsGiven, to=PLANNING, do=plan),
    # --- what is to be done ---------------------------------------------------------------------------------------
    Rule(PLANNING, UpkeepPlanned, when=has_nothing, to=QUIET, do=rest),
    Rule(PLANNING, UpkeepPlanned, when=lambda _, event: event.tasks == 0, to=DUE, do=wait_again),
    Rule(PLANNING, UpkeepPlanned, when=has_room, to=RUNNING, do=lambda upkeep, event: upkeep.launch(event)),
    Rule(PLANNING, UpkeepPlanned, to=DISCARDING, do=discard),
    # --- its job --------------------------------------------------------------------------------------------------
    Rule(RUNNING, SlotsTaken, to=CANCELLING, do=cancel_for_round),
    Rule((RUNNING, CANCELLING), TasksEnded, when=lambda _, event: event.reason is None, to=COMMITTING, do=commit),
    Rule(RUNNING, TasksEnded, to=DISCARDING, do=discard_failed),
    Rule(CANCELLING, TasksEnded, to=DISCARDING, do=discard),
    # --- what became of it ----------------------------------------------------------------------------------------
    Rule(COMMITTING, UpkeepCommitted, when=lambda _, event: not event.landed, to=DISCARDING, do=discard_void),
    Rule(COMMITTING, UpkeepCommitted, when=is_leaving, to=QUIET, do=rest),
    Rule(COMMITTING, UpkeepCommitted, to=DUE, do=wait_again),
    Rule((PLANNING, COMMITTING), UpkeepFailed, when=is_leaving, to=QUIET, do=rest),
    Rule((PLANNING, COMMITTING), UpkeepFailed, to=PAUSED, do=pause_failed),
    Rule(DISCARDING, UpkeepDiscarded, when=is_leaving, to=QUIET, do=rest),
    Rule(DISCARDING, UpkeepDiscarded, when=has_failed, to=PAUSED, do=pause_discarded),
    Rule(DISCARDING, UpkeepDiscarded, to=DUE, do=keep_place),
    Rule(PAUSED, UpkeepRetryDue, when=is_time, to=DUE, do=keep_place),
    Rule(PAUSED, UpkeepRetryDue),
    # --- no more of it --------------------------------------------------------------------------------------------
    Rule((QUIET, DUE, PAUSED), TableLeft, to=QUIET, do=rest),
    Rule(RUNNING, TableLeft, to=CANCELLING, do=cancel_to_leave),
    Rule((PLANNING, CANCELLING, COMMITTING, DISCARDING), TableLeft, do=leave),
)


class TablesUpkeep(UpkeepState):
    """The machine of the upkeep of all tables."""

    rules = RULES
