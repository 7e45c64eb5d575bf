"""What the machine `rounds` knows: assigned tables, the open heartbeat, pauses and targets."""

from __future__ import annotations

from heapq import nsmallest
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from lakeward.machines.machine import Machine, MachineState, Rules, UndoDict
from lakeward.machines.rounds.messages import RoundsCommand, RoundsEvent
from lakeward.model.tables import TablePath
from lakeward.model.tiering import HeartbeatRequest, TableAssignment, TableEpoch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.model.settings import ServiceSettings

ONCE_ATTEMPTS = 3
"""So often a table is tried while the service serves until its targets are reached."""
REPORT_ATTEMPTS_WHILE_STOPPING = 2
"""A report that failed so often is given up when the service stops: the source's timeout assigns the table anew."""
COMMITS_MOST = 32
"""So many rounds commit, or wait to, beside those that work: more slow commits are the trouble of the whole lake."""


class Phase(MachineState):
    """The state of a table."""

    ABSENT = "absent"
    """Not assigned to this service; `Rounds.tables` never shows it."""
    WAITING = "waiting"
    """Assigned, without a round."""
    OPENING = "opening"
    """The lake table is opened and stamped, buckets are listed, splits enumerated."""
    LEASING = "leasing"
    """Its snapshots are acquired and verified."""
    RUNNING = "running"
    """The journal is written; the Spark job runs."""
    SETTLING = "settling"
    """All splits are done; the commit waits for a fresh renewal."""
    COMMITTING = "committing"
    """Prepare, lake commit, source commit."""
    REPORTING = "reporting"
    """Finished; the next heartbeat reports it."""
    BACKOFF = "backoff"
    """Failed; stays assigned and waits until `retry_at`."""
    SUSPENDED = "suspended"
    """Failed permanently; stays assigned and waits for a person or for a restart."""
    PAUSED = "paused"
    """A person paused it; stays assigned."""
    RETURNING = "returning"
    """The service stops; the next heartbeat gives the table back (reports it as failed)."""


class ServicePhase(MachineState):
    """The state of the service."""

    STARTING = "starting"
    """No `Tick` yet: nothing is sent and nothing opened."""
    SERVING = "serving"
    STOPPING = "stopping"
    STOPPED = "stopped"


class HeartbeatPhase(MachineState):
    """The state of the heartbeat."""

    RESTING = "resting"
    UNDER_WAY = "under_way"


ACTIVE = (Phase.OPENING, Phase.LEASING, Phase.RUNNING, Phase.SETTLING, Phase.COMMITTING)
"""The phases of an open round."""
REPORTED = (Phase.REPORTING, Phase.RETURNING)
"""The phases that end with the answer of a heartbeat."""
_ACTIVE = frozenset(ACTIVE)
_URGENT = frozenset({*REPORTED, Phase.SETTLING})
"""A table that has a report to send, or a round that must be renewed before it may commit."""


class TableStatus(Struct, frozen=True):
    """One assigned table, for people and for the state file."""

    assignment: TableAssignment
    phase: Phase
    deadline: float
    attempt: int
    renewed_at: float
    retry_at: float | None
    reason: str


