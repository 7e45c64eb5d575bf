"""Passes events of a round's job to the round, as long as that round is the one in progress on its table."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from lakeward.coordinator.workers.log_fields import with_log_fields
from lakeward.errors import CorruptFileError, SnapshotGoneError, TableGoneError
from lakeward.machines.rounds import Drained, JobStarted, RoundFailed, SplitsFailing
from lakeward.model.leases import Failover, FailoverKind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine

    from lakeward.coordinator.checkpoints.contents import CheckpointContents
    from lakeward.coordinator.checkpoints.round_checkpoints import CompletedCheckpoint
    from lakeward.coordinator.jobs.progress import RoundProgress
    from lakeward.coordinator.rounds.attempt import RoundAttempt
    from lakeward.coordinator.rounds.ports import RoundsLoop, SnapshotProtection
    from lakeward.machines.rounds import RoundsEvent
    from lakeward.model.checkpoints import LeaseCopy, RoundSnapshot
    from lakeward.model.results import LakeFile
    from lakeward.model.splits import Split
    from lakeward.model.tables import KvSnapshot
    from lakeward.ports import Clock


class AttemptOwner(Protocol):
    """Keeps the rounds in progress; `RoundExecutor` implements it."""

    def is_current(self, attempt: RoundAttempt) -> bool:
        """Return whether a round is still the one in progress on its table."""
        ...

    def lose_table(self, attempt: RoundAttempt, reason: str) -> None:
        """End a round whose table is gone."""
        ...

    def lose_checkpoint(self, attempt: RoundAttempt, reason: str) -> None:
        """Give up the checkpoint that a round's job goes on from."""
        ...

    def verify_checkpoint(self, attempt: RoundAttempt) -> None:
        """Have the rows of the job's checkpoint read before a round goes on from it again."""
        ...

    def job_ended(self, attempt: RoundAttempt) -> None:
        """The last launch of a round has ended."""
        ...

    async def discard(self, attempt: RoundAttempt, files: Collection[str]) -> None:
        """Delete files of a round that no longer count."""
        ...

    def step_due(self, attempt: RoundAttempt) -> bool:
        """Return whether a commit is to be made of a round's next checkpoint."""
        ...

    def checkpoint_storing(self, attempt: RoundAttempt, state: CheckpointContents) -> None:
        """A checkpoint is about to be written."""
        ...

    def checkpoint_done(self, attempt: RoundAttempt, done: CompletedCheckpoint) -> None:
        """A checkpoint is complete."""
        ...


class RoundJobListener:
    """Passes events of one round's job on, as long as that round is the one in progress. See `JobListener`."""

    def __init__(
        self,
        owner: AttemptOwner,
        attempt: RoundAttempt,
        *,
        clock: Clock,
        loop: RoundsLoop,
        protection: SnapshotProtection,
    ) -> None:
        """Keep the round."""
        self._owner = owner
        self._attempt = attempt
        self._clock = clock
        self._loop = loop
        self._protection = protection
        self._table_id = attempt.assignment.table_id

    def job_started(self) -> None:
        """See `JobListener`."""
        self._post(JobStarted(now=self._clock.now(), table_id=self._table_id))

    def splits_failing(self, *, failing: bool) -> None:
        """See `JobListener`."""
        self._post(SplitsFailing(now=self._clock.now(), table_id=self._table_id, failing=failing))

    def job_drained(self, *, finished_early: bool, failing: str, code: str) -> None:
        """See `JobListener`."""
        self._attempt.code = code
        now, table_id = self._clock.now(), self._table_id
        self._post(Drained(now=now, table_id=table_id, finished_early=finished_early, failing=failing))

    def job_failed(self, reason: str, *, permanent: bool, code: str = "") -> None:
        """See `JobListener`."""
        if not permanent and self._owner.is_current(self._attempt):
            self._owner.verify_checkpoint(self._attempt)
        self._post_failure(reason, permanent=permanent, code=code)

    def job_lost_snapshot(self, lost: frozenset[KvSnapshot], reason: str) -> None:
        """See `JobListener`."""
        if self._owner.is_current(self._attempt):
            self._attempt.code = SnapshotGoneError.code
            self._protection.snapshots_gone(self._table_id, lost, reason)

    def job_lost_table(self) -> None:
        """See `JobListener`."""
        if self._owner.is_current(self._attempt):
            reason = f"table {self._attempt.assignment.path}: a subtask says that it is gone"
            self._attempt.code = TableGoneError.code
            self._owner.lose_table(self._attempt, reason)

    def job_lost_checkpoint(self, reason: str) -> None:
        """See `JobListener`: the table's next round goes on from an older one, or starts without."""
        if self._owner.is_current(self._attempt):
            self._owner.lose_checkpoint(self._attempt, reason)
            self._post_failure(reason, checkpoint_lost=True, code=CorruptFileError.code)

    def splits_returned(self, kind: FailoverKind, attempt: int, splits: tuple[Split, ...]) -> None:
        """See `JobListener`."""
        self._attempt.failovers += 1
        failover = Failover(kind=kind, attempt=attempt, returned=splits)
        self._spawn(partial(self._protection.failover, failover))

    def files_rejected(self, files: Collection[LakeFile]) -> None:
        """See `JobListener`."""
        paths = [file.path for file in files]
        if paths:
            self._spawn(partial(self._owner.discard, self._attempt, paths))

    def job_ended(self) -> None:
        """See `JobListener`."""
        self._owner.job_ended(self._attempt)

    def snapshot(self, progress: RoundProgress) -> RoundSnapshot:
        """See `JobListener`."""
        return self._attempt.snapshot(progress)

    def lease_copy(self) -> LeaseCopy | None:
        """See `CheckpointListener`."""
        return self._protection.lease_copy()

    def step_due(self) -> bool:
        """See `CheckpointListener`."""
        return self._owner.is_current(self._attempt) and self._owner.step_due(self._attempt)

    def checkpoint_storing(self, state: CheckpointContents) -> None:
        """See `CheckpointListener`."""
        if self._owner.is_current(self._attempt):
            self._owner.checkpoint_storing(self._attempt, state)

    def checkpoint_done(self, done: CompletedCheckpoint) -> None:
        """See `CheckpointListener`."""
        if self._owner.is_current(self._attempt):
            self._owner.checkpoint_done(self._attempt, done)

    def checkpoint_aborted(self, number: int, reason: str) -> None:
        """See `CheckpointListener`."""
        self._attempt.checkpoint_aborted(number, reason)

    def _spawn(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        self._loop.spawn(with_log_fields(self._attempt.log_fields, work))

    def _post_failure(self, reason: str, *, code: str, permanent: bool = False, checkpoint_lost: bool = False) -> None:
        if self._owner.is_current(self._attempt):
            self._attempt.code = code
        event = RoundFailed(
            now=self._clock.now(),
            table_id=self._table_id,
            reason=reason,
            permanent=permanent,
            checkpoint_lost=checkpoint_lost,
        )
        self._post(event)

    def _post(self, event: RoundsEvent) -> None:
        if self._owner.is_current(self._attempt):
            self._loop.post(event)
