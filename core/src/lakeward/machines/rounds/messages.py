"""The events of the machine `rounds`, and its commands.

An answer about a round carries a table id and no round: after an `EndRound` the executor drops what that round still
answers. An answer that comes through for a table without a round, or one that is not assigned any more, is ignored.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from lakeward.machines.machine import AtTime
from lakeward.model.tables import TablePath
from lakeward.model.tiering import HeartbeatRequest, HeartbeatResponse, Refusal, TableAssignment

# --- events -----------------------------------------------------------------------------------------------------


class Tick(AtTime, frozen=True):
    """Time went on: do what is due."""


class _OfTable(AtTime, frozen=True, kw_only=True):
    table_id: int


class Resumed(AtTime, frozen=True, kw_only=True):
    """At the start: the last start's tables are still assigned under their old epochs; they were just renewed."""

    assignments: tuple[TableAssignment, ...]


class HeartbeatAnswered(AtTime, frozen=True, kw_only=True):
    """The source answered the heartbeat `request`."""

    request: HeartbeatRequest
    response: HeartbeatResponse


class HeartbeatFailed(AtTime, frozen=True, kw_only=True):
    """The heartbeat failed or its outcome is unknown: nothing is renewed; reports are sent again."""

    cause: str


class Opened(_OfTable, frozen=True, kw_only=True):
    """The splits are enumerated. `splits` is 0 where nothing is new; `leases`: snapshots have to be acquired."""

    splits: int
    leases: bool


class Leased(_OfTable, frozen=True):
    """All snapshots are acquired and verified."""


class JobStarted(_OfTable, frozen=True):
    """The round's first subtask is deployed: Spark has slots for it."""


class SplitsFailing(_OfTable, frozen=True, kw_only=True):
    """A split of the round has failed again, or, where `failing` is False, each of those has been read since."""

    failing: bool


class SnapshotsGone(_OfTable, frozen=True, kw_only=True):
    """A snapshot vanished before it was acquired or read: enumerate the splits again. `reason` names it."""

    reason: str


class Drained(_OfTable, frozen=True, kw_only=True):
    """Every split is finished. `finished_early`: some were left out or stopped before their end."""

    finished_early: bool
    failing: str = ""
    """Why splits failed that were left out; empty where none had failed."""


class Committed(_OfTable, frozen=True, kw_only=True):
    """The lake has the rows and the source knows. `caught_up` is false where more rows are known to wait."""

    caught_up: bool


class RoundFailed(_OfTable, frozen=True, kw_only=True):
    """The round failed in any of its phases. `permanent` suspends the table."""

    reason: str
    permanent: bool
    checkpoint_lost: bool = False
    """Its checkpoint is damaged and given up: the next round goes on from another one, or from none."""


class TableGone(_OfTable, frozen=True):
    """The table was dropped, or dropped and re-created under another id."""


class RoundFenced(_OfTable, frozen=True, kw_only=True):
    """Another incarnation stamped the lake table, or the base commit is another one: the round must not commit."""

    reason: str
    lost: bool
    """True: another service has the table, which is left without a report. False: try again soon."""


class _OfPath(AtTime, frozen=True, kw_only=True):
    path: TablePath


class TargetReached(_OfPath, frozen=True):
    """`once`: the table is at the end offsets that were seen at the start."""


class Targets(AtTime, frozen=True, kw_only=True):
    """`once`: these tables have to reach their targets. Sent once, before the first tick."""

    paths: frozenset[TablePath]


class PauseRequested(_OfPath, frozen=True):
    """A person pauses a table; a running round finishes early and commits first.

    The path of a table that is not assigned is remembered: the table is PAUSED once it is assigned.
    """


class ResumeRequested(_OfPath, frozen=True):
    """A person resumes a paused or suspended table."""


class StopRequested(AtTime, frozen=True):
    """The service is to end: finish rounds early, commit them, give the tables back, then `Stopped`."""


