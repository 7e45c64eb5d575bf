"""What a round wants done outside of itself. Frozen values: a round decides, modules of `coordinator.effects` execute.

An effect of the first kind is executed on a worker; its result comes back to the round as `EffectDone`, its error as
`EffectFailed`. Those of the second kind are executed at once and answer nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakeward.coordinator.checkpoints.contents import CheckpointContents, RestoredRound
from lakeward.coordinator.commits.round_committer import RoundCommit
from lakeward.coordinator.rounds.context import RoundContext
from lakeward.machines.rounds import RoundsEvent
from lakeward.model.checkpoints import CheckpointRef, PartFile, RoundSnapshot, SubtaskSnapshot
from lakeward.model.identity import RoundId
from lakeward.model.jobs import JobSpec
from lakeward.model.leases import Failover
from lakeward.model.tables import BucketState, KvSnapshot, TableBucket, TablePath, TableSpec
from lakeward.model.tiering import TableAssignment
from lakeward.storage.round_journal import RoundJournal


class Effect:
    """Something to be done."""

    __slots__ = ()


# --- executed on a worker -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenTable(Effect):
    """Find what the round starts from; the result is a `RoundContext` and a `RestoredRound` or None."""

    assignment: TableAssignment


@dataclass(frozen=True, slots=True)
class Plan(Effect):
    """Write the journal and plan the job; the result is a `RoundJournal` and a `JobPlan`."""

    assignment: TableAssignment
    round_id: RoundId
    context: RoundContext
    restored: RestoredRound | None


@dataclass(frozen=True, slots=True)
class Commit(Effect):
    """Commit the round, or a step of it; the result is a `CommittedRound`."""

    commit: RoundCommit
    step: bool
    """Whether the round goes on after it."""


@dataclass(frozen=True, slots=True)
class LookForTable(Effect):
    """Find out whether the source still has the table; the result is whether it is gone."""

    path: TablePath
    table_id: int
    reason: str
    """Why that is in doubt."""


@dataclass(frozen=True, slots=True)
class CompleteCheckpoint(Effect):
    """Complete a checkpoint; the result is its size in bytes. After a failure it can never become complete."""

    ref: CheckpointRef
    coordinator: RoundSnapshot
    parts: tuple[tuple[PartFile, SubtaskSnapshot], ...]
    state: CheckpointContents
    """The coordinator's part and the others, merged."""


@dataclass(frozen=True, slots=True)
class CountFreeSlots(Effect):
    """Count the slots that the next launch may have; the result is that number."""


@dataclass(frozen=True, slots=True)
class RetainCheckpoints(Effect):
    """Delete all but the newest checkpoints of the table."""

    table_id: int
    newest: int
    """How many of them stay."""


@dataclass(frozen=True, slots=True)
class DeleteCheckpoint(Effect):
    """Delete a checkpoint, and parts of it."""

    ref: CheckpointRef


@dataclass(frozen=True, slots=True)
class Discard(Effect):
    """Delete files that an attempt wrote after it no longer counted, except those that are needed.

    A checkpoint may reference some of these files, and a step may have been committed from that checkpoint.
    """

    lake_path: TablePath
    table_id: int
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CleanUp(Effect):
    """Delete what a round left whose jobs have all ended. A fenced one deletes nothing: another may own its table."""

    round_id: RoundId
    path: TablePath
    aborted: tuple[CheckpointRef, ...]
    """Checkpoints of which subtasks may have stored parts after they were aborted."""
    newest_with_rows: CheckpointRef | None
    journal: RoundJournal | None
    outcome: str
    journaled: bool
    has_commit: bool
    orphans: bool
    """Whether there may be files that no result names."""
    may_write: bool
    """Whether a task may still write for the fence time: it has not said that it writes nothing more."""


# --- executed at once -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tell(Effect):
    """Tell the machine of all tables what has happened, if the round is still the one in progress on its table."""

    event: RoundsEvent


@dataclass(frozen=True, slots=True)
class StartLaunch(Effect):
    """Launch a job; its end comes back as `LaunchGone`."""

    spec: JobSpec


@dataclass(frozen=True, slots=True)
class StopLaunch(Effect):
    """Cancel a launch."""

    spec: JobSpec


@dataclass(frozen=True, slots=True)
class KeepCheckpoint(Effect):
    """Lease what the newest checkpoint needs, and release the snapshots of the buckets that it has finished."""

    table_id: int
    needed: tuple[KvSnapshot, ...]
    finished: frozenset[TableBucket]


@dataclass(frozen=True, slots=True)
class RejectCheckpoint(Effect):
    """Leave a checkpoint out from now on: rows of it cannot be read back."""

    ref: CheckpointRef
    reason: str


@dataclass(frozen=True, slots=True)
class VerifyCheckpoint(Effect):
    """Have all rows of a checkpoint read before a round goes on from it again."""

    ref: CheckpointRef


@dataclass(frozen=True, slots=True)
class InvalidateCheckpoints(Effect):
    """Let no round go on from a checkpoint of the table; `durable`: nor one of the next start."""

    table_id: int
    reason: str
    durable: bool


@dataclass(frozen=True, slots=True)
class LoseSnapshots(Effect):
    """Snapshots are gone that the round needs; without any it is not known which ones."""

    table_id: int
    gone: frozenset[KvSnapshot]
    why: str


@dataclass(frozen=True, slots=True)
class TellBackend(Effect):
    """Ask the lease backend what a failure means for what is leased."""

    failover: Failover


@dataclass(frozen=True, slots=True)
class KeepUp(Effect):
    """Do the upkeep that is due after a round; `landed`: it has just committed."""

    table: TableSpec
    snapshot_id: int | None
    offsets: Mapping[TableBucket, int]
    landed: bool


@dataclass(frozen=True, slots=True)
class CheckTarget(Effect):
    """Look whether the table has reached its target, which `once` waits for."""

    path: TablePath
    offsets: Mapping[TableBucket, int]
    buckets: Sequence[BucketState]


@dataclass(frozen=True, slots=True)
class Supersede(Effect):
    """Stop the service: a later start of it, named by its incarnation, took over."""

    by: str


# --- answers --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EffectDone:
    """An effect was executed, or, where `result` is None, it was given up before it had any consequence."""

    effect: Effect
    result: Any
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class EffectFailed:
    """An effect failed, or it is not known whether it happened: the error says which."""

    effect: Effect
    error: Exception
    seconds: float = 0.0