class TieringTable(Struct, frozen=True):
    """One assigned table. Times in seconds on the holder's clock."""

    assignment: TableAssignment
    deadline: float
    """When its promised freshness will be missed."""
    renewed_at: float
    """When the newest heartbeat that renewed it was sent: never later than the time that the source counts from."""
    attempt: int = 0
    """Tries since the last success."""
    stale_rounds: int = 0
    """Rounds in a row that lost their snapshots."""
    failures: int = 0
    """Failures in a row, each with a success of another table since the one before it."""
    served_before: int = 0
    """`RoundsState.served` when it was assigned, succeeded last, or when its last failure was counted."""
    retry_at: float | None = None
    finish_by: float | None = None
    """When the round's maximum duration is over; None until a subtask is deployed, and once it finishes early."""
    finishing_early: bool = False
    """`FinishRoundEarly` was sent."""
    overran: bool = False
    """It finishes early because its maximum duration has passed: more rows are waiting."""
    failing: bool = False
    """A split of its round has failed more than once, and is not read yet."""
    left_out: str = ""
    """Why splits failed that its round has left out, empty where it has left out none of those."""
    queued_at: float = 0.0
    """When the pause after its last failure is over: it waits behind the tables that are due before."""
    forced: bool = False
    """Report it as to be assigned again at once."""
    report_failures: int = 0
    reason: str = ""

    @property
    def epoch(self) -> TableEpoch:
        """The table's epoch as a heartbeat contains it."""
        return TableEpoch(self.assignment.table_id, self.assignment.epoch, self.assignment.coordinator_epoch)

    def renewed(self, at: float) -> TieringTable:
        """Return the table, renewed by a heartbeat that was sent at a time; an earlier one changes nothing."""
        return replace(self, renewed_at=at) if at > self.renewed_at else self

    def without_round(self, *, reason: str = "", retry_at: float | None = None) -> TieringTable:
        """Return the table with everything of its round reset."""
        return replace(
            self,
            reason=reason,
            retry_at=retry_at,
            finish_by=None,
            finishing_early=False,
            overran=False,
            failing=False,
            left_out="",
            forced=False,
        )

    def succeeded(self, served: int, *, forced: bool) -> TieringTable:
        """Return the table after a round that succeeded; `served` counts those of all tables."""
        done = replace(self.without_round(), attempt=0, stale_rounds=0, failures=0, queued_at=0.0)
        return replace(done, served_before=served, forced=forced, report_failures=0)

    def resumed(self) -> TieringTable:
        """Return the table after a person has resumed it."""
        return replace(self.without_round(reason=self.reason), failures=0, queued_at=0.0)

    def status(self, phase: Phase) -> TableStatus:
        """Return the public status."""
        return TableStatus(
            self.assignment, phase, self.deadline, self.attempt, self.renewed_at, self.retry_at, self.reason
        )


class Target(Struct, frozen=True):
    """One table that `once` waits for."""

    reached: bool = False
    failed: bool = False
    reason: str = ""


class SentHeartbeat(Struct, frozen=True):
    """The open heartbeat, and when it was sent."""

    request: HeartbeatRequest
    at: float


