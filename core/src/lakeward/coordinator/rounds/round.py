"""One round of a table: one queue, the machines of its job, and what it wants done outside."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

import structlog

from lakeward.coordinator.commits.round_committer import CommittedRound, RoundCommit
from lakeward.coordinator.rounds import job_events as jobs
from lakeward.coordinator.rounds.checkpoints import CheckpointCompleted, CheckpointGivenUp
from lakeward.coordinator.rounds.effects import (
    CheckTarget,
    CleanUp,
    Commit,
    CompleteCheckpoint,
    CountFreeSlots,
    Discard,
    Effect,
    EffectDone,
    EffectFailed,
    InvalidateCheckpoints,
    KeepCheckpoint,
    KeepUp,
    LookForTable,
    LoseSnapshots,
    OpenTable,
    Plan,
    RejectCheckpoint,
    Supersede,
    Tell,
    TellBackend,
    VerifyCheckpoint,
)
from lakeward.coordinator.rounds.job import Job
from lakeward.coordinator.rounds.job_events import AttemptUseless, Next
from lakeward.coordinator.rounds.messages import to_event
from lakeward.coordinator.rounds.trace import trace_commit
from lakeward.errors import (
    CorruptFileError,
    FencedError,
    IllegalEventError,
    LakewardError,
    RowCountError,
    SnapshotGoneError,
    TableError,
    TableGoneError,
    UsageError,
    code_of,
    in_words,
)
from lakeward.machines.launches import LaunchFinished, LaunchRequested, RoundOver, StoreAnswered
from lakeward.machines.rounds import (
    CommitRound,
    Committed,
    Drained,
    EndRound,
    FinishRoundEarly,
    JobStarted,
    LaunchJob,
    Opened,
    OpenRound,
    RoundFailed,
    RoundFenced,
    SplitsFailing,
    TableGone,
)
from lakeward.machines.splits import FinishEarlyRequested
from lakeward.machines.transport.channel import Channel
from lakeward.model.dead_letters import path_of, split_files
from lakeward.model.events import Cancel, Failed, Heartbeat, Progress, SplitFinished, SubtaskDone
from lakeward.model.identity import Incarnation
from lakeward.model.leases import Failover

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.coordinator.checkpoints.contents import CheckpointContents
    from lakeward.coordinator.commits.commit_account import CommitAccount, SplitShare
    from lakeward.coordinator.commits.fence import CommitFence
    from lakeward.coordinator.rounds.facts import RoundFacts
    from lakeward.coordinator.rounds.progress import RoundProgress
    from lakeward.machines.transport.channel import ChannelKey
    from lakeward.model.events import Envelope, Register
    from lakeward.model.exchange import ExchangeState
    from lakeward.model.jobs import JobSpec
    from lakeward.model.results import LakeFile
    from lakeward.model.tables import TableBucket
    from lakeward.ports import Clock, Connection

_SUPERSEDED = frozenset({"committed", "idle", "dropped", "stale"})
"""Ends of a round after which its last checkpoint is useless: its rows are in the lake, or cannot be read any more."""
_log = structlog.get_logger("lakeward.rounds")


@dataclass(frozen=True, slots=True)
class LaunchGone:
    """Spark says that a launch is over, and why if it failed."""

    spec: JobSpec
    reason: str | None


@dataclass(frozen=True, slots=True)
class RoundTick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The service ends: what its tasks write from now on does not count."""


