"""The commands of the machine `rounds`, and the events that answer them."""

from __future__ import annotations

from dataclasses import dataclass

from lakeward.model.tables import TablePath
from lakeward.model.tiering import HeartbeatRequest, TableAssignment


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
class AcquireLeases:
    """Acquire and verify; answer with `Leased`, `SnapshotsGone` or `RoundFailed`."""

    table_id: int


@dataclass(frozen=True, slots=True)
class LaunchJob:
    """Write the journal and launch the Spark job; answer with `Drained` or a failure."""

    table_id: int


@dataclass(frozen=True, slots=True)
class FinishRoundEarly:
    """Let the round finish early: its maximum duration is over, or a pause or a stop was requested."""

    table_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class CommitRound:
    """Prepare, commit to the lake, commit to the source; answer with `Committed` or a failure."""

    table_id: int


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
