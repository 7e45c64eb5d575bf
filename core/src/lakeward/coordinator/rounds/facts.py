"""What is known of one round, from its start to its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakeward.coordinator.commits.commit_account import CommitAccount
from lakeward.coordinator.workers.log_fields import fields_of_round
from lakeward.errors import UsageError
from lakeward.model.checkpoints import RoundSnapshot
from lakeward.model.column_ids import written_columns
from lakeward.model.partitioning import ExchangeMode
from lakeward.model.results import sum_timings
from lakeward.model.tables import in_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakeward.coordinator.checkpoints.contents import RestoredRound
    from lakeward.coordinator.commits.commit_account import SplitShare
    from lakeward.coordinator.commits.round_committer import CommittedRound
    from lakeward.coordinator.rounds.checkpoints import CompletedCheckpoint
    from lakeward.coordinator.rounds.context import RoundContext
    from lakeward.coordinator.rounds.progress import RoundProgress
    from lakeward.coordinator.rounds.trace import RoundTrace
    from lakeward.model.checkpoints import CheckpointRef
    from lakeward.model.exchange import ExchangeState
    from lakeward.model.identity import RoundId
    from lakeward.model.results import LakeFile
    from lakeward.model.tables import TableBucket
    from lakeward.model.tiering import TableAssignment
    from lakeward.storage.round_journal import RoundJournal

_MS = 1000.0


@dataclass(slots=True)
class RoundFacts:
    """What is known of a round; only the round changes it. All below `number` is filled in as the round goes on."""

    assignment: TableAssignment
    round_id: RoundId
    started_ms: int
    number: int = 1
    """1 for the first attempt since the table's last successful round."""
    context: RoundContext | None = None
    journaled: bool = False
    """Whether the round may have a journal on disk."""
    journal: RoundJournal | None = None
    """As of its last commit that is known to have landed; on disk, a later commit may have added its ids."""
    launched: bool = False
    """Whether it has a job."""
    outcome: str = "running"
    reason: str = ""
    suspended: str = ""
    """Why its table waits for a person since it has ended; empty where it does not."""
    ended_ms: int | None = None
    snapshot_id: int | None = None
    committed: Mapping[TableBucket, int] | None = None
    lag_s: float | None = None
    timings_s: dict[str, float] = field(default_factory=dict)
    restored: RestoredRound | None = None
    """The checkpoint that it resumed from, None for a fresh round."""
    step: int = 1
    """Number of its next commit; above 1 only with `commit_every`."""
    base_commit: int | None = None
    """The newest commit with offsets that the round is based on."""
    in_lake: frozenset[str] = frozenset()
    """Paths of its files that an earlier step has committed."""
    stepped_at: float | None = None
    """When its newest commit within the round was started, in seconds on the service's clock."""
    last_files: int = 0
    """Files of its last commit."""
    newest: CompletedCheckpoint | None = None
    """The newest checkpoint that completed since its job began."""
    aborted: int = 0
    abort_reason: str = ""
    checkpoints: int = 0
    """Completed ones."""
    failovers: int = 0
    """So often splits came back from a subtask or job that was lost."""
    code: str = ""
    """Of the error that it failed with, empty where none of ours says why."""
    trace: RoundTrace | None = None
    """Takes the spans of the round, if somebody wants them."""

    @property
    def table_id(self) -> int:
        """Its table."""
        return self.assignment.table_id

    @property
    def log_fields(self) -> Mapping[str, str]:
        """What each log line has that belongs to the round."""
        return fields_of_round(self.round_id, self.assignment.path)

    def files(self, progress: RoundProgress | None) -> tuple[LakeFile, ...]:
        """Return the files that may be committed and are not in the lake yet."""
        files = progress.committable() if progress is not None else []
        return tuple(file for file in files if file.path not in self.in_lake)

    def offsets(self, progress: RoundProgress | None) -> Mapping[TableBucket, int]:
        """Return each bucket's offset after the round, as far as it is complete; never behind the lake's.

        A step may have committed what an early finish leaves out: a checkpoint held it, and its subtask was lost since.
        """
        if self.context is None:
            return {}
        return self.not_behind(progress.offsets() if progress is not None else self.context.enumeration.offsets)

    def not_behind(self, offsets: Mapping[TableBucket, int]) -> Mapping[TableBucket, int]:
        """Raise the offsets, of all buckets, to what the lake already contains.

        A split whose result an earlier step committed can be unfinished again: a checkpoint held the result, and its
        subtask was lost before the coordinator had received it. The rows are in the lake nevertheless.
        """
        if self.context is None:
            return offsets
        enumeration = self.context.enumeration
        ours = {state.bucket for state in self.context.buckets} | {split.bucket for split in enumeration.splits}
        ours |= enumeration.offsets.keys()  # the lake may also have offsets of an earlier table of that name
        behind = {
            bucket: offset
            for bucket, offset in self.tiered().items()
            if bucket in ours and offsets.get(bucket, -1) < offset
        }
        return {**offsets, **behind}

    def account(self, shares: Sequence[SplitShare], writers: Sequence[ExchangeState] | None) -> CommitAccount:
        """Return the expected rows, files and offsets of a commit.

        `shares`: which part of each split the commit contains. `writers`: with an exchange, the states that it is made
        of.

        Raises:
            UsageError: the round has not started yet.
        """
        context, path, landed = self.started("commit"), self.assignment.path, self.tiered()
        enumeration, most = context.enumeration, context.bad_rows_most
        return CommitAccount(path, enumeration.splits, enumeration.offsets, landed, self.in_lake, shares, writers, most)

    def is_step_due(self, every_s: float | None, now: float) -> bool:
        """Return whether the newest commit within the round, or its launch, is so many seconds ago."""
        return bool(every_s and self.stepped_at is not None and now - self.stepped_at >= every_s)

    @property
    def goes_on_from(self) -> CheckpointRef | None:
        """The checkpoint that its next launch goes on from, None if it begins anew."""
        found = self.newest or self.restored
        return None if found is None else found.ref

    def start_from(self, context: RoundContext, restored: RestoredRound | None = None) -> None:
        """Record what the round starts from; `restored` is the checkpoint its splits come from, None if it is fresh."""
        self.context = context
        self.base_commit = context.base_commit
        self.restored = restored
        if restored is not None:
            self.step, self.in_lake = restored.step, restored.committed

    def apply(self, done: CommittedRound) -> None:
        """Record a commit that landed."""
        self.snapshot_id, self.journal = done.snapshot_id, done.journal
        self.timings_s = sum_timings((self.timings_s, done.timings_s))

    def apply_step(self, offsets: Mapping[TableBucket, int], files: Iterable[LakeFile]) -> None:
        """Record that a step landed with these offsets and files, and that the round goes on."""
        self.committed = offsets
        self.step += 1
        self.base_commit = self.snapshot_id
        self.in_lake |= {file.path for file in files}

    def note_phase(self, phase: str, now_ms: int) -> None:
        """Add the time since the last call to a phase, named for people. `now_ms`: milliseconds since 1970."""
        spent = (now_ms - self.started_ms) / _MS
        self.timings_s[phase] = max(0.0, spent - sum(self.timings_s.values()))
        if self.trace is not None:
            self.trace.phase_ended(phase, now_ms)

    @property
    def opened_ms(self) -> int | None:
        """When source and lake had answered, in milliseconds since 1970; None until they have."""
        spent_s = self.timings_s.get("enumerate")
        return None if spent_s is None else self.started_ms + round(spent_s * _MS)

    @property
    def phase(self) -> str:
        """The phase that it is in; empty once its job has ended."""
        if self.context is None:
            return "enumerate"
        if self.launched:
            return "" if "job" in self.timings_s else "job"
        return "lease" if self.context.enumeration.snapshots and "lease" not in self.timings_s else "launch"

    def tiered(self) -> Mapping[TableBucket, int]:
        """Return the offsets in the lake: those of the round's last commit, or those that it started from."""
        if self.committed is not None:
            return self.committed
        return self.context.tiered if self.context is not None else {}

    def snapshot(self, progress: RoundProgress) -> RoundSnapshot:
        """Return the coordinator's part of a checkpoint.

        Raises:
            UsageError: it has not started yet.
        """
        context = self.started("take a checkpoint of")
        return RoundSnapshot(
            incarnation=str(self.round_id.incarnation),
            number=self.round_id.number,
            path=self.assignment.path,
            table_id=self.assignment.table_id,
            epoch=self.assignment.epoch,
            schema_id=context.table.schema_id,
            base_snapshot=context.head.snapshot_id,
            base_commit=self.base_commit,
            step=self.step,
            splits=context.enumeration.splits,
            before=in_order(context.enumeration.offsets),
            behind=context.enumeration.behind,
            finished=progress.finished(),
            committed=tuple(sorted(self.in_lake)),
            progress=progress.half_done(),
            layout=context.layout.names,
            lake_path=context.table.lake_path,
            columns=written_columns(context.table) if context.layout.exchange is ExchangeMode.HASH else (),
            gathered=context.gathered,
        )

    def started(self, what: str) -> RoundContext:
        """Return what it started from; `what` says, for the error, what that is needed for.

        Raises:
            UsageError: it has not started yet.
        """
        if self.context is None:
            message = f"round {self.round_id}: nothing to {what} before it has started"
            raise UsageError(message)
        return self.context

    def checkpoint_aborted(self, number: int, reason: str) -> None:
        """Record an aborted checkpoint for the report."""
        self.aborted += 1
        self.abort_reason = f"checkpoint {number}: {reason}"

    @property
    def never_tiered(self) -> bool:
        """Whether the lake had no commit of the table when the round started, and the round has made none."""
        return self.context is not None and self.base_commit is None and self.snapshot_id is None

    def lag_rows(self) -> int | None:
        """Return how many known records are not in the lake."""
        if self.context is None:
            return None
        return self.context.waiting_rows(self.tiered())

    def complete_ms(self) -> int | None:
        """Return a moment up to which the lake has all rows of the source; None if the round left some, or failed."""
        # It listed the buckets after its start, so what the source had at its start is in their known ends.
        return self.started_ms if self.outcome == "committed" and self.lag_rows() == 0 else None

    def complete_with(self, offsets: Mapping[TableBucket, int]) -> int | None:
        """Return the moment up to which the lake is complete with a commit of these offsets, None if unknown.

        A commit that leaves rows takes nothing away: what was complete before it still is.
        """
        context = self.started("commit")
        before = None if context.head.commit is None else context.head.commit.complete_ms
        if context.enumeration.behind or context.waiting_rows(offsets):
            return before
        return max(self.started_ms, before or 0)

    def lake_files(self) -> int | None:
        """Return how many files the lake table has after the round's last commit, None where its head did not say."""
        if self.context is None or self.context.head.files is None:
            return None
        before = self.restored.committed if self.restored is not None else frozenset()
        return self.context.head.files + len(self.in_lake - before) + self.last_files
