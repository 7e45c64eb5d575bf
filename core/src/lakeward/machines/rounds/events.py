"""The events of the machine `rounds`.

An answer about a round carries a table id and no round: after an `EndRound` the executor drops what that round still
answers. An answer that comes through for a table without a round, or one that is not assigned any more, is ignored.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakeward.model.tables import TablePath
from lakeward.model.tiering import HeartbeatRequest, HeartbeatResponse, TableAssignment


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time went on: do what is due."""

    now: float


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
class Leased:
    """All snapshots are acquired and verified."""

    now: float
    table_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStarted:
    """The round's first subtask is deployed: Spark has slots for it."""

    now: float
    table_id: int


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TableGone:
    """The table was dropped, or dropped and re-created under another id."""

    now: float
    table_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundFenced:
    """Another incarnation stamped the lake table, or the base commit is another one: the round must not commit."""

    now: float
    table_id: int
    reason: str
    lost: bool
    """True: another service has the table, which is left without a report. False: try again soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetReached:
    """`once`: the table is at the end offsets that were seen at the start."""

    now: float
    path: TablePath


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """`once`: these tables have to reach their targets. Sent once, before the first tick."""

    now: float
    paths: frozenset[TablePath]


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRequested:
    """A person pauses a table; a running round finishes early and commits first.

    The path of a table that is not assigned is remembered: the table is PAUSED once it is assigned.
    """

    now: float
    path: TablePath


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeRequested:
    """A person resumes a paused or suspended table."""

    now: float
    path: TablePath


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequested:
    """The service is to end: finish rounds early, commit them, give the tables back, then `Stopped`."""

    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StopTimedOut:
    """Give up what is not committed by now."""

    now: float


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
