"""What the machine `rounds` knows: the tables in hand, the heartbeat under way, pauses and targets.

Only `Rounds.step` changes it, on a copy that is kept when the whole step was legal.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from lakeward.machines.round_phases import ACTIVE, REPORTED, Phase, Pulse, Service, State
from lakeward.model.tables import TablePath
from lakeward.model.tiering import Beat, Claim, Offer


@dataclass(frozen=True, slots=True)
class RoundsPolicy:
    """All in seconds except `slots` (rounds side by side)."""

    slots: int = 2
    renew_every_s: float = 30.0
    poll_every_s: float = 1.0
    fence_s: float = 60.0
    max_round_s: float = 600.0
    backoff_first_s: float = 1.0
    backoff_most_s: float = 300.0
    once: bool = False
    """Serve until every target is reached, then stop: a failed table is tried `once_attempts` times."""
    once_attempts: int = 3


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One table in hand, for people and for the state file."""

    offer: Offer
    phase: Phase
    deadline: float
    attempt: int
    renewed_at: float
    retry_at: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class TableInHand:
    """One table in hand, with all that the machine remembers of it. Times in seconds on the holder's clock."""

    offer: Offer
    phase: Phase
    deadline: float
    """When its promised freshness is broken."""
    renewed_at: float
    """When the newest heartbeat was sent that renewed it: earlier than the source's own time, never later."""
    attempt: int = 0
    """Tries since the last success."""
    stale: int = 0
    """Rounds in a row that lost their snapshots."""
    retry_at: float | None = None
    cut_at: float | None = None
    """When the round's maximum duration is over."""
    cut: bool = False
    """`CutRound` was sent."""
    overran: bool = False
    """The cut was for the maximum duration: more is waiting."""
    forced: bool = False
    """Report it as to be handed out again at once."""
    report_failures: int = 0
    reason: str = ""

    @property
    def claim(self) -> Claim:
        """What a heartbeat says of it."""
        return Claim(self.offer.table_id, self.offer.epoch, self.offer.coordinator_epoch)

    @property
    def active(self) -> bool:
        """True while a round is open."""
        return self.phase in ACTIVE

    def at(self, phase: Phase, *, reason: str = "", retry_at: float | None = None) -> TableInHand:
        """Return it at rest in a phase, with all traces of its round gone."""
        return replace(
            self, phase=phase, reason=reason, retry_at=retry_at, cut_at=None, cut=False, overran=False, forced=False
        )

    def status(self) -> TableStatus:
        """Return what people see."""
        return TableStatus(
            self.offer, self.phase, self.deadline, self.attempt, self.renewed_at, self.retry_at, self.reason
        )


@dataclass(frozen=True, slots=True)
class Target:
    """One table that `once` waits for."""

    reached: bool = False
    failed: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SentBeat:
    """The heartbeat under way, and when it was sent."""

    beat: Beat
    at: float


@dataclass(slots=True)
class Hand:
    """Everything that `Rounds` remembers between two events."""

    tables: dict[int, TableInHand] = field(default_factory=dict)
    service: Service = Service.STARTING
    sent: SentBeat | None = None
    poll_at: float = 0.0
    """When to ask for a table again."""
    beat_after: float = 0.0
    """After a heartbeat that failed: not before this."""
    beat_failures: int = 0
    paused: set[TablePath] = field(default_factory=set)
    targets: dict[TablePath, Target] | None = None
    timed_out: bool = False

    def copy(self) -> Hand:
        """Return a copy that can be changed without changing this."""
        targets = None if self.targets is None else dict(self.targets)
        return Hand(  # by hand: made at every step, and `replace` takes as long as the rest of it
            tables=dict(self.tables),
            service=self.service,
            sent=self.sent,
            poll_at=self.poll_at,
            beat_after=self.beat_after,
            beat_failures=self.beat_failures,
            paused=set(self.paused),
            targets=targets,
            timed_out=self.timed_out,
        )

    @property
    def stopping(self) -> bool:
        """True once the service is to end."""
        return self.service in (Service.STOPPING, Service.STOPPED)

    def states(self) -> dict[int | str, State]:
        """Return the state of the service, of its heartbeat and of each table, by table id."""
        pulse = Pulse.RESTING if self.sent is None else Pulse.UNDER_WAY
        states: dict[int | str, State] = {"service": self.service, "heartbeat": pulse}
        states.update((table_id, table.phase) for table_id, table in self.tables.items())
        return states

    def of_path(self, path: TablePath) -> list[TableInHand]:
        """Return the tables of that name; two only while a dropped one is still in hand."""
        return [table for table in self.tables.values() if table.offer.path == path]

    def under_report(self, table: TableInHand) -> bool:
        """True if the heartbeat under way reports this table: it cannot be called back."""
        return self.sent is not None and table.claim in (*self.sent.beat.finished, *self.sent.beat.failed)

    def wants_table(self, slots: int) -> bool:
        """True while there is room: as many to choose from as may run."""
        taken = sum(table.active or table.phase is Phase.WAITING for table in self.tables.values())
        return not self.stopping and taken < 2 * slots

    def beat_dues(self, policy: RoundsPolicy) -> list[float]:
        """Return when the tables, and the wish for a new one, want a heartbeat; 0 = at once."""
        dues = [0.0 if _urgent(table) else table.renewed_at + policy.renew_every_s for table in self.tables.values()]
        return [*dues, self.poll_at] if self.wants_table(policy.slots) else dues

    def next_due(self, policy: RoundsPolicy) -> float | None:
        """Return when time alone changes something next; None = never."""
        if self.service is Service.STARTING:
            return 0.0
        dues = [due for table in self.tables.values() for due in (table.retry_at, table.cut_at) if due is not None]
        beats = self.beat_dues(policy) if self.sent is None and self.service is not Service.STOPPED else []
        if beats:
            dues.append(max(self.beat_after, min(beats)))
        return min(dues, default=None)


def _urgent(table: TableInHand) -> bool:
    """A report, or a round that may not commit before it is renewed."""
    return table.phase in REPORTED or table.phase is Phase.SETTLING
