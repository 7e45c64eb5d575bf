"""One attempt at a round, from its start to its end: its state, and how it is reported."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakeward.coordinator.commits.commit_account import CommitAccount
from lakeward.coordinator.workers.log_fields import fields_of_round
from lakeward.errors import UsageError
from lakeward.model.checkpoints import RoundSnapshot
from lakeward.model.results import sum_timings
from lakeward.model.round_record import RoundRecord
from lakeward.model.splits import LogSplit, SnapshotSplit
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
    from lakeward.coordinator.rounds.round_trace import RoundTrace
    from lakeward.model.checkpoints import CheckpointRef
    from lakeward.model.exchange import ExchangeState
    from lakeward.model.identity import RoundId
    from lakeward.model.results import LakeFile
    from lakeward.model.tables import TableBucket
    from lakeward.model.tiering import TableAssignment
    from lakeward.storage.round_journal import RoundJournal

_MS = 1000.0
_OFFSETS_MOST = 256
"""Buckets whose offsets are kept with a round; of a table with more, only their sum is."""


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
    finishing_early: bool = False
    """Whether it was to finish early before it had a job."""
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
    newest: CompletedCheckpoint | None = None
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
    def log_fields(self) -> Mapping[str, str]:
        """What each log line has that belongs to the round."""
        return fields_of_round(self.round_id, self.assignment.path)

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

    def account(
        self, shares: Sequence[SplitShare] | None = None, writers: Sequence[ExchangeState] | None = None
    ) -> CommitAccount:
        """Return the expected rows, files and offsets of a commit.

        Args:
            shares: which part of each split the commit contains; None for everything that the round has.
            writers: with an exchange and `shares`: the states of the checkpoint that the commit is made of.

        Raises:
            UsageError: the round has not started yet.
        """
        context = self._started("commit")
        if shares is None:
            progress = self.job.progress if self.job is not None else None
            shares = progress.shares() if progress is not None else ()
            writers = progress.writers.states if progress is not None and progress.writers is not None else None
        enumeration = context.enumeration
        landed = self.tiered()
        path = self.assignment.path
        return CommitAccount(path, enumeration.splits, enumeration.offsets, landed, self.in_lake, shares, writers)

    @property
    def goes_on_from(self) -> CheckpointRef | None:
        """The checkpoint that its next launch goes on from, None if it begins anew."""
        newest = self.job.checkpoints.newest if self.job is not None else None
        found = newest or self.restored
        return None if found is None else found.ref

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
        self.timings_s = sum_timings((self.timings_s, done.timings_s))

    def note_phase(self, phase: str, now_ms: int) -> None:
        """Add the time since the last call to a phase.

        Args:
            phase: its name, for people.
            now_ms: milliseconds since 1970.
        """
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
        if self.job is not None:
            return "" if "job" in self.timings_s else "job"
        return "lease" if self.context.enumeration.snapshots and "lease" not in self.timings_s else "launch"

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
            layout=context.layout.names,
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

    def lake_files(self) -> int | None:
        """Return how many files the lake table has after the round's last commit, None where its head did not say."""
        if self.context is None or self.context.head.files is None:
            return None
        before = self.restored.committed if self.restored is not None else frozenset()
        last = self.files() if self.outcome == "committed" else ()
        return self.context.head.files + len(self.in_lake - before) + len(last)

    def report(self, now_ms: int) -> RoundReport:
        """Describe the round for people.

        Args:
            now_ms: milliseconds since 1970.
        """
        there, asked = self.job.slots if self.job is not None and self.ended_ms is None else (0, 0)
        rows, size, done = self.job.counts() if self.job is not None else (0, 0, 0)
        seconds = max(((self.ended_ms or now_ms) - self.started_ms) / _MS, 0.001)
        files = self.files()
        failing = self.job.failing.cause if self.job is not None and self.ended_ms is None else None
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
            code=self.code or (failing.code if failing else ""),
            reason=self.reason or (failing.text if failing else ""),
            timings_s=self._timings(),
            checkpoint=self._checkpoint(),
            slots=there,
            slots_asked=asked,
            exchange=self.job.exchange() if self.job is not None else None,
            subtasks=self.job.subtasks() if self.job is not None and self.ended_ms is None else (),
            lag_rows=self.lag_rows() if self.outcome == "committed" else None,
        )

    def record(self, report: RoundReport) -> RoundRecord:
        """Describe the round, which has ended, as it is kept.

        Args:
            report: of the round.
        """
        ended_well = self.committed is not None
        offsets = self.committed or {}
        return RoundRecord(
            table=str(self.assignment.path),
            table_id=self.assignment.table_id,
            round=report.round_name,
            outcome=report.outcome,
            kind=self._kind_of_splits(),
            started_ms=report.started_ms,
            ended_ms=report.ended_ms or report.started_ms,
            rows=report.rows,
            splits=report.splits,
            splits_done=report.splits_done,
            files=report.files,
            size_bytes=report.size_bytes,
            snapshot_id=report.snapshot_id,
            timings_s=report.timings_s,
            offsets={str(one): offsets[one] for one in offsets} if len(offsets) <= _OFFSETS_MOST else {},
            end_offset=sum(offsets.values()) if ended_well else None,
            launches=0 if self.job is None else self.job.launches,
            failovers=self.failovers,
            checkpoints=self.checkpoints,
            aborted=self.aborted,
            resumed_from="" if self.restored is None else str(self.restored.ref),
            exchanged_bytes=None if report.exchange is None else report.exchange.sent_bytes,
            reason=report.reason,
            code=self.code,
            complete_ms=self.complete_ms(),
            freshness_s=self.assignment.freshness_s,
        )

    def _kind_of_splits(self) -> str:
        splits = self.context.enumeration.splits if self.context is not None else ()
        snapshots = any(isinstance(split, SnapshotSplit) for split in splits)
        log = any(isinstance(split, LogSplit) for split in splits)
        return " and ".join([*(["snapshots"] if snapshots else []), *(["log"] if log else [])])

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
            kind=_kind(done.state.exchange),
            channel_bytes=sum(one.segment.held_bytes for state in done.state.exchange for one in state.channels),
            open_row_bytes=sum(
                segment.held_bytes
                for state in done.state.exchange
                for rows in state.open_rows
                for segment in rows.segments
            ),
            blocked_s=round(max((state.blocked_s for state in done.state.exchange), default=0.0), 3),
        )

    def _timings(self) -> dict[str, float]:
        parts: list[Mapping[str, float]] = [self.timings_s]
        if self.job is not None:
            parts += [result.timings_s for result in self.job.progress.results.values()]
            exchange = self.job.exchange()
            parts += [] if exchange is None else [exchange.timings_s]
        total = sum_timings(parts)
        return {phase: round(seconds, 4) for phase, seconds in total.items()}


def _kind(states: Sequence[ExchangeState]) -> str:
    if not states:
        return ""
    return "unaligned" if any(state.unaligned for state in states) else "aligned"