class StopTimedOut(AtTime, frozen=True):
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


class TableAssigned(AtTime, frozen=True, kw_only=True):
    """The source has assigned it, or it was still assigned at the start."""

    assignment: TableAssignment
    renewed_at: float

    @property
    def table_id(self) -> int:
        """The table."""
        return self.assignment.table_id


class TableRenewed(_OfTable, frozen=True, kw_only=True):
    """A heartbeat that was sent at `sent_at` has renewed it."""

    sent_at: float


class TableRefused(_OfTable, frozen=True, kw_only=True):
    """The source refused to renew it."""

    refusal: Refusal


class TableReported(_OfTable, frozen=True):
    """A heartbeat that reported it was answered; accepted or refused: the report has arrived."""


class ReportFailed(_OfTable, frozen=True, kw_only=True):
    """A heartbeat that reported it failed."""

    cause: str


class RoundMayOpen(_OfTable, frozen=True):
    """Fewer rounds are open than may be, and no waiting table is nearer to its deadline."""


class RetryDue(_OfTable, frozen=True):
    """The pause after its failure is over."""


class RoundOverdue(_OfTable, frozen=True, kw_only=True):
    """Its round has to make room."""

    reason: str


class TablePaused(_OfTable, frozen=True):
    """A person pauses it."""

    reason: ClassVar[str] = "paused"


class TableResumed(_OfTable, frozen=True):
    """A person resumes it."""


class ServiceStops(_OfTable, frozen=True):
    """The service is to end."""

    reason: ClassVar[str] = "the service stops"


class RoundGivenUp(_OfTable, frozen=True):
    """The service ends without waiting any longer."""


# --- commands ---------------------------------------------------------------------------------------------------


class SendHeartbeat(Struct, frozen=True):
    """Send this heartbeat; answer with `HeartbeatAnswered` or `HeartbeatFailed`."""

    request: HeartbeatRequest


class OpenRound(Struct, frozen=True):
    """Start a round: open, stamp, enumerate; answer with `Opened`, `RoundFailed`, `TableGone` or `RoundFenced`."""

    assignment: TableAssignment
    attempt: int
    """1 for the first try since the last success."""


class _ForTable(Struct, frozen=True):
    table_id: int


class AcquireLeases(_ForTable, frozen=True):
    """Acquire and verify; answer with `Leased`, `SnapshotsGone` or `RoundFailed`."""


class LaunchJob(_ForTable, frozen=True):
    """Write the journal and launch the Spark job; answer with `Drained` or a failure."""


class FinishRoundEarly(_ForTable, frozen=True):
    """Let the round finish early: its maximum duration is over, or a pause or a stop was requested."""

    reason: str


class CommitRound(_ForTable, frozen=True):
    """Prepare, commit to the lake, commit to the source; answer with `Committed` or a failure."""


class EndRound(_ForTable, frozen=True):
    """End the round: cancel its job if it still runs, release its leases, delete its files if it failed."""

    outcome: str
    """`committed`, `idle`, `failed`, `dropped`, `stopped`, `fenced` (release and delete nothing: a later start has it),
    `stale` (snapshots vanished: cleaned like `failed`, but no failure is counted and `OpenRound` follows).
    """
    reason: str = ""
    suspended: str = ""
    """Why the table waits for a person from now on, also once it is given back; empty where it does not."""


class Forget(_ForTable, frozen=True):
    """The table is not assigned any more."""

    reason: str


class Stopped(Struct, frozen=True):
    """No table is assigned any more and the last heartbeat was answered or given up: the service may end.

    `failed` lists, for `once`, the tables that did not reach their target, with the last reason.
    """

    failed: tuple[tuple[TablePath, str], ...] = ()


RoundsCommand = (
    SendHeartbeat | OpenRound | AcquireLeases | LaunchJob | FinishRoundEarly | CommitRound | EndRound | Forget | Stopped
)
