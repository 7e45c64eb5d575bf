"""Which table next, and the life of each round: the service's top machine.

Rules
* Everything that moves a table's phase is in `TRANSITIONS`; an event without a row there raises and changes nothing.
* One heartbeat is under way at a time. It renews every table in hand, whatever its phase: a table that failed or is
  paused is kept in hand and waits out its back-off, for one reported as failed comes back in milliseconds.
* Of the tables in hand, the one nearest to breaking its promised freshness is opened first.
* A commit needs a renewal younger than the fence time; otherwise the table waits (SETTLING) for the next heartbeat.
* A table that the source refuses leaves the hand at once: FORGET, never a report.
* One bad table never changes another one.
"""
# CONTRACT: events, commands and phases below are agreed; `step` and the table are to be written.

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from lakeward.model.tables import TablePath
from lakeward.model.tiering import Beat, BeatAnswer, Offer


class Phase(Enum):
    """Where a table in hand stands."""

    WAITING = "waiting"
    """In hand, no round yet."""
    OPENING = "opening"
    """The lake table is opened and stamped, buckets are listed, splits enumerated."""
    LEASING = "leasing"
    """Its snapshots are acquired and verified."""
    RUNNING = "running"
    """Journal written; the Spark job runs."""
    SETTLING = "settling"
    """All splits are done; a fresh renewal is awaited."""
    COMMITTING = "committing"
    """Prepare, lake commit, source commit."""
    REPORTING = "reporting"
    """Finished, to be said in the next heartbeat."""
    BACKOFF = "backoff"
    """Failed; waits in hand until `retry_at`."""
    SUSPENDED = "suspended"
    """Failed for good; waits in hand for a person (or for a restart)."""
    PAUSED = "paused"
    """A person paused it; kept in hand."""
    RETURNING = "returning"
    """To be given back (reported as failed) in the next heartbeat: the service stops."""


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


# --- events -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time went on; what is due is commanded."""

    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """At start: these tables of the predecessor are ours under their old epochs; their renewal has succeeded."""

    now: float
    offers: tuple[Offer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BeatAnswered:
    """The heartbeat came back. `beat` is the one that was sent."""

    now: float
    beat: Beat
    answer: BeatAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class BeatFailed:
    """The heartbeat failed or its outcome is unknown: nothing counts as renewed; reports are sent again."""

    now: float
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """Enumeration is done. `splits` may be 0 (idle); `leases` says that snapshots have to be acquired.

    `offsets_moved` is true where no split has rows but offsets are to be advanced (empty batches only).
    """

    now: float
    table_id: int
    splits: int
    leases: bool
    offsets_moved: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Leased:
    """All snapshots are acquired and verified."""

    now: float
    table_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotsGone:
    """A snapshot was lost between listing and acquiring (or reading): enumerate afresh."""

    now: float
    table_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """Every split is finished, or was left out by a cut. `cut` says that some were left out or stopped early."""

    now: float
    table_id: int
    cut: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The lake has it and the source knows. `caught_up` is false where more is known to be waiting."""

    now: float
    table_id: int
    caught_up: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundFailed:
    """Opening, leasing, running or committing failed. `permanent` suspends the table."""

    now: float
    table_id: int
    reason: str
    permanent: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TableGone:
    """The table was dropped, or dropped and created anew under another id."""

    now: float
    table_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundFenced:
    """Another incarnation stamped the lake table, or the base commit is another one: the round must not commit."""

    now: float
    table_id: int
    reason: str
    lost: bool
    """True: another service has the table (leave the hand silently). False: only enumerate afresh."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetReached:
    """`once`: the table stands at the end offsets that were seen at the start."""

    now: float
    path: TablePath


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """`once`: these tables have to reach their targets (sent once, before the first tick)."""

    now: float
    paths: frozenset[TablePath]


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseAsked:
    """A person pauses a table; a running round is cut and commits first."""

    now: float
    path: TablePath


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeAsked:
    """A person resumes a paused or suspended table."""

    now: float
    path: TablePath


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAsked:
    """The service is to end: cut the rounds, commit what is whole, give the tables back, then `Stopped`."""

    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StopTimedOut:
    """What is not committed by now is given up."""

    now: float


RoundsEvent = (
    Tick
    | Resumed
    | BeatAnswered
    | BeatFailed
    | Opened
    | Leased
    | SnapshotsGone
    | Drained
    | Committed
    | RoundFailed
    | TableGone
    | RoundFenced
    | TargetReached
    | Targets
    | PauseAsked
    | ResumeAsked
    | StopAsked
    | StopTimedOut
)

# --- commands ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendBeat:
    """Send this heartbeat; answer with `BeatAnswered` or `BeatFailed`."""

    beat: Beat


@dataclass(frozen=True, slots=True)
class OpenRound:
    """Start a round: open, stamp, enumerate; answer with `Opened`, `RoundFailed`, `TableGone` or `RoundFenced`."""

    offer: Offer
    attempt: int
    """1 for the first try since the last success."""


@dataclass(frozen=True, slots=True)
class AcquireLeases:
    """Acquire and verify; answer with `Leased`, `SnapshotsGone` or `RoundFailed`."""

    table_id: int


@dataclass(frozen=True, slots=True)
class LaunchJob:
    """Write the journal and launch the Spark job; answer with `Drained` or a failure.

    For a round without rows whose offsets moved, no job is needed: the shell answers `Drained` at once.
    """

    table_id: int


@dataclass(frozen=True, slots=True)
class CutRound:
    """End the round early: the maximum duration is over, a pause or a stop was asked."""

    table_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class CommitRound:
    """Prepare, commit to the lake, commit to the source; answer with `Committed` or a failure."""

    table_id: int


@dataclass(frozen=True, slots=True)
class EndRound:
    """The round is over: cancel its job if it still runs, release its leases, clean its files if it failed."""

    table_id: int
    outcome: str
    """`committed`, `idle`, `failed`, `dropped`, `fenced` (release and delete nothing of a successor's), `stopped`."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Forget:
    """The table left the hand."""

    table_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """Nothing is in hand any more and the last heartbeat was answered (or given up): the service may end.

    `failed` lists, for `once`, the tables that did not reach their target, with the last reason.
    """

    failed: tuple[tuple[TablePath, str], ...] = ()


RoundsCommand = (
    SendBeat | OpenRound | AcquireLeases | LaunchJob | CutRound | CommitRound | EndRound | Forget | Stopped
)


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


class Rounds:
    """The machine. See the module's rules."""

    def __init__(self, policy: RoundsPolicy) -> None:
        """Start with empty hands.

        Args:
            policy: periods and limits.
        """
        raise NotImplementedError

    def step(self, event: RoundsEvent) -> tuple[RoundsCommand, ...]:
        """Take one event.

        Args:
            event: what happened; `now` in seconds on the holder's clock, never less than in the event before.

        Returns:
            What is to be done, in this order.

        Raises:
            IllegalEventError: no row for this event; nothing was changed.
        """
        raise NotImplementedError

    @property
    def in_hand(self) -> tuple[TableStatus, ...]:
        """All tables in hand, ordered by table id."""
        raise NotImplementedError

    @property
    def next_due(self) -> float | None:
        """When the next `Tick` has something to do, None if only an event can change anything."""
        raise NotImplementedError

    @property
    def stopping(self) -> bool:
        """True after `StopAsked`, or once every target of `once` is settled."""
        raise NotImplementedError