class RoundsState(Machine[RoundsEvent, RoundsCommand]):
    """Everything that the machine keeps between two events; `phase` is that of the service."""

    phase: ServicePhase
    heartbeat_rules: ClassVar[Rules[Any, RoundsCommand]]
    table_rules: ClassVar[Rules[Any, RoundsCommand]]
    working: ClassVar[frozenset[Phase]] = frozenset({Phase.OPENING, Phase.LEASING, Phase.RUNNING})
    """The phases in which a round counts for `service.rounds`; one that commits, or waits to, needs none of Spark."""

    def __init__(self, settings: ServiceSettings, *, once: bool = False, once_attempts: int = ONCE_ATTEMPTS) -> None:
        """Start without tables. `once`: serve until every target is reached, then stop.

        `once_attempts`: so often a table is tried with `once`.
        """
        super().__init__()
        self.settings = settings
        self.once = once
        self.once_attempts = once_attempts
        self.phase = ServicePhase.STARTING
        self.heartbeat = HeartbeatPhase.RESTING
        self.assigned = UndoDict[int, TieringTable](self.undo)
        """By table id."""
        self.phases = UndoDict[int, Phase](self.undo)
        """Of the same tables."""
        self.sent: SentHeartbeat | None = None
        """The open heartbeat, None while there is none."""
        self.poll_at = 0.0
        """When to request a table again."""
        self.no_heartbeat_before = 0.0
        """Set after a heartbeat that failed."""
        self.heartbeat_failures = 0
        self.served = 0
        """Rounds that succeeded so far, of all tables."""
        self.paused: frozenset[TablePath] = frozenset()
        """What a person has paused, assigned or not."""
        self.targets: Mapping[TablePath, Target] | None = None
        """For `once`; None until they are known."""
        self.timed_out = False
        """`StopTimedOut` came before."""
        self.now = 0.0
        """When the last event happened."""
        self._tables: tuple[TableStatus, ...] | None = None
        self._next_due: tuple[float | None] | None = None
        """Both are kept since the last step, None until first read."""
        self._renewed: Mapping[TableAssignment, float] | None = None
        """Kept since a table was last assigned, renewed or forgotten, None until first read."""

    @property
    def tables(self) -> tuple[TableStatus, ...]:
        """All assigned tables, ordered by table id."""
        if self._tables is None:
            tables = sorted(self.assigned.items())
            self._tables = tuple(table.status(self.phases[table_id]) for table_id, table in tables)
        return self._tables

    @property
    def renewed(self) -> Mapping[TableAssignment, float]:
        """When each assigned table was last renewed. It is never changed: after a renewal there is another one."""
        if self._renewed is None:
            self._renewed = {table.assignment: table.renewed_at for table in self.assigned.values()}
        return self._renewed

    @property
    def next_due(self) -> float | None:
        """When the next `Tick` has something to do, None if only an event can change anything."""
        if self._next_due is None:
            self._next_due = (self._compute_next_due(),)
        return self._next_due[0]

    def _compute_next_due(self) -> float | None:
        if self.phase is ServicePhase.STARTING:
            return 0.0
        due = [at for table in self.assigned.values() for at in (table.retry_at, table.finish_by) if at is not None]
        due += [at for at in (self.next_yield(self.now), self.heartbeat_due()) if at is not None]
        return min(due, default=None)

    @property
    def queue(self) -> tuple[int, ...]:
        """The ids of the tables that wait for a round, the one that is opened next first."""
        return tuple(table.assignment.table_id for table in self.waiting())

    @property
    def stopping(self) -> bool:
        """True after `StopRequested`, or once every target of `once` is settled."""
        return self.phase is ServicePhase.STOPPING or self.phase is ServicePhase.STOPPED

    def phase_of(self, table: TieringTable) -> Phase:
        """Return the phase of an assigned table."""
        return self.phases[table.assignment.table_id]

    def is_active(self, table: TieringTable) -> bool:
        """Return whether a round of it is open."""
        return self.phase_of(table) in _ACTIVE

    def put(self, table: TieringTable) -> None:
        """Keep what became of a table."""
        table_id = table.assignment.table_id
        before = self.assigned.get(table_id)
        if before is None or (before.assignment, before.renewed_at) != (table.assignment, table.renewed_at):
            self._renewed = None
        self.assigned[table_id] = table

    def forget(self, table_id: int) -> None:
        """Keep nothing of a table: it is not assigned any more."""
        self._renewed = None
        del self.assigned[table_id]
        del self.phases[table_id]

    def of_path(self, path: TablePath) -> list[TieringTable]:
        """Return the tables of that name; two only while a dropped one is still assigned."""
        return [table for table in self.assigned.values() if table.assignment.path == path]

    def is_being_reported(self, table: TieringTable) -> bool:
        """Return whether the open heartbeat reports this table: the report cannot be undone."""
        return self.sent is not None and table.epoch in (*self.sent.request.finished, *self.sent.request.failed)

    def wants_table(self) -> bool:
        """Return whether fewer tables wait or work than may be in hand."""
        if self.stopping:
            return False
        phases = self.phases.values()
        return sum(phase is Phase.WAITING or phase in self.working for phase in phases) < self.settings.max_tables

    def may_commit(self, table: TieringTable, now: float) -> bool:
        """Return whether the newest renewal is younger than the fence time."""
        return now - table.renewed_at < self.settings.fence_s

    def count_failure(self, table: TieringTable) -> TieringTable:
        """Count a failure if another table was served since the last one that was counted."""
        if self.served == table.served_before:
            return table
        return replace(table, failures=table.failures + 1, served_before=self.served)

    # --- heartbeats -------------------------------------------------------------------------------------------------

    def heartbeat_due(self) -> float | None:
        """Return when the next heartbeat is due, None while one is open or none is needed. It may have passed."""
        if self.sent is not None or self.phase is ServicePhase.STOPPED:
            return None
        renew_s = self.settings.renew_s
        due = [
            0.0 if self.phases[table_id] in _URGENT else table.renewed_at + renew_s
            for table_id, table in self.assigned.items()
        ]
        if self.wants_table():
            due.append(self.poll_at)
        return max(self.no_heartbeat_before, min(due)) if due else None

    def compose_heartbeat(self) -> HeartbeatRequest:
        """Build a heartbeat with every assigned table: reported as finished or failed, or else renewed."""
        tables = [(table, self.phases[table_id]) for table_id, table in sorted(self.assigned.items())]
        finished = [table for table, phase in tables if phase is Phase.REPORTING]
        return HeartbeatRequest(
            renewed=tuple(table.epoch for table, phase in tables if phase not in REPORTED),
            finished=tuple(table.epoch for table in finished),
            forced=frozenset(table.assignment.table_id for table in finished if table.forced and not self.stopping),
            failed=tuple(table.epoch for table, phase in tables if phase is Phase.RETURNING),
            request=self.wants_table(),
        )

    def is_assigned_under(self, epoch: TableEpoch) -> bool:
        """Return whether the table of an epoch in a heartbeat is still assigned under that epoch."""
        table = self.assigned.get(epoch.table_id)
        known = None if table is None else table.assignment
        return known is not None and (known.epoch, known.coordinator_epoch) == (epoch.epoch, epoch.coordinator_epoch)

    # --- which table comes next -------------------------------------------------------------------------------------

    def order(self, table: TieringTable) -> tuple[float, int]:
        """Return what waiting tables are ordered by."""
        return max(table.deadline, table.queued_at), table.assignment.table_id

    def waiting(self) -> list[TieringTable]:
        """Return the tables that wait for a round, the one that is opened next first."""
        return self.first_waiting(len(self.assigned))

    def first_waiting(self, most: int) -> list[TieringTable]:
        """Return at most so many of the tables that wait for a round, the earliest deadline first."""
        waiting = [self.assigned[table_id] for table_id, phase in self.phases.items() if phase is Phase.WAITING]
        return nsmallest(most, waiting, key=self.order)

    def free_places(self) -> int:
        """Return how many rounds may be opened now."""
        phases, most = self.phases.values(), self.settings.rounds
        working, active = sum(map(self.working.__contains__, phases)), sum(map(_ACTIVE.__contains__, phases))
        return min(most - working, most + COMMITS_MOST - active)

    def next_yield(self, now: float) -> float | None:
        """Return when a round has to make room for a waiting table, None if none has to.

        A round that waits for Spark never has to. Each round that finishes early already makes room for one of them.
        """
        if not any(table.finish_by is not None for table in self.assigned.values()):
            return None
        working = [table_id for table_id, phase in self.phases.items() if phase in self.working]
        coming = sum(self.assigned[table_id].finishing_early for table_id in working)
        waiting = self.first_waiting(coming + 1)
        if len(waiting) <= coming:
            return None
        first = self.first_to_yield()
        if first.failing and sum(not table.attempt for table in self.waiting()) > coming:
            return now
        started_at = (first.finish_by or 0.0) - self.settings.max_round_s
        return max(waiting[coming].deadline, started_at + self.settings.yield_s)

    def first_to_yield(self) -> TieringTable:
        """Return a running round that does not finish early yet: one that fails, or the one that started first."""
        running = [table for table in self.assigned.values() if table.finish_by is not None]
        return min(running, key=lambda table: (not table.failing, table.finish_by or 0.0, table.assignment.table_id))

    # --- targets of `once` ------------------------------------------------------------------------------------------

    def targets_are_settled(self) -> bool:
        """Return whether `once` waits for nothing: each target is reached, failed for good, or paused."""
        if self.targets is None or self.stopping:
            return False
        return all(
            target.reached or target.failed or self._is_paused_without_round(path)
            for path, target in self.targets.items()
        )

    def _is_paused_without_round(self, path: TablePath) -> bool:
        return path in self.paused and not any(self.is_active(table) for table in self.of_path(path))

    def set_target(self, path: TablePath, target: Target) -> None:
        """Note what became of a target, if it is one."""
        if self.targets is not None and path in self.targets:
            self.targets = {**self.targets, path: target}

    def miss_target(self, path: TablePath, reason: str, *, final: bool) -> None:
        """Note for `once` why a target was missed; one that was reached stays reached."""
        known = (self.targets or {}).get(path)
        if known is not None and not known.reached:
            self.set_target(path, Target(failed=known.failed or final, reason=reason))

    def missed_targets(self) -> tuple[tuple[TablePath, str], ...]:
        """Return those that were not reached, and why."""
        targets = self.targets or {}
        missed = sorted((path, target.reason) for path, target in targets.items() if not target.reached)
        return tuple((path, reason or self._why_not_reached(path)) for path, reason in missed)

    def _why_not_reached(self, path: TablePath) -> str:
        return "paused" if path in self.paused else "the service stopped before it was reached"
