"""One attempt at a round, from its start to its end: its state, and how it is reported."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakeward.coordinator.commits.commit_account import CommitAccount
from lakeward.errors import UsageError
from lakeward.model.checkpoints import RoundSnapshot
from lakeward.model.status import CheckpointReport, RoundReport

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakeward.coordinator.checkpoints.restorer import RestoredRound
    from lakeward.coordinator.checkpoints.round_checkpoints import CompletedCheckpoint
    from lakeward.coordinator.commits.commit_account import SplitShare
    from lakeward.coordinator.commits.round_committer import CommittedRound
    from lakeward.coordinator.jobs.job import RoundJob
    from lakeward.coordinator.jobs.progress import RoundProgress
    from lakeward.coordinator.rounds.context import RoundContext
    from lakeward.model.identity import RoundId
    from lakeward.model.results import LakeFile
    from lakeward.model.tables import TableBucket
    from lakeward.model.tiering import TableAssignment
    from lakeward.storage.round_journal import RoundJournal

_MS = 1000.0


@dataclass(slots=True)
class RoundAttempt:
    """One attempt, changed by the event loop alone. Everything below `started_ms` is filled in as the round goes on."""

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
    job: RoundJob | None = None
    outcome: str = "running"
    reason: str = ""
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
    newest: CompletedCheckpoint | None = None
    aborted: int = 0
    abort_reason: str = ""

    def files(self) -> tuple[LakeFile, ...]:
        """Return the files that may be committed and are not in the lake yet."""
        files = self.job.progress.committable() if self.job is not None else []
        return tuple(file for file in files if file.path not in self.in_lake)

    def offsets(self) -> Mapping[TableBucket, int]:
        """Return each bucket's offset after the round, as far as it is complete; never behind the lake's.

        A step may have committed what an early finish leaves out: a checkpoint held it, and its subtask was lost since.
        """
        if self.context is None:
            return {}
        return self.not_behind(
            self.job.progress.offsets() if self.job is not None else self.context.enumeration.offsets
        )

    def not_behind(self, offsets: Mapping[TableBucket, int]) -> Mapping[TableBucket, int]:
        """Raise each bucket's offset to what the lake already contains.

        A split whose result an earlier step committed can be unfinished again: a checkpoint held the result, and its
        subtask was lost before the coordinator had received it. The rows are in the lake nevertheless.

        Args:
            offsets: of all buckets, as far as the round or its checkpoint is.
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

    def account(self, shares: Sequence[SplitShare] | None = None) -> CommitAccount:
        """Return the expected rows, files and offsets of a commit.

        Args:
            shares: which part of each split the commit contains; None for everything that the round has.

        Raises:
            UsageError: the round has not started yet.
        """
        context = self._started("commit")
        if shares is None:
            shares = self.job.progress.shares() if self.job is not None else ()
        enumeration = context.enumeration
        landed = self.tiered()
        path = self.assignment.path
        return CommitAccount(path, enumeration.splits, enumeration.offsets, landed, self.in_lake, shares)

    def start_from(self, context: RoundContext, restored: RestoredRound | None = None) -> None:
        """Record what the round starts from.

        Args:
            context: the table, the lake's head and the splits.
            restored: the checkpoint that these splits come from, None for a fresh round.
        """
        self.context = context
        self.base_commit = context.base_commit
        self.restored = restored
        if restored is not None:
            self.step, self.in_lake = restored.step, restored.committed

    def apply(self, done: CommittedRound) -> None:
        """Record a commit that landed."""
        self.snapshot_id, self.journal = done.snapshot_id, done.journal
        for phase, seconds in done.timings_s.items():
            self.timings_s[phase] = self.timings_s.get(phase, 0.0) + seconds

    def note_phase(self, phase: str, now_ms: int) -> None:
        """Add the time since the last call to a phase.

        Args:
            phase: its name, for people.
            now_ms: milliseconds since 1970.
        """
        spent = (now_ms - self.started_ms) / _MS
        self.timings_s[phase] = max(0.0, spent - sum(self.timings_s.values()))

    def tiered(self) -> Mapping[TableBucket, int]:
        """Return the offsets in the lake: those of the round's last commit, or those that it started from."""
        if self.committed is not None:
            return self.committed
        return self.context.tiered if self.context is not None else {}

    def snapshot(self, progress: RoundProgress) -> RoundSnapshot:
        """Return the coordinator's part of a checkpoint.

        Args:
            progress: the round's splits and results.

        Raises:
            UsageError: it has not started yet.
        """
        context = self._started("take a checkpoint of")
        return RoundSnapshot(
            round_id=self.round_id,
            path=self.assignment.path,
            table_id=self.assignment.table_id,
            epoch=self.assignment.epoch,
            schema_id=context.table.schema_id,
            base_snapshot=context.head.snapshot_id,
            base_commit=self.base_commit,
            step=self.step,
            splits=context.enumeration.splits,
            before=context.enumeration.offsets,
            behind=context.enumeration.behind,
            finished=progress.finished(),
            committed=self.in_lake,
            progress=progress.half_done(),
        )

    def _started(self, what: str) -> RoundContext:
        if self.context is None:
            message = f"round {self.round_id}: nothing to {what} before it has started"
            raise UsageError(message)
        return self.context

    def checkpoint_aborted(self, number: int, reason: str) -> None:
        """Record an aborted checkpoint for the report."""
        self.aborted += 1
        self.abort_reason = f"checkpoint {number}: {reason}"

    def lag_rows(self) -> int | None:
        """Return how many known records are not in the lake."""
        if self.context is None:
            return None
        return self.context.waiting_rows(self.tiered())

    def report(self, now_ms: int) -> RoundReport:
        """Describe the round for people.

        Args:
            now_ms: milliseconds since 1970.
        """
        there, asked = self.job.slots if self.job is not None and self.ended_ms is None else (0, 0)
        rows, size, done = self.job.counts() if self.job is not None else (0, 0, 0)
        seconds = max(((self.ended_ms or now_ms) - self.started_ms) / _MS, 0.001)
        files = self.files()
        return RoundReport(
            round_name=str(self.round_id),
            outcome=self.outcome,
            started_ms=self.started_ms,
            ended_ms=self.ended_ms,
            rows=rows,
            splits=len(self.context.enumeration.splits) if self.context is not None else 0,
            splits_done=done,
            files=len(files),
            size_bytes=sum(file.size_bytes for file in files) or size,
            rows_per_s=rows / seconds,
            snapshot_id=self.snapshot_id,
            reason=self.reason,
            timings_s=self._timings(),
            checkpoint=self._checkpoint(),
            slots=there,
            slots_asked=asked,
        )

    def _checkpoint(self) -> CheckpointReport | None:
        done = self.newest
        if done is None:
            return CheckpointReport(aborted=self.aborted, reason=self.abort_reason) if self.aborted else None
        return CheckpointReport(
            name=str(done.ref),
            completed_ms=done.completed_ms,
            seconds=round(done.seconds, 4),
            size_bytes=done.size_bytes,
            aborted=self.aborted,
            reason=self.abort_reason,
        )

    def _timings(self) -> dict[str, float]:
        total = dict(self.timings_s)
        for result in self.job.progress.results.values() if self.job is not None else ():
            for phase, seconds in result.timings_s.items():
                total[phase] = total.get(phase, 0.0) + seconds
        return {phase: round(seconds, 4) for phase, seconds in total.items()}
