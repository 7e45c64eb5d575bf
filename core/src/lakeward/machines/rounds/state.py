"""The state of the machine `rounds`: assigned tables, the open heartbeat, pauses and targets.

Only `Rounds.step` changes it, on a copy that replaces the state if the whole step was legal.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from lakeward.machines.rounds.transitions import ACTIVE, WORKING, HeartbeatPhase, Phase, ServicePhase, State
from lakeward.model.tables import TablePath
from lakeward.model.tiering import HeartbeatRequest, TableAssignment, TableEpoch


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One assigned table, for people and for the state file."""

    assignment: TableAssignment
    phase: Phase
    deadline: float
    attempt: int
    renewed_at: float
    retry_at: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class TieringTable:
    """One assigned table. Times in seconds on the holder's clock."""

    assignment: TableAssignment
    phase: Phase
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

    @property
    def active(self) -> bool:
        """True while a round is open."""
        return self.phase in ACTIVE

    @property
    def working(self) -> bool:
        """True while an open round counts for `service.rounds`."""
        return self.phase in WORKING

    def renewed(self, at: float) -> TieringTable:
        """Return the table, renewed by a heartbeat that was sent at a time; an earlier one changes nothing."""
        if at <= self.renewed_at:
            return self
        return TieringTable(  # of hundreds of tables at each heartbeat; `replace` takes three times as long
            self.assignment,
            self.phase,
            self.deadline,
            at,
            self.attempt,
            self.stale_rounds,
            self.failures,
            self.served_before,
            self.retry_at,
            self.finish_by,
            self.finishing_early,
            self.overran,
            self.failing,
            self.left_out,
            self.queued_at,
            self.forced,
            self.report_failures,
            self.reason,
        )

    def without_round(self, phase: Phase, *, reason: str = "", retry_at: float | None = None) -> TieringTable:
        """Return the table in a phase, with everything of its round reset."""
        return replace(
            self,
            phase=phase,
            reason=reason,
            retry_at=retry_at,
            finish_by=None,
            finishing_early=False,
            overran=False,
            failing=False,
            left_out="",
            forced=False,
        )

    def status(self) -> TableStatus:
        """Return the public status."""
        return TableStatus(
            self.assignment, self.phase, self.deadline, self.attempt, self.renewed_at, self.retry_at, self.reason
        )


@dataclass(frozen=True, slots=True)
class Target:
    """One table that `once` waits for."""

    reached: bool = False
    failed: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SentHeartbeat:
    """The open heartbeat, and when it was sent."""

    request: HeartbeatRequest
    at: float


@dataclass(slots=True)
class RoundsState:
    """Everything that `Rounds` keeps between two events."""

    tables: dict[int, TieringTable] = field(default_factory=dict)
    service: ServicePhase = ServicePhase.STARTING
    heartbeat: HeartbeatPhase = HeartbeatPhase.RESTING
    sent: SentHeartbeat | None = None
    """The open heartbeat, None while there is none."""
    poll_at: float = 0.0
    """When to request a table again."""
    no_heartbeat_before: float = 0.0
    """Set after a heartbeat that failed."""
    heartbeat_failures: int = 0
    served: int = 0
    """Rounds that succeeded so far, of all tables."""
    paused: set[TablePath] = field(default_factory=set)
    targets: dict[TablePath, Target] | None = None
    timed_out: bool = False

    def copy(self) -> RoundsState:
        """Return a copy that can be changed without changing this."""
        targets = None if self.targets is None else dict(self.targets)
        return RoundsState(  # a copy is made at every step, and `replace` would take as long as the rest of the step
            tables=dict(self.tables),
            service=self.service,
            heartbeat=self.heartbeat,
            sent=self.sent,
            poll_at=self.poll_at,
            no_heartbeat_before=self.no_heartbeat_before,
            heartbeat_failures=self.heartbeat_failures,
            served=self.served,
            paused=set(self.paused),
            targets=targets,
            timed_out=self.timed_out,
        )

    @property
    def stopping(self) -> bool:
        """True once the service is to end."""
        return self.service in (ServicePhase.STOPPING, ServicePhase.STOPPED)

    def states(self) -> dict[int | str, State]:
        """Return the state of the service, of its heartbeat and of each table, by table id."""
        states: dict[int | str, State] = {"service": self.service, "heartbeat": self.heartbeat}
        states.update((table_id, table.phase) for table_id, table in self.tables.items())
        return states

    def of_path(self, path: TablePath) -> list[TieringTable]:
        """Return the tables of that name; two only while a dropped one is still assigned."""
        return [table for table in self.tables.values() if table.assignment.path == path]

    def is_being_reported(self, table: TieringTable) -> bool:
        """True if the open heartbeat reports this table: the report cannot be undone."""
        return self.sent is not None and table.epoch in (*self.sent.request.finished, *self.sent.request.failed)

    def wants_table(self, max_tables: int) -> bool:
        """True while fewer tables wait or work than may be in hand."""
        if self.stopping:
            return False
        return sum(table.working or table.phase is Phase.WAITING for table in self.tables.values()) < max_tables
