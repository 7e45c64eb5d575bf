"""Executes the commands of the rounds machine: starts, launches, finishes early, commits and ends rounds.

Worker threads get immutable inputs and return results; only the event loop changes a `RoundAttempt`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import structlog

from lakeward.coordinator.checkpoints.restorer import is_gone
from lakeward.coordinator.commits.round_committer import RoundCommit
from lakeward.coordinator.jobs.job import RoundJob
from lakeward.coordinator.rounds.alike_columns import AlikeColumns
from lakeward.coordinator.rounds.attempt import RoundAttempt
from lakeward.coordinator.rounds.context import RoundContext, start_round
from lakeward.coordinator.rounds.listener import RoundJobListener
from lakeward.coordinator.rounds.planner import PlannedRound
from lakeward.coordinator.rounds.round_end import log_end
from lakeward.coordinator.rounds.round_trace import RoundTrace, trace_commit
from lakeward.coordinator.workers.calls import call
from lakeward.coordinator.workers.log_fields import with_log_fields
from lakeward.errors import (
    FencedError,
    LakewardError,
    RowCountError,
    TableError,
    TableGoneError,
    UsageError,
    code_of,
    in_words,
)
from lakeward.machines.rounds import (
    Committed,
    Opened,
    RoundFailed,
    RoundFenced,
    TableGone,
    TargetReached,
)
from lakeward.model.identity import Incarnation, RoundId
from lakeward.model.partitioning import ExchangeMode
from lakeward.model.splits import SnapshotSplit

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from lakeward.coordinator.checkpoints.contents import CheckpointContents
    from lakeward.coordinator.checkpoints.restorer import RestoredRound, Restorer
    from lakeward.coordinator.checkpoints.round_checkpoints import CompletedCheckpoint
    from lakeward.coordinator.commits.cleaner import Cleaner
    from lakeward.coordinator.commits.commit_account import CommitAccount
    from lakeward.coordinator.commits.fence import CommitFence
    from lakeward.coordinator.commits.round_committer import RoundCommitter
    from lakeward.coordinator.commits.upkeep import Upkeep
    from lakeward.coordinator.rounds.attempts import RoundAttempts
    from lakeward.coordinator.rounds.planner import JobPlanner
    from lakeward.coordinator.rounds.ports import RoundsLoop, SnapshotProtection
    from lakeward.coordinator.workers.table_locks import TableHold, TableLocks
    from lakeward.model.results import LakeFile
    from lakeward.model.settings import LakeSettings, TableSettings
    from lakeward.model.spans import RoundSpan
    from lakeward.model.tables import BucketState, TableBucket, TablePath
    from lakeward.model.tiering import TableAssignment
    from lakeward.ports import CheckpointStore, Clock, Jobs, Lake, Source
    from lakeward.storage.commit_records import CommitRecords

_SUPERSEDED = frozenset({"committed", "idle", "dropped", "stale"})
"""Ends of a round after which its last checkpoint is useless: its rows are in the lake, or cannot be read any more."""
_log = structlog.get_logger("lakeward.rounds")


@dataclass(frozen=True, slots=True)
class RoundPolicy:
    """Settings of every round."""

    rules: Callable[[TablePath], TableSettings]
    lake: LakeSettings
    once: bool

    @property
    def commit_limit_s(self) -> float:
        """Seconds for all tries of a commit together, and for each call that prepares one."""
        return self.lake.commit_timeout_s * 4


class RoundExecutor:
    """Executes the commands of the rounds machine. Used on the event loop only."""

    def __init__(
        self,
        *,
        incarnation: Incarnation,
        clock: Clock,
        source: Source,
        lake: Lake,
        jobs: Jobs,
        checkpoints: CheckpointStore,
        committed: CommitRecords,
        attempts: RoundAttempts,
        locks: TableLocks,
        restorer: Restorer,
        planner: JobPlanner,
        fence: CommitFence,
        committer: RoundCommitter,
        cleaner: Cleaner,
        upkeep: Upkeep,
        loop: RoundsLoop,
        protection: SnapshotProtection,
        round_ended: Callable[[RoundAttempt], None],
        reached: Callable[[TablePath, Mapping[TableBucket, int], Sequence[BucketState]], bool],
        policy: RoundPolicy,
        on_span: Callable[[RoundSpan], None] | None = None,
    ) -> None:
        """Keep the collaborators; no round is in progress.

        Args:
            incarnation: ours.
            clock: the service's clock.
            source: where tables are read from.
            lake: where rounds are committed to.
            jobs: where their jobs run.
            checkpoints: where their checkpoints are stored.
            committed: the newest commit of each table.
            attempts: the rounds in progress.
            locks: one worker at a time for each lake table.
            restorer: finds the checkpoint that a round goes on from.
            planner: plans jobs.
            fence: says which rounds may commit.
            committer: commits them.
            cleaner: deletes what they left.
            upkeep: runs after a commit.
            loop: the service's event loop.
            protection: keeps KV snapshots leased.
            round_ended: is told of each round that has ended.
            reached: says whether a table has reached its target with these offsets, which `once` waits for.
            policy: settings of every round.
            on_span: takes the spans of rounds, None where nobody wants them; returns at once.
        """
        self._incarnation = incarnation
        self._clock = clock
        self._source = source
        self._lake = lake
        self._jobs = jobs
        self._checkpoints = checkpoints
        self._committed = committed
        self.attempts = attempts
        self._locks = locks
        self._restorer = restorer
        self._planner = planner
        self._fence = fence
        self._committer = committer
        self._cleaner = cleaner
        self._upkeep = upkeep
        self._loop = loop
        self._protection = protection
        self._round_ended = round_ended
        self._reached = reached
        self._policy = policy
        self._on_span = on_span
        self._alike = AlikeColumns()
        self._number = 0
        self._numbers: dict[int, tuple[int, int]] = {}
        """By table: its newest epoch, and the highest checkpoint number used in that epoch."""
        self._ending: list[RoundAttempt] = []
        """Rounds that have ended while their jobs still run."""
        self._cleaning = 0
        self._storing: dict[int, RoundAttempt] = {}
        """By table: a round that ended while a checkpoint of it was being stored."""

    # --- commands -------------------------------------------------------------------------------------------

    def start(self, assignment: TableAssignment, number: int = 1) -> None:
        """Start a round.

        Args:
            assignment: the table.
            number: which attempt it is since the table's last success.
        """
        self._number += 1
        round_id = RoundId(self._incarnation, assignment.table_id, assignment.epoch, self._number)
        attempt = RoundAttempt(assignment, round_id, self._clock.wall_ms(), number)
        if self._on_span is not None:
            attempt.trace = RoundTrace(round_id, assignment.path, attempt.started_ms, self._on_span)
        self.attempts.add(attempt)
        self._fence.begin(round_id, assignment)
        self._upkeep.begin_round(round_id)
        self._spawn(attempt, partial(self._start, attempt))

    def launch(self, table_id: int) -> None:
        """Write the journal and launch the job."""
        attempt = self.attempts[table_id]
        self._spawn(attempt, partial(self._launch, attempt))

    def finish_early(self, table_id: int) -> None:
        """Finish a round early; one whose job is still being planned, once it has it."""
        attempt = self.attempts.get(table_id)
        if attempt is None:
            return
        if attempt.job is None:
            attempt.finishing_early = True
        else:
            attempt.job.finish_early()

    def commit(self, table_id: int) -> None:
        """Commit a round."""
        attempt = self.attempts[table_id]
        self._spawn(attempt, partial(self._commit, attempt))

    def end(self, table_id: int, outcome: str, reason: str, suspended: str = "") -> None:
        """End a round: stop its job, report it, clean up what may be cleaned.

        Args:
            table_id: its table.
            outcome: as of `EndRound`.
            reason: why it failed, if it did.
            suspended: why its table waits for a person from now on, empty where it does not.
        """
        if outcome == "dropped":
            self._restorer.invalidate(table_id, "its table was dropped")
        attempt = self.attempts.remove(table_id)
        if attempt is None:
            return
        self._fence.end(attempt.round_id)
        if outcome == "committed" and attempt.snapshot_id is None:
            outcome = "failed" if reason else "idle"
        self._close_checkpoints(attempt, superseded=outcome in _SUPERSEDED)
        attempt.outcome, attempt.reason, attempt.suspended = outcome, reason, suspended
        attempt.ended_ms = self._clock.wall_ms()
        if attempt.job is not None and attempt.job.running:
            self._ending.append(attempt)
            if outcome != "committed":
                attempt.job.cancel()
        else:
            self._spawn(attempt, partial(self._clean, attempt))
        log_end(attempt, attempt.report(self._clock.wall_ms()))
        self._round_ended(attempt)

    def cancel_all(self) -> None:
        """Cancel every job; the service ends."""
        for attempt in [*self.attempts.values(), *self._ending]:
            if attempt.job is not None and attempt.job.running:
                attempt.job.cancel()

    # --- for the service and the server ---------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """True while jobs of ended rounds still run, or their files are being deleted."""
        return bool(self._ending) or self._cleaning > 0

    def find_job(self, round_name: str, job_attempt: int) -> RoundJob | None:
        """Return the job that a registering subtask belongs to."""
        for attempt in [*self.attempts.values(), *self._ending]:
            job = attempt.job
            if job is not None and str(attempt.round_id) == round_name:
                return job if job.launched is not None and job.launched.job_attempt == job_attempt else None
        return None

    def tick(self) -> None:
        """Let checkpoints start and expire; look for hung subtasks."""
        for attempt in [*self.attempts.values()]:
            if attempt.job is not None:
                attempt.job.tick()

    def forget(self, table_id: int) -> None:
        """Forget a table that the source has dropped."""
        self._numbers.pop(table_id, None)
        self._storing.pop(table_id, None)

    # --- for the rounds' jobs, see `AttemptOwner` -------------------------------------------------------------

    def is_current(self, attempt: RoundAttempt) -> bool:
        """Return whether a round is still the one in progress on its table."""
        return self.attempts.is_current(attempt)

    def job_ended(self, attempt: RoundAttempt) -> None:
        """Clean up after the last launch of a round: none of its tasks runs any more."""
        if attempt in self._ending:
            self._ending.remove(attempt)
            self._loop.wake()
            self._spawn(attempt, partial(self._clean, attempt))

    def checkpoint_storing(self, attempt: RoundAttempt, state: CheckpointContents) -> None:
        """Lease what a checkpoint needs before it is written: the round may end before the store answers."""
        self._restorer.expect(attempt.assignment.table_id, state)
        self._protection.hold_checkpoints()

    def checkpoint_done(self, attempt: RoundAttempt, done: CompletedCheckpoint) -> None:
        """Use a completed checkpoint: release leases of finished buckets, and commit a step of the round if due."""
        attempt.newest = done
        attempt.checkpoints += 1
        _log.info(
            "checkpoint completed",
            **attempt.log_fields,
            checkpoint=str(done.ref),
            seconds=round(done.seconds, 3),
            size_bytes=done.size_bytes,
        )
        table_id = attempt.assignment.table_id
        self._restorer.note(table_id, done.state)
        self._protection.hold_checkpoints()  # before any snapshot of the round is released
        self._protection.release(table_id, {result.bucket for result in done.state.finished.values()})
        due = self._is_step_due(attempt) and done.state.committable
        if due and self._fence.allows(attempt.round_id):  # else the step stays due until the table's next renewal
            attempt.stepped_at = self._clock.now()
            self._spawn(attempt, partial(self._commit_step, attempt, done))

    def step_due(self, attempt: RoundAttempt) -> bool:
        """Return whether a commit is to be made of a round's next checkpoint; never while a snapshot is to be read.

        Only the end of a snapshot has an offset, and with an exchange its rows are in files with those of others.
        """
        unfinished = attempt.job.splits.unfinished if attempt.job is not None else ()
        return self._is_step_due(attempt) and not any(isinstance(split, SnapshotSplit) for split in unfinished)

    def _is_step_due(self, attempt: RoundAttempt) -> bool:
        every = self._policy.rules(attempt.assignment.path).commit_every
        return bool(every and attempt.stepped_at is not None and self._clock.now() - attempt.stepped_at >= every)

    async def discard(self, attempt: RoundAttempt, files: Collection[str]) -> None:
        """Delete files that an attempt wrote after it no longer counted, except those that are needed.

        A checkpoint may reference some of these files, and a step may have been committed from that checkpoint.
        """
        assignment = attempt.assignment
        try:
            async with self._hold(attempt, "the deletion of rejected files") as held:
                discard = partial(self._cleaner.discard, assignment.path, assignment.table_id, files)
                await held.call(discard, what="delete rejected files")
        except LakewardError as error:
            _log.warning("rejected files stay until the round is cleaned", reason=str(error))

    def lose_table(self, attempt: RoundAttempt, reason: str) -> None:
        """End a round whose table is gone. Its assignment ends only if the table is gone in the source.

        Args:
            attempt: the round.
            reason: how that is known.
        """
        self._spawn(attempt, partial(self._lose_table, attempt, reason))

    def lose_checkpoint(self, attempt: RoundAttempt, reason: str) -> None:
        """Give up the checkpoint that a round's job goes on from: rows of it cannot be read back.

        Args:
            attempt: the round.
            reason: names the file and what is wrong with it.
        """
        found = attempt.goes_on_from
        if found is not None:
            self._restorer.reject(found, reason)

    def verify_checkpoint(self, attempt: RoundAttempt) -> None:
        """Have the rows read of the checkpoint that a job went on from which failed: a damaged file may be why."""
        if attempt.goes_on_from is not None:
            self._restorer.verify_rows(attempt.goes_on_from)

    # --- the steps of a round -------------------------------------------------------------------------------

    async def _start(self, attempt: RoundAttempt) -> None:
        await self._wait_for_last_checkpoint(attempt)
        path = attempt.assignment.path
        try:
            async with self._hold(attempt, "the opening", wait_s=self._policy.lake.commit_timeout_s) as held:
                if not self.is_current(attempt):
                    return
                context, restored = await held.call(
                    partial(self._find_start, attempt.assignment),
                    what=f"open {path}",
                    timeout_s=self._policy.commit_limit_s,
                )
        except Exception as error:  # noqa: BLE001 - one table's trouble, whatever it is, stays with that table
            self._fail(attempt, error)
            return
        if not self.is_current(attempt):
            return
        attempt.start_from(context, restored)
        if restored is not None:
            _log.info("the round goes on from a checkpoint", checkpoint=str(restored.ref))
        attempt.note_phase("enumerate", self._clock.wall_ms())
        enumeration = context.enumeration
        if not enumeration.splits:
            self._settle_target(attempt, context, context.tiered)
            attempt.lag_s = 0.0
        self._loop.post(
            Opened(
                now=self._clock.now(),
                table_id=attempt.assignment.table_id,
                splits=len(enumeration.splits),
                leases=bool(enumeration.snapshots),
            )
        )

    def _find_start(self, assignment: TableAssignment) -> tuple[RoundContext, RestoredRound | None]:
        """Return what a round starts from. Blocking."""
        path, us = assignment.path, self._incarnation
        rules = self._policy.rules(path)
        may_go_on = self._restorer.has(assignment.table_id)
        before = self._lake.head(path) if may_go_on else None
        gangs = not self._planner.settings.spark.dynamic_allocation
        context = start_round(self._source, self._lake, assignment, us, self._committed, rules, gangs=gangs)
        self._alike.look(context.table)
        # The stamp as it was before this start's; the newest commit as of now, for one may have landed since.
        head = None if before is None else replace(before, commit=context.head.commit)
        exchange = context.layout.exchange is ExchangeMode.HASH
        restored = self._restorer.find(context.table, head, exchange=exchange) if may_go_on else None
        newest = context.head.commit
        self._cleaner.before_round(path, None if newest is None else newest.snapshot_id)
        if restored is not None:
            # The round reads the checkpoint's splits, not what the buckets contain now.
            context = replace(context, enumeration=restored.state.enumeration())
        return context, restored

    async def _launch(self, attempt: RoundAttempt) -> None:
        context, assignment, round_id = attempt.context, attempt.assignment, attempt.round_id
        if context is None:
            return
        path = assignment.path
        # Before the journal is on disk: the commit of an earlier round that lands late would delete it otherwise.
        self._cleaner.begin(round_id)
        try:
            async with self._hold(attempt, "the launch", wait_s=self._policy.lake.commit_timeout_s) as held:
                attempt.journaled = True
                write = partial(self._committer.write_journal, round_id, path, context.head)
                attempt.journal = await held.call(
                    write, what=f"journal of {path}", timeout_s=self._policy.commit_limit_s
                )
                used, latest = partial(self.attempts.subtasks, besides=attempt), self._latest_checkpoint(attempt)
                planned = PlannedRound(assignment, round_id, context, attempt.restored, latest, used)
                plan = await held.call(
                    partial(self._planner.plan, planned, used()),
                    what=f"plan {path}",
                    timeout_s=self._policy.commit_limit_s,
                )
        except Exception as error:  # noqa: BLE001 - as in _start
            self._fail(attempt, error)
            return
        if not self.is_current(attempt) or self._loop.superseded_by:
            self._spawn(attempt, partial(self._clean, attempt))
            return
        attempt.stepped_at = self._clock.now()
        listener = RoundJobListener(self, attempt, clock=self._clock, loop=self._loop, protection=self._protection)
        attempt.job = RoundJob(plan, self._jobs, self._clock, listener)
        attempt.job.launch(self._loop.call_soon_threadsafe)
        if attempt.finishing_early:
            attempt.job.finish_early()
        attempt.note_phase("launch", self._clock.wall_ms())
        _log.info("round launched", splits=len(context.enumeration.splits), attempt=attempt.number)

    async def _commit(self, attempt: RoundAttempt) -> None:
        if attempt.job is not None:
            attempt.note_phase("job", self._clock.wall_ms())
        try:
            async with self._hold(attempt, "the commit", wait_s=self._policy.commit_limit_s) as held:
                context, offsets, files = attempt.context, attempt.offsets(), attempt.files()
                if context is None or not self.is_current(attempt):
                    return
                moved = dict(offsets) != dict(attempt.tiered())
                if moved:
                    commit = self._commit_of(attempt, context, offsets, files, attempt.account())
                    await self._send(held, attempt, commit, "commit")
        except Exception as error:  # noqa: BLE001 - as in _start
            self._fail(attempt, error)
            return
        attempt.committed = offsets
        self._upkeep.after_round(attempt.round_id, context.table, attempt.snapshot_id, offsets, landed=moved)
        if not self.is_current(attempt):
            _log.info("a round that was given up has committed after all")
            return
        self._settle_target(attempt, context, offsets)
        left = context.enumeration.behind or attempt.lag_rows() != 0
        self._loop.post(Committed(now=self._clock.now(), table_id=attempt.assignment.table_id, caught_up=not left))

    async def _commit_step(self, attempt: RoundAttempt, done: CompletedCheckpoint) -> None:
        """Commit the state of a checkpoint as a step, while the round continues."""
        try:
            async with self._hold(attempt, "the commit of a step", wait_s=self._policy.commit_limit_s) as held:
                offsets = attempt.not_behind(done.state.offsets())
                files = tuple(file for file in done.state.files() if file.path not in attempt.in_lake)
                context, moved = attempt.context, dict(offsets) != dict(attempt.tiered())
                if context is None or not moved or not self.is_current(attempt):
                    return
                if not self._fence.allows(
                    attempt.round_id
                ):  # the wait for the table's lock took longer than the fence time
                    return
                account = attempt.account(done.state.shares(), done.state.exchange or None)
                commit = self._commit_of(attempt, context, offsets, files, account)
                await self._send(held, attempt, commit, "step")
                attempt.committed = offsets
                attempt.step += 1
                attempt.base_commit = attempt.snapshot_id
                attempt.in_lake |= {file.path for file in files}
        except Exception as error:  # noqa: BLE001 - as in _start
            self._fail(attempt, error)
            return
        _log.info("committed a step of a round", files=len(files), snapshot_id=attempt.snapshot_id)

    def _commit_of(
        self,
        attempt: RoundAttempt,
        context: RoundContext,
        offsets: Mapping[TableBucket, int],
        files: tuple[LakeFile, ...],
        account: CommitAccount,
    ) -> RoundCommit:
        """Return what a worker is to commit."""
        return RoundCommit(
            round_id=attempt.round_id,
            journal=attempt.journal,
            head=context.head,
            step=attempt.step,
            base_commit=attempt.base_commit,
            table=context.table,
            offsets=offsets,
            files=files,
            account=account,
        )

    async def _send(self, held: TableHold, attempt: RoundAttempt, commit: RoundCommit, name: str) -> None:
        attempt.journaled = True
        what, limit = f"commit {attempt.assignment.path}", self._policy.commit_limit_s
        began = self._clock.now()
        try:
            done = await held.call(partial(self._committer.commit, commit), what=what, timeout_s=limit)
        except Exception as error:
            trace_commit(attempt.trace, self._clock, commit, name, began, error=str(error) or type(error).__name__)
            raise
        attempt.apply(done)
        trace_commit(attempt.trace, self._clock, commit, name, began, done=done)

    async def _wait_for_last_checkpoint(self, attempt: RoundAttempt) -> None:
        """Wait for the last checkpoint of the table's previous round: this round may resume from it."""
        earlier = self._storing.pop(attempt.assignment.table_id, None)
        if earlier is None or earlier.job is None:
            return
        try:
            async with asyncio.timeout(self._policy.lake.commit_timeout_s):
                await earlier.job.checkpoints.settled()
        except TimeoutError:
            _log.warning(
                "it is unknown whether a checkpoint is whole; the round does not wait for it any longer",
                checkpoint_of=str(earlier.round_id),
            )

    async def _clean(self, attempt: RoundAttempt) -> None:
        """Delete what an ended round left. A fenced round deletes nothing: another service may own its table."""
        self._cleaning += 1
        try:
            if attempt.job is not None:
                await attempt.job.checkpoints.settled()  # the sweep keeps the files that the checkpoint references
                await self._delete_parts(attempt.job)
            await self._clean_files(attempt)
        finally:
            self._cleaning -= 1

    async def _delete_parts(self, job: RoundJob) -> None:
        """Delete what subtasks stored for checkpoints that were aborted; now none of them runs any more."""
        aborted, newest = job.checkpoints.aborted, job.checkpoints.newest_with_rows
        for ref in aborted:
            await self._delete_left(f"parts of {ref}", partial(self._checkpoints.delete, ref))
        if newest is not None:
            await self._delete_left(f"rows up to {newest}", partial(self._checkpoints.delete_rows, newest))

    async def _delete_left(self, what: str, work: Callable[[], None]) -> None:
        try:
            await call(work, what=f"delete {what}")
        except LakewardError as error:
            _log.warning("left for the sweep", what=what, reason=str(error))

    async def _clean_files(self, attempt: RoundAttempt) -> None:
        self._cleaner.end(attempt.round_id)
        if attempt.outcome == "fenced" or not attempt.journaled:
            return
        job = attempt.job
        orphans = job is not None and (job.may_have_orphans or job.progress.leaves_files_out)
        try:
            async with self._hold(attempt, "the clean-up") as held:
                if attempt.outcome == "committed" and attempt.journal is not None:
                    sweep = partial(self._cleaner.sweep_prefix, attempt.journal, may_have_orphans=orphans)
                    await held.call(sweep, what="clean after a round")
                elif (
                    attempt.snapshot_id is None
                ):  # else some steps have landed: the table's next commit deletes the rest
                    end = partial(self._cleaner.end_round, attempt.round_id)
                    await held.call(end, what="clean after a failed round")
        except LakewardError as error:
            _log.warning("left-over files stay for the next start", reason=str(error))

    # --- helpers --------------------------------------------------------------------------------------------

    def _spawn(self, attempt: RoundAttempt, work: Callable[[], Coroutine[None, None, None]]) -> None:
        self._loop.spawn(with_log_fields(attempt.log_fields, work))

    def _hold(
        self, attempt: RoundAttempt, what: str, *, wait_s: float | None = None
    ) -> AbstractAsyncContextManager[TableHold]:
        return self._locks.hold(attempt.assignment.path, f"{what} of round {attempt.round_id}", wait_s=wait_s)

    def _latest_checkpoint(self, attempt: RoundAttempt) -> int:
        """Return the highest checkpoint number used so far in this epoch."""
        assignment, restored = attempt.assignment, attempt.restored
        epoch, number = self._numbers.get(assignment.table_id, (assignment.epoch, 0))
        own = number if epoch == assignment.epoch else 0
        if restored is None or restored.ref.incarnation != str(self._incarnation):
            return own
        return max(own, restored.ref.number)

    def _close_checkpoints(self, attempt: RoundAttempt, *, superseded: bool) -> None:
        if attempt.job is None:
            return
        checkpoints, assignment = attempt.job.checkpoints, attempt.assignment
        checkpoints.end(superseded=superseded)
        if checkpoints.awaits_store:
            self._storing[assignment.table_id] = attempt
        self._numbers[assignment.table_id] = (assignment.epoch, checkpoints.latest)

    def _fail(self, attempt: RoundAttempt, error: Exception) -> None:
        if not self.is_current(attempt):
            _log.info("a round that is over failed late", reason=str(error))
            return
        table_id = attempt.assignment.table_id
        reason = in_words(error)
        if not isinstance(error, LakewardError):
            _log.error("unexpected error", exc_info=error)
        attempt.code = code_of(error)
        if isinstance(error, TableGoneError):
            self.lose_table(attempt, reason)
        elif isinstance(error, FencedError):
            self._restorer.invalidate(table_id, str(error))
            self._fenced(attempt, error)
        else:
            if isinstance(error, RowCountError):  # a checkpoint may need the lost snapshots
                self._protection.invalidate(table_id, str(error))
            permanent = isinstance(error, TableError) and error.permanent and attempt.number >= error.tries
            self._loop.post(RoundFailed(now=self._clock.now(), table_id=table_id, reason=reason, permanent=permanent))

    async def _lose_table(self, attempt: RoundAttempt, reason: str) -> None:
        path, table_id = attempt.assignment.path, attempt.assignment.table_id
        try:
            gone = await call(partial(is_gone, self._source, path, table_id), what=f"look whether {path} is gone")
        except LakewardError as error:
            gone, reason = False, f"{reason}; {error}"
        if not self.is_current(attempt):
            return
        now = self._clock.now()
        if gone:
            self._loop.post(TableGone(now=now, table_id=table_id))
        else:
            self._loop.post(RoundFailed(now=now, table_id=table_id, reason=reason, permanent=False))

    def _fenced(self, attempt: RoundAttempt, error: FencedError) -> None:
        by = _parse(error.by)
        if by is not None and by.succeeds(self._incarnation):
            self._loop.supersede(error.by)
            return
        lost = by is not None and by != self._incarnation
        table_id = attempt.assignment.table_id
        self._loop.post(RoundFenced(now=self._clock.now(), table_id=table_id, reason=str(error), lost=lost))

    def _settle_target(self, attempt: RoundAttempt, context: RoundContext, offsets: Mapping[TableBucket, int]) -> None:
        path = attempt.assignment.path
        if self._policy.once and self._reached(path, offsets, context.buckets):
            self._loop.post(TargetReached(now=self._clock.now(), path=path))


def _parse(text: str) -> Incarnation | None:
    try:
        return Incarnation.parse(text)
    except UsageError:
        return None
