"""One try of a round, from its opening to its end: what the service keeps about it, and how it is reported."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakeward.coordinator.commit_account import CommitAccount
from lakeward.errors import UsageError
from lakeward.model.checkpoints import RoundSnapshot
from lakeward.model.status import CheckpointReport, RoundReport

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakeward.checkpoint.journal import RoundJournal
    from lakeward.coordinator.books import RoundBooks
    from lakeward.coordinator.checkpointing import CheckpointDone
    from lakeward.coordinator.commit_account import SplitShare
    from lakeward.coordinator.job import RoundJob
    from lakeward.coordinator.opening import Opening
    from lakeward.coordinator.restoring import Restored
    from lakeward.model.identity import RoundId
    from lakeward.model.results import LakeFile
    from lakeward.model.tables import TableBucket
    from lakeward.model.tiering import Offer

_MS = 1000.0


@dataclass(slots=True)
class RoundRun:
    """One try. Everything below `started_ms` is filled in as the round goes on."""

    offer: Offer
    round_id: RoundId
    started_ms: int
    attempt: int = 1
    """Which try since the table's last success."""
    opening: Opening | None = None
    journal: RoundJournal | None = None
    job: RoundJob | None = None
    outcome: str = "running"
    reason: str = ""
    ended_ms: int | None = None
    snapshot_id: int | None = None
    committed: Mapping[TableBucket, int] | None = None
    lag_s: float | None = None
    timings_s: dict[str, float] = field(default_factory=dict)
    restored: Restored | None = None
    """The checkpoint that it went on from, None for a fresh round."""
    step: int = 1
    """Number of its next commit; more than one with `commit_every`."""
    base_commit: int | None = None
    """The newest offset-carrying commit that it is based on."""
    in_lake: frozenset[str] = frozenset()
    """Paths of its files that an earlier step has committed."""
    stepped_at: float | None = None
    """When its newest step was begun, in seconds on the service's clock."""
    newest: CheckpointDone | None = None
    aborted: int = 0
    abort_reason: str = ""

    @property
    def over(self) -> bool:
        """True once its end was commanded."""
        return self.outcome != "running"

    def files(self) -> tuple[LakeFile, ...]:
        """Return the files that may be committed and are not yet."""
        files = self.job.books.committable() if self.job is not None else []
        return tuple(file for file in files if file.path not in self.in_lake)

    def offsets(self) -> Mapping[TableBucket, int]:
        """Return the offsets of all buckets after the round, as far as it is whole; never behind what is in the lake.

        A step may have committed what a cut leaves out: it was in a checkpoint, and its subtask could not say it again.
        """
        if self.opening is None:
            return {}
        offsets = self.job.books.offsets() if self.job is not None else self.opening.enumeration.offsets
        landed = self.committed if self.committed is not None else self.opening.tiered
        there = {state.bucket for state in self.opening.buckets}
        behind = {
            bucket: offset for bucket, offset in landed.items() if bucket in there and offsets.get(bucket, -1) < offset
        }
        return {**offsets, **behind}

    def account(self, shares: Sequence[SplitShare] | None = None) -> CommitAccount:
        """Return what a commit must come to.

        Args:
            shares: what it holds of each split; None for all that the round has.

        Raises:
            UsageError: the round is not open yet.
        """
        opening = self._opened("commit")
        if shares is None:
            shares = self.job.books.shares() if self.job is not None else ()
        enumeration = opening.enumeration
        landed = self.committed if self.committed is not None else opening.tiered
        path = self.offer.path
        return CommitAccount(path, enumeration.splits, enumeration.offsets, landed, self.in_lake, shares)

    def open_at(self, opening: Opening) -> None:
        """Write down what it starts from; a restored one starts from what its checkpoint says."""
        self.opening = opening
        self.base_commit = opening.base_commit
        if self.restored is not None:
            self.step, self.in_lake = self.restored.step, self.restored.committed

    def snapshot(self, books: RoundBooks) -> RoundSnapshot:
        """Return the coordinator's part of a checkpoint.

        Args:
            books: what the round has.

        Raises:
            UsageError: it is not open yet.
        """
        opening = self._opened("take a checkpoint of")
        return RoundSnapshot(
            round_id=self.round_id,
            path=self.offer.path,
            table_id=self.offer.table_id,
            epoch=self.offer.epoch,
            schema_id=opening.table.schema_id,
            base_snapshot=opening.head.snapshot_id,
            base_commit=self.base_commit,
            step=self.step,
            splits=opening.enumeration.splits,
            before=opening.enumeration.offsets,
            behind=opening.enumeration.behind,
            finished=books.finished(),
            committed=self.in_lake,
            progress=books.half_done(),
        )

    def _opened(self, what: str) -> Opening:
        if self.opening is None:
            message = f"round {self.round_id}: nothing to {what} before it is opened"
            raise UsageError(message)
        return self.opening

    def checkpoint_aborted(self, number: int, reason: str) -> None:
        """Remember for people that a checkpoint never happened."""
        self.aborted += 1
        self.abort_reason = f"checkpoint {number}: {reason}"

    def lag_rows(self) -> int | None:
        """Return how many known records are not in the lake."""
        if self.opening is None:
            return None
        return self.opening.waiting_rows(self.opening.tiered if self.committed is None else self.committed)

    def report(self, now_ms: int) -> RoundReport:
        """Describe the round for people.

        Args:
            now_ms: milliseconds since 1970.
        """
        rows, size, done = self.job.progress() if self.job is not None else (0, 0, 0)
        seconds = max(((self.ended_ms or now_ms) - self.started_ms) / _MS, 0.001)
        files = self.files()
        return RoundReport(
            round_name=str(self.round_id),
            outcome=self.outcome,
            started_ms=self.started_ms,
            ended_ms=self.ended_ms,
            rows=rows,
            splits=len(self.opening.enumeration.splits) if self.opening is not None else 0,
            splits_done=done,
            files=len(files),
            size_bytes=sum(file.size_bytes for file in files) or size,
            rows_per_s=rows / seconds,
            snapshot_id=self.snapshot_id,
            reason=self.reason,
            timings_s=self._timings(),
            checkpoint=self._checkpoint(),
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
        for result in self.job.books.results.values() if self.job is not None else ():
            for phase, seconds in result.timings_s.items():
                total[phase] = total.get(phase, 0.0) + seconds
        return {phase: round(seconds, 4) for phase, seconds in total.items()}
