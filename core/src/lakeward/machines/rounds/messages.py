"""The events of the machine `rounds`, and its commands.

An answer about a round carries a table id and no round: after an `EndRound` the executor drops what that round still
answers. An answer that comes through for a table without a round, or one that is not assigned any more, is ignored.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakeward.model.tables import TablePath
from lakeward.model.tiering import HeartbeatRequest, HeartbeatResponse, Refusal, TableAssignment

# --- events -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfService:
    now: float


class Tick(_OfService):
    """Time went on: do what is due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """At the start: the last start's tables are still assigned under their old epochs; they were just renewed."""

    now: float
    assignments: tuple[TableAssignment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswered:
    """The source answered the heartbeat `request`."""

    now: float
    request: HeartbeatRequest
    response: HeartbeatResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatFailed:
    """The heartbeat failed or its outcome is unknown: nothing is renewed; reports are sent again."""

    now: float
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """The splits are enumerated. `splits` is 0 where nothing is new; `leases`: snapshots have to be acquired."""

    now: float
    table_id: int
    splits: int
    leases: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfTable:
    now: float
    table_id: int


class Leased(_OfTable):
    """All snapshots are acquired and verified."""


class JobStarted(_OfTable):
    """The round's first subtask is deployed: Spark has slots for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitsFailing:
    """A split of the round has failed again, or, where `failing` is False, each of those has been read since."""

    now: float
    table_id: int
    failing: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotsGone:
    """A snapshot vanished before it was acquired or read: enumerate the splits again. `reason` names it."""

    now: float
    table_id: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """Every split is finished. `finished_early`: some were left out or stopped before their end."""

    now: float
    table_id: int
    finished_early: bool
    failing: str = ""
    """Why splits failed that were left out; empty where none had failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The lake has the rows and the source knows. `caught_up` is false where more rows are known to wait."""

    now: float
    table_id: int
    caught_up: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundFailed:
    """The round failed in any of its phases. `permanent` suspends the table."""

    now: float
    table_id: int
    reason: str
    permanent: bool
    checkpoint_lost: bool = False
    """Its checkpoint is damaged and given up: the next round goes on from another one, or from none."""


class TableGone(_OfTable):
    """The table was dropped, or dropped and re-created under another id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundFenced:
    """Another incarnation stamped the lake table, or the base commit is another one: the round must not commit."""

    now: float
    table_id: int
    reason: str
    lost: bool
    """True: another service has the table, which is left without a report. False: try again soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfPath:
    now: float
    path: TablePath


class TargetReached(_OfPath):
    """`once`: the table is at the end offsets that were seen at the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """`once`: these tables have to reach their targets. Sent once, before the first tick."""

    now: float
    paths: frozenset[TablePath]


class PauseRequested(_OfPath):
    """A person pauses a table; a running round finishes early and commits first.

    The path of a table that is not assigned is remembered: the table is PAUSED once it is assigned.
    """


class ResumeRequested(_OfPath):
    """A person resumes a paused or suspended table."""


class StopRequested(_OfService):
    """The service is to end: finish rounds early, commit them, give the tables back, then `Stopped`."""


class StopTimedOut(_OfService):
    """Give up what is not committed by now."""


RoundsEvent = (
    Tick
    | Resumed
    | HeartbeatAnswered
    | HeartbeatFailed
    | Opened
    | Leased
    | JobStarted
    | SplitsFailing
    | SnapshotsGone
    | Drained
    | Committed
    | RoundFailed
    | TableGone
    | RoundFenced
    | TargetReached
    | Targets
    | PauseRequested
    | ResumeRequested
    | StopRequested
    | StopTimedOut
)
Answer = (
    Opened
    | Leased
    | JobStarted
    | SplitsFailing
    | SnapshotsGone
    | Drained
    | Committed
    | RoundFailed
    | TableGone
    | RoundFenced
)
"""Events about one table, by its id; they may be late."""

# --- events of one table that follow from others ----------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAssigned:
    """The source has assigned it, or it was still assigned at the start."""

    now: float
    assignment: TableAssignment
    renewed_at: float

    @property
    def table_id(self) -> int:
        """The table."""
        return self.assignment.table_id


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRenewed:
    """A heartbeat that was sent at `sent_at` has renewed it."""

    now: float
    table_id: int
    sent_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRefused:
    """The source refused to renew it."""

    now: float
    table_id: int
    refusal: Refusal


class TableReported(_OfTable):
    """A heartbeat that reported it was answered; accepted or refused: the report has arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFailed:
    """A heartbeat that reported it failed."""

    now: float
    table_id: int
    cause: str


class RoundMayOpen(_OfTable):
    """Fewer rounds are open than may be, and no waiting table is nearer to its deadline."""


class RetryDue(_OfTable):
    """The pause after its failure is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundOverdue:
    """Its round has to make room."""

    now: float
    table_id: int
    reason: str


class TablePaused(_OfTable):
    """A person pauses it."""


class TableResumed(_OfTable):
    """A person resumes it."""


class ServiceStops(_OfTable):
    """The service is to end."""


class RoundGivenUp(_OfTable):
    """The service ends without waiting any longer."""


# --- commands ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    """Send this heartbeat; answer with `HeartbeatAnswered` or `HeartbeatFailed`."""

    request: HeartbeatRequest


@dataclass(frozen=True, slots=True)
class OpenRound:
    """Start a round: open, stamp, enumerate; answer with `Opened`, `RoundFailed`, `TableGone` or `RoundFenced`."""

    assignment: TableAssignment
    attempt: int
    """1 for the first try since the last success."""


@dataclass(frozen=True, slots=True)
class _ForTable:
    table_id: int


class AcquireLeases(_ForTable):
    """Acquire and verify; answer with `Leased`, `SnapshotsGone` or `RoundFailed`."""


class LaunchJob(_ForTable):
    """Write the journal and launch the Spark job; answer with `Drained` or a failure."""


@dataclass(frozen=True, slots=True)
class FinishRoundEarly:
    """Let the round finish early: its maximum duration is over, or a pause or a stop was requested."""

    table_id: int
    reason: str


class CommitRound(_ForTable):
    """Prepare, commit to the lake, commit to the source; answer with `Committed` or a failure."""


@dataclass(frozen=True, slots=True)
class EndRound:
    """End the round: cancel its job if it still runs, release its leases, delete its files if it failed."""

    table_id: int
    outcome: str
    """`committed`, `idle`, `failed`, `dropped`, `stopped`, `fenced` (release and delete nothing: a later start has it),
    `stale` (snapshots vanished: cleaned like `failed`, but no failure is counted and `OpenRound` follows).
    """
    reason: str = ""
    suspended: str = ""
    """Why the table waits for a person from now on, also once it is given back; empty where it does not."""


@dataclass(frozen=True, slots=True)
class Forget:
    """The table is not assigned any more."""

    table_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """No table is assigned any more and the last heartbeat was answered or given up: the service may end.

    `failed` lists, for `once`, the tables that did not reach their target, with the last reason.
    """

    failed: tuple[tuple[TablePath, str], ...] = ()


RoundsCommand = (
    SendHeartbeat | OpenRound | AcquireLeases | LaunchJob | FinishRoundEarly | CommitRound | EndRound | Forget | Stopped
)
