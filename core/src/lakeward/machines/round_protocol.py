"""What is said to and by the machine `rounds`: its events and its commands.

Answers carry a table id and no round: after an `EndRound` the shell drops what that round still says. What slips
through for a table that has no round, or that left the hand, is harmless.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakeward.model.tables import TablePath
from lakeward.model.tiering import Beat, BeatAnswer, Offer

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
    """A snapshot was lost between listing and acquiring (or reading): enumerate afresh. `reason` names it."""

    now: float
    table_id: int
    reason: str


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
    """A person pauses a table; a running round is cut and commits first.

    A path that is not in hand is remembered: the table starts as PAUSED when it is offered.
    """

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
    """Write the journal and launch the Spark job; answer with `Drained` or a failure."""

    table_id: int


@dataclass(frozen=True, slots=True)
class CutRound:
    """End the round early: the maximum duration is over, a pause or a stop was asked."""

    table_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class CommitRound:
    """Prepare, commit to the lake, commit to the source; answer with `Committed` or a failure.

    A round without rows whose offsets moved comes here without a `LaunchJob`: its journal is written first.
    """

    table_id: int


@dataclass(frozen=True, slots=True)
class EndRound:
    """The round is over: cancel its job if it still runs, release its leases, clean its files if it failed."""

    table_id: int
    outcome: str
    """`committed`, `idle`, `failed`, `dropped`, `fenced` (release and delete nothing of a successor's), `stopped`,
    `stale` (snapshots vanished: cleaned like `failed`, but no failure is counted and `OpenRound` follows).
    """
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


RoundsCommand = SendBeat | OpenRound | AcquireLeases | LaunchJob | CutRound | CommitRound | EndRound | Forget | Stopped