class Round:
    """One round, from its opening to the end of its last task. Used on the event loop only."""

    def __init__(self, facts: RoundFacts, clock: Clock, fence: CommitFence) -> None:
        """Begin a round; nothing is done before the first event."""
        self.facts = facts
        self.job: Job | None = None
        self.ended = False
        """True once it has ended: it tells the machine of all tables nothing more."""
        self._clock = clock
        self._fence = fence
        self._queue: deque[Any] = deque()
        self._effects: list[Effect] = []
        self._taking = False
        self._finishing_early = False
        """Whether it was to finish early before it had a job."""
        self._pending = 0
        """Plans and commits that are being made."""
        self._commit_wanted = False
        """The round is to be committed once the commit of a step is over."""
        self._cleaned = False

    # --- the process ----------------------------------------------------------------------------------------

    def process(self, *events: object) -> tuple[Effect, ...]:
        """Take events, and all that follow from them; return what is to be done outside.

        Raises:
            IllegalEventError: a machine does not allow an event; that event has changed nothing.
        """
        self._queue.extend(events)
        if self._taking:
            return ()  # an event that came while another is taken: that call takes it as well
        self._taking = True
        try:
            while self._queue:
                for follows in self._take(self._queue.popleft()):
                    if isinstance(follows, Effect):
                        self._effects.append(follows)
                    elif isinstance(follows, Next):
                        self._queue.appendleft(follows.event)
                    else:
                        self._queue.append(follows)
        finally:
            self._taking = False
        effects, self._effects = tuple(self._effects), []
        return effects

    def _take(self, event: object) -> Iterable[Any]:
        own = self._EVENTS.get(type(event))
        if own is not None:
            return own(self, event)
        return () if self.job is None else self.job.take(event)

    @property
    def running(self) -> bool:
        """True while a launch is under way, or about to be made again."""
        return self.job is not None and self.job.running

    @property
    def awaits_store(self) -> bool:
        """True while it is not known whether its newest checkpoint is complete."""
        return self.job is not None and self.job.checkpoints.awaits_store

    @property
    def at_rest(self) -> bool:
        """True once it has ended, none of its tasks runs and nothing that it wanted done is under way."""
        return self.ended and not self.running and not self._pending and not self.awaits_store

    @property
    def leaves_nothing(self) -> bool:
        """True while nothing was written of it that would have to be deleted: it has no journal, and no job."""
        return not self.facts.journaled

    @property
    def subtasks(self) -> int:
        """How many subtasks it has launched."""
        return 0 if self.job is None or self.job.launched is None else self.job.launched.subtasks

    @property
    def slots_wanted(self) -> int:
        """How many subtasks it has launched; before the first launch, how many it could use."""
        context = self.facts.context
        return self.subtasks or (0 if context is None else len(context.enumeration.splits))

    def is_launch(self, job_attempt: int) -> bool:
        """Return whether a launch is the one under way."""
        launched = None if self.job is None else self.job.launched
        return launched is not None and launched.job_attempt == job_attempt

    # --- subtasks -------------------------------------------------------------------------------------------

    def connect(self, register: Register, connection: Connection) -> tuple[ChannelKey | None, tuple[Effect, ...]]:
        """Take a new connection: of a new attempt, or of one whose connection closed.

        Returns the attempt, None if it does not count, and what is to be done.
        """
        job = self.job
        if job is None or not job.is_of_launch(register.subtask):
            return None, ()
        if register.attempt is not None:
            attempt = job.subtasks.find(register.subtask, register.attempt)
            if attempt is None:
                return None, ()
            return attempt.key, self.process(*job.readmit(attempt, connection))
        registration = job.register(register, connection)
        effects = self.process(*job.subtasks.registered(registration, self._clock.now()))
        return (registration.key if job.subtasks.greet(registration) else None), effects

    def receive(self, key: ChannelKey, connection: Connection, envelope: Envelope) -> tuple[Effect, ...]:
        """Take a message of an attempt; one that breaks the protocol fails the attempt.

        Raises:
            ProtocolError: the connection has to be closed.
        """
        job = cast("Job", self.job)
        attempt = job.subtasks.find(key.subtask, key.task_attempt)
        if attempt is None or job.launches.ended:
            return self._receive_late(job, key, connection, envelope)
        attempt.seen = self._clock.now()
        message = attempt.receive(envelope)
        effects: tuple[Effect, ...] = ()
        if isinstance(message, Progress):
            attempt.progress = message
        elif message is not None:
            attempt.done = attempt.done or isinstance(message, SubtaskDone)
            attempt.wrote_last = attempt.wrote_last or isinstance(message, SubtaskDone | Failed)
            event = to_event(message, key, now=self._clock.now(), sequence=envelope.sequence)
            try:
                effects = self.process(*(() if event is None else (event,)))
            except IllegalEventError as error:
                return self.process(AttemptUseless(key.subtask, key.task_attempt, str(error)))
        if not envelope.sequence and not isinstance(envelope.event, Heartbeat):
            return effects
        attempt.acknowledge()
        counts = job.subtasks.find(key.subtask, key.task_attempt) is attempt
        return (*effects, *(self.process(*job.counted(attempt)) if counts else ()))

    def disconnect(self, key: ChannelKey, connection: Connection) -> tuple[Effect, ...]:
        """Take the end of a connection."""
        return () if self.job is None else self.process(*self.job.disconnected(key, connection))

    def _receive_late(
        self, job: Job, key: ChannelKey, connection: Connection, envelope: Envelope
    ) -> tuple[Effect, ...]:
        """Refuse a message of an attempt that does not count any more, and what it has written."""
        job.may_have_orphans = True
        connection.send(Channel(key, "down").send(Cancel(reason="replaced by a newer attempt")))
        if not isinstance(envelope.event, SplitFinished):
            return ()
        return self.process(*job.reject_files(envelope.event.result.files))

    # --- what the machine of all tables orders ----------------------------------------------------------------

    def _open(self, command: OpenRound) -> Iterable[Any]:
        yield OpenTable(command.assignment)

    def _plan(self, _: LaunchJob) -> Iterable[Any]:
        facts = self.facts
        if facts.context is not None:
            facts.journaled = True
            self._pending += 1
            yield Plan(facts.assignment, facts.round_id, facts.context, facts.restored)

    def _finish_early(self, _: FinishRoundEarly) -> Iterable[Any]:
        """Assign no more splits, stop log splits where they are, and take no more checkpoints."""
        self._finishing_early = True
        if self.job is not None:
            yield from self.job.checkpoints.end()
            yield FinishEarlyRequested(now=self._clock.now())

    def _commit_wanted_now(self, _: CommitRound) -> Iterable[Any]:
        if self.job is not None:
            self.facts.note_phase("job", self._clock.wall_ms())
        if self._pending:
            self._commit_wanted = True  # what the commit of a step adds is not known before it is over
            return ()
        return self._commit()

    def _end(self, command: EndRound) -> Iterable[Any]:
        """End: stop the job, and clean up once none of its tasks runs."""
        facts, outcome = self.facts, command.outcome
        if outcome == "committed" and facts.snapshot_id is None:
            outcome = "failed" if command.reason else "idle"
        facts.outcome, facts.reason, facts.suspended = outcome, command.reason, command.suspended
        facts.ended_ms = self._clock.wall_ms()
        self.ended = True
        if self.job is not None:
            yield from self.job.checkpoints.end(superseded=outcome in _SUPERSEDED)
            if outcome != "committed":
                yield RoundOver(now=self._clock.now())
        yield from self._clean_up()

    def _cancel(self, _: Cancelled) -> Iterable[Any]:
        if self.job is not None:
            yield from self.job.checkpoints.end()
            yield RoundOver(now=self._clock.now())

    def _tick(self, _: RoundTick) -> Iterable[Any]:
        return () if self.job is None else self.job.tick()

    # --- what was done ----------------------------------------------------------------------------------------

    def _done(self, done: EffectDone) -> Iterable[Any]:
        return self._DONE[type(done.effect)](self, done)

    def _not_done(self, failure: EffectFailed) -> Iterable[Any]:
        return self._NOT_DONE[type(failure.effect)](self, failure)

    def _opened(self, done: EffectDone) -> Iterable[Any]:
        facts = self.facts
        if self.ended:
            return
        context, restored = done.result
        facts.start_from(context, restored)
        if restored is not None:
            _log.info("the round goes on from a checkpoint", **facts.log_fields, checkpoint=str(restored.ref))
        facts.note_phase("enumerate", self._clock.wall_ms())
        enumeration = context.enumeration
        if not enumeration.splits:
            facts.lag_s = 0.0
            yield CheckTarget(facts.assignment.path, context.tiered, context.buckets)
        now, leases = self._clock.now(), bool(enumeration.snapshots)
        yield Tell(Opened(now=now, table_id=facts.table_id, splits=len(enumeration.splits), leases=leases))

    def _planned(self, done: EffectDone) -> Iterable[Any]:
        self._pending -= 1
        facts, effect = self.facts, cast("Plan", done.effect)
        if self.ended or done.result is None:
            yield from self._clean_up()
            return
        facts.journal, plan = done.result
        facts.stepped_at = self._clock.now()
        facts.launched = True
        self.job = Job(plan, facts, self._clock)
        yield LaunchRequested(now=self._clock.now())
        if self._finishing_early:
            yield from self.job.checkpoints.end()
            yield FinishEarlyRequested(now=self._clock.now())
        facts.note_phase("launch", self._clock.wall_ms())
        splits = len(effect.context.enumeration.splits)
        _log.info("round launched", **facts.log_fields, splits=splits, attempt=facts.number)

    def _committed(self, done: EffectDone) -> Iterable[Any]:
        self._pending -= 1
        effect, result = cast("Commit", done.effect), cast("CommittedRound | None", done.result)
        if result is not None:
            name, began = "step" if effect.step else "commit", self._clock.now() - done.seconds
            self.facts.apply(result)
            trace_commit(self.facts.trace, self._clock, effect.commit, name, began, done=result)
            yield from self._step_landed(effect) if effect.step else self._landed(effect)
        if self._commit_wanted and not self.ended:
            yield from self._commit()
        yield from self._clean_up()

    def _landed(self, effect: Commit) -> Iterable[Any]:
        self.facts.last_files = len(effect.commit.files)
        return self._complete(effect.commit.offsets, landed=True)

    def _step_landed(self, effect: Commit) -> Iterable[Any]:
        facts, files = self.facts, effect.commit.files
        facts.apply_step(effect.commit.offsets, files)
        _log.info("committed a step of a round", **facts.log_fields, files=len(files), snapshot_id=facts.snapshot_id)
        return ()

    def _not_committed(self, failure: EffectFailed) -> Iterable[Any]:
        self._pending -= 1
        effect, error = cast("Commit", failure.effect), failure.error
        name, began = "step" if effect.step else "commit", self._clock.now() - failure.seconds
        why = str(error) or type(error).__name__
        trace_commit(self.facts.trace, self._clock, effect.commit, name, began, error=why)
        yield from self._fail(error)
        yield from self._clean_up()

    def _not_planned(self, failure: EffectFailed) -> Iterable[Any]:
        self._pending -= 1
        yield from self._fail(failure.error)
        yield from self._clean_up()

    def _not_opened(self, failure: EffectFailed) -> Iterable[Any]:
        return self._fail(failure.error)

    def _stored(self, done: EffectDone) -> Iterable[Any]:
        yield from cast("Job", self.job).checkpoints.stored(done)
        yield StoreAnswered(now=self._clock.now())
        yield from self._clean_up()

    def _not_stored(self, failure: EffectFailed) -> Iterable[Any]:
        yield from cast("Job", self.job).checkpoints.not_stored(failure)
        yield StoreAnswered(now=self._clock.now())
        yield from self._clean_up()

    def _slots_counted(self, done: EffectDone) -> Iterable[Any]:
        return cast("Job", self.job).counted_slots(done.result)

    def _slots_not_counted(self, failure: EffectFailed) -> Iterable[Any]:
        _log.warning("slots were not counted", **self.facts.log_fields, reason=str(failure.error))
        return cast("Job", self.job).counted_slots(None)

    def _looked_for_table(self, done: EffectDone) -> Iterable[Any]:
        now, table_id = self._clock.now(), self.facts.table_id
        if done.result:
            yield from self._post(TableGone(now=now, table_id=table_id))
        else:
            reason = cast("LookForTable", done.effect).reason
            yield from self._post(RoundFailed(now=now, table_id=table_id, reason=reason, permanent=False))

    def _not_looked_for_table(self, failure: EffectFailed) -> Iterable[Any]:
        reason = f"{cast('LookForTable', failure.effect).reason}; {failure.error}"
        return self._post(
            RoundFailed(now=self._clock.now(), table_id=self.facts.table_id, reason=reason, permanent=False)
        )

    # --- what its job tells -----------------------------------------------------------------------------------

    def _launch_gone(self, event: LaunchGone) -> Iterable[Any]:
        job = cast("Job", self.job)
        asked = job.subtasks.ends_together and job.checkpoints.awaits_store
        now, number = self._clock.now(), event.spec.job_attempt
        if event.reason is None and self.is_launch(number):
            job.subtasks.returned()  # the last word of one may be on its way yet
        yield LaunchFinished(now=now, number=number, reason=event.reason or "", store_asked=asked)

    def _job_started(self, _: jobs.FirstDeployed) -> Iterable[Any]:
        return self._post(JobStarted(now=self._clock.now(), table_id=self.facts.table_id))

    def _job_failing(self, event: jobs.JobFailing) -> Iterable[Any]:
        now, table_id = self._clock.now(), self.facts.table_id
        return self._post(SplitsFailing(now=now, table_id=table_id, failing=event.failing))

    def _job_drained(self, event: jobs.JobDrained) -> Iterable[Any]:
        now, table_id, left_out = self._clock.now(), self.facts.table_id, event.left_out
        self.facts.code = left_out.code
        early = event.finished_early
        return self._post(Drained(now=now, table_id=table_id, finished_early=early, failing=left_out.text))

    def _job_failed(self, event: jobs.JobFailed) -> Iterable[Any]:
        if self.ended:
            return
        found = self.facts.goes_on_from
        if not event.permanent and found is not None:
            yield VerifyCheckpoint(found)  # a damaged file of it may be why
        self.facts.code = event.code
        now, table_id = self._clock.now(), self.facts.table_id
        yield Tell(RoundFailed(now=now, table_id=table_id, reason=event.reason, permanent=event.permanent))

    def _snapshot_lost(self, event: jobs.SnapshotLost) -> Iterable[Any]:
        if not self.ended:
            self.facts.code = SnapshotGoneError.code
            yield LoseSnapshots(self.facts.table_id, event.lost, event.reason)

    def _table_lost(self, _: jobs.TableLost) -> Iterable[Any]:
        if not self.ended:
            path = self.facts.assignment.path
            self.facts.code = TableGoneError.code
            yield LookForTable(path, self.facts.table_id, f"table {path}: a subtask says that it is gone")

    def _checkpoint_lost(self, event: jobs.CheckpointLost) -> Iterable[Any]:
        """Give up the checkpoint that the job goes on from: the table's next round goes on from an older one."""
        if self.ended:
            return
        if self.facts.goes_on_from is not None:
            yield RejectCheckpoint(self.facts.goes_on_from, event.reason)
        self.facts.code = CorruptFileError.code
        now, table_id, why = self._clock.now(), self.facts.table_id, event.reason
        yield Tell(RoundFailed(now=now, table_id=table_id, reason=why, permanent=False, checkpoint_lost=True))

    def _splits_back(self, event: jobs.SplitsBack) -> Iterable[Any]:
        self.facts.failovers += 1
        yield TellBackend(Failover(kind=event.kind, attempt=event.attempt, returned=event.splits))

    def _files_rejected(self, event: jobs.FilesRejected) -> Iterable[Any]:
        table_id = self.facts.table_id
        path = self.facts.started("reject files of").table.in_lake.path
        for each, files in zip((path, path_of(path)), split_files(event.files), strict=True):
            if files:
                yield Discard(each, table_id, tuple(file.path for file in files))

    def _job_over(self, _: jobs.JobOver) -> Iterable[Any]:
        return self._clean_up()

    def _checkpoint_completed(self, event: CheckpointCompleted) -> Iterable[Any]:
        """Lease what the checkpoint needs, release what it has finished, and commit a step if one is due."""
        if self.ended:
            return
        facts, done = self.facts, event.checkpoint
        facts.newest = done
        facts.checkpoints += 1
        _log.info(
            "checkpoint completed",
            **facts.log_fields,
            checkpoint=str(done.ref),
            seconds=round(done.seconds, 3),
            size_bytes=done.size_bytes,
        )
        finished = frozenset(result.bucket for result in done.state.finished.values())
        yield KeepCheckpoint(facts.table_id, done.state.enumeration().snapshots, finished)
        every_s = cast("Job", self.job).plan.commit_every_s
        due = facts.is_step_due(every_s, self._clock.now()) and done.state.committable and not self._pending
        if due and self._fence.allows(facts.round_id):  # else the step stays due until the table's next renewal
            facts.stepped_at = self._clock.now()
            yield from self._or_fail(self._commit_step(done.state))

    def _checkpoint_aborted(self, event: CheckpointGivenUp) -> Iterable[Any]:
        self.facts.checkpoint_aborted(event.number, event.reason)
        return ()

    def _commit_step(self, state: CheckpointContents) -> Iterable[Any]:
        facts = self.facts
        offsets = facts.not_behind(state.offsets())
        files = tuple(file for file in state.files() if file.path not in facts.in_lake)
        if dict(offsets) != dict(facts.tiered()):
            account = facts.account(state.shares(), state.exchange or None)
            yield self._commit_of(offsets, files, account, step=True)

    # --- commits and ends -------------------------------------------------------------------------------------

    def _commit(self) -> Iterable[Any]:
        """Commit all that is complete; nothing is sent if earlier steps have committed all of it."""
        self._commit_wanted = False
        return self._or_fail(self._commit_all())

    def _commit_all(self) -> Iterable[Any]:
        progress = self.job.progress if self.job is not None else None
        offsets, files = self.facts.offsets(progress), self.facts.files(progress)
        if dict(offsets) == dict(self.facts.tiered()):
            yield from self._complete(offsets, landed=False)
            return
        shares, writers = _what_was_read(progress)
        yield self._commit_of(offsets, files, self.facts.account(shares, writers), step=False)

    def _commit_of(
        self,
        offsets: Mapping[TableBucket, int],
        files: tuple[LakeFile, ...],
        account: CommitAccount,
        *,
        step: bool,
    ) -> Commit:
        facts = self.facts
        context = facts.started("commit")
        facts.journaled = True
        self._pending += 1
        commit = RoundCommit(
            round_id=facts.round_id,
            journal=facts.journal,
            head=context.head,
            step=facts.step,
            base_commit=facts.base_commit,
            table=context.table,
            offsets=offsets,
            files=files,
            account=account,
            complete_ms=facts.complete_with(offsets),
        )
        return Commit(commit, step=step)

    def _complete(self, offsets: Mapping[TableBucket, int], *, landed: bool) -> Iterable[Any]:
        """Take note that the lake has everything that the round is to commit."""
        facts, context = self.facts, self.facts.started("commit")
        facts.committed = offsets
        yield KeepUp(context.table, facts.snapshot_id, offsets, landed)
        if self.ended:
            _log.info("a round that was given up has committed after all", **facts.log_fields)
            return
        yield CheckTarget(facts.assignment.path, offsets, context.buckets)
        left = context.enumeration.behind or facts.lag_rows() != 0
        yield Tell(Committed(now=self._clock.now(), table_id=facts.table_id, caught_up=not left))

    def _clean_up(self) -> Iterable[Any]:
        """Have deleted what the round left, once it has ended and none of its tasks runs."""
        if not self.at_rest or self._cleaned or self.leaves_nothing:
            return
        self._cleaned = True
        job, facts = self.job, self.facts
        yield CleanUp(
            round_id=facts.round_id,
            path=facts.assignment.path,
            aborted=() if job is None else job.checkpoints.aborted,
            newest_with_rows=None if job is None else job.checkpoints.newest_with_rows,
            journal=facts.journal,
            outcome=facts.outcome,
            journaled=facts.journaled,
            has_commit=facts.snapshot_id is not None,
            orphans=job is not None and (job.may_have_orphans or job.progress.leaves_files_out),
            may_write=job is not None and job.may_write,
        )

    def _fail(self, error: Exception) -> Iterable[Any]:
        facts, reason = self.facts, in_words(error)
        if self.ended:
            _log.info("a round that is over failed late", **facts.log_fields, reason=str(error))
            return
        if not isinstance(error, LakewardError):
            _log.error("unexpected error", **facts.log_fields, exc_info=error)
        facts.code = code_of(error)
        if isinstance(error, TableGoneError):
            yield LookForTable(facts.assignment.path, facts.table_id, reason)
        elif isinstance(error, FencedError):
            yield InvalidateCheckpoints(facts.table_id, str(error), durable=False)
            yield self._fenced(error)
        else:
            if isinstance(error, RowCountError):  # a checkpoint may need the lost snapshots
                yield InvalidateCheckpoints(facts.table_id, str(error), durable=True)
            permanent = isinstance(error, TableError) and error.permanent and facts.number >= error.tries
            now, table_id = self._clock.now(), facts.table_id
            yield Tell(RoundFailed(now=now, table_id=table_id, reason=reason, permanent=permanent))

    def _fenced(self, error: FencedError) -> Effect:
        by, us = _parse(error.by), self.facts.round_id.incarnation
        if by is not None and by.succeeds(us):
            return Supersede(error.by)
        lost = by is not None and by != us
        now, table_id = self._clock.now(), self.facts.table_id
        return Tell(RoundFenced(now=now, table_id=table_id, reason=str(error), lost=lost))

    def _or_fail(self, follows: Iterable[Any]) -> Iterable[Any]:
        """Let an error fail the round: one table's trouble, whatever it is, stays with that table."""
        try:
            yield from follows
        except Exception as error:  # noqa: BLE001 - as said above
            yield from self._fail(error)

    def _post(self, event: Any) -> Iterable[Effect]:  # noqa: ANN401 - any event of all tables' machine
        return () if self.ended else (Tell(event),)

    _EVENTS: ClassVar[Mapping[type[Any], Callable[[Any, Any], Iterable[Any]]]] = {
        OpenRound: _open,
        LaunchJob: _plan,
        FinishRoundEarly: _finish_early,
        CommitRound: _commit_wanted_now,
        EndRound: _end,
        Cancelled: _cancel,
        RoundTick: _tick,
        EffectDone: _done,
        EffectFailed: _not_done,
        LaunchGone: _launch_gone,
        jobs.FirstDeployed: _job_started,
        jobs.JobFailing: _job_failing,
        jobs.JobDrained: _job_drained,
        jobs.JobFailed: _job_failed,
        jobs.SnapshotLost: _snapshot_lost,
        jobs.TableLost: _table_lost,
        jobs.CheckpointLost: _checkpoint_lost,
        jobs.SplitsBack: _splits_back,
        jobs.FilesRejected: _files_rejected,
        jobs.JobOver: _job_over,
        CheckpointCompleted: _checkpoint_completed,
        CheckpointGivenUp: _checkpoint_aborted,
    }
    """What the round itself does at an event; all others are of the machines of its job."""
    _DONE: ClassVar[Mapping[type[Effect], Callable[[Any, EffectDone], Iterable[Any]]]] = {
        OpenTable: _opened,
        Plan: _planned,
        Commit: _committed,
        CompleteCheckpoint: _stored,
        CountFreeSlots: _slots_counted,
        LookForTable: _looked_for_table,
    }
    _NOT_DONE: ClassVar[Mapping[type[Effect], Callable[[Any, EffectFailed], Iterable[Any]]]] = {
        OpenTable: _not_opened,
        Plan: _not_planned,
        Commit: _not_committed,
        CompleteCheckpoint: _not_stored,
        CountFreeSlots: _slots_not_counted,
        LookForTable: _not_looked_for_table,
    }


def _what_was_read(progress: RoundProgress | None) -> tuple[Sequence[SplitShare], Sequence[ExchangeState] | None]:
    if progress is None:
        return (), None
    return progress.shares(), None if progress.writers is None else progress.writers.states


def _parse(text: str) -> Incarnation | None:
    try:
        return Incarnation.parse(text)
    except UsageError:
        return None
