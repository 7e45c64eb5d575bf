"""One round's job: its splits, its subtasks, its launches. IO around `machines/splits`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import structlog

from lakeward.coordinator.checkpoints.round_checkpoints import RoundCheckpoints
from lakeward.coordinator.jobs.checkpoint_messages import to_checkpoint_event
from lakeward.coordinator.jobs.exchange_report import exchange_report
from lakeward.coordinator.jobs.failing_splits import FailingSplits, FailureCause
from lakeward.coordinator.jobs.first_checkpoint import FirstCheckpoint
from lakeward.coordinator.jobs.gang import Gang
from lakeward.coordinator.jobs.group import IndependentSubtasks, Registration, SubtaskGroup
from lakeward.coordinator.jobs.progress import RoundProgress
from lakeward.coordinator.jobs.slots import SlotWatch
from lakeward.coordinator.jobs.task_attempt import TaskAttempt
from lakeward.coordinator.workers.step_log import step_log
from lakeward.errors import (
    CorruptFileError,
    IllegalEventError,
    ReadTimeoutError,
    SnapshotGoneError,
    TableGoneError,
    UsageError,
)
from lakeward.machines.checkpoints.gateway import Gateway
from lakeward.machines.checkpoints.messages import (
    Admit,
    DataAcked,
    DataReceived,
    LaunchEnded,
    SubtaskLost,
    SubtaskReconnected,
    SubtaskRegistered,
    TimePassed,
)
from lakeward.machines.driver import MachineDriver
from lakeward.machines.splits import (
    Accept,
    AllDone,
    Assign,
    AttemptDisconnected,
    AttemptLost,
    AttemptReconnected,
    AttemptRegistered,
    ConnectionsChecked,
    FinishEarlyRequested,
    GiveUp,
    JobEnded,
    NoMore,
    Reject,
    SendFinishEarly,
    SplitDone,
    SplitRequested,
    Splits,
    SplitsCommand,
    SplitsEvent,
    SplitsRested,
    SplitsReturned,
)
from lakeward.machines.transport.channel import ChannelKey
from lakeward.model.checkpoints import Origin
from lakeward.model.events import (
    AnyEvent,
    AssignSplits,
    Cancel,
    CheckpointAborted,
    Connected,
    Envelope,
    Failed,
    FinishEarly,
    Heartbeat,
    NoMoreSplits,
    Progress,
    Register,
    RequestSplit,
    SplitFinished,
    SubtaskDone,
    WriterFinished,
)
from lakeward.model.jobs import JobSpec
from lakeward.model.leases import FailoverKind
from lakeward.model.results import LakeFile, WriteResult
from lakeward.model.splits import snapshots_of
from lakeward.model.status import SubtaskReport

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from lakeward.coordinator.jobs.plan import JobListener, JobPlan
    from lakeward.machines.checkpoints.messages import CheckpointsEvent
    from lakeward.model.checkpoints import RoundSnapshot, SubtaskSnapshot
    from lakeward.model.status import ExchangeReport
    from lakeward.ports import Clock, Connection, Jobs

_log = structlog.get_logger("lakeward.job")
_REST_MOST_S = 10.0
"""Longest rest of a split in seconds: its round, and the slot of who waits for it, stay taken meanwhile."""


class RoundJob:
    """One round's job, from its first launch to its end. Used on the event loop only."""

    def __init__(self, plan: JobPlan, jobs: Jobs, clock: Clock, owner: JobListener) -> None:
        """Start with every split unassigned, or with the progress of a checkpoint.

        Args:
            plan: what it is made of.
            jobs: where it runs.
            clock: the service's clock.
            owner: its round.
        """
        self.plan = plan
        within_s, exchange = plan.reconnect_within_s, plan.exchange
        self._group: SubtaskGroup = (
            IndependentSubtasks(plan.slots) if exchange is None else Gang(exchange, plan.restored, within_s)
        )
        self.progress = RoundProgress(
            plan.enumeration,
            plan.restored,
            reconnect_within_s=within_s,
            retries=plan.retries.at_most(_REST_MOST_S),
            exchange=exchange is not None,
        )
        self._driver = self._drive(self.progress)
        self._results: dict[SplitsEvent, WriteResult] = {}
        """By event: the result that a subtask sent, until the machine accepts or rejects it."""
        self.launched: JobSpec | None = None
        self.may_have_orphans = plan.restored is not None
        """True once any attempt failed or was replaced: it may have written files that it never reported."""
        self._jobs = jobs
        self._clock = clock
        self._owner = owner
        self._attempts: dict[int, TaskAttempt] = {}
        self._slots = SlotWatch()
        self._checkpoints = RoundCheckpoints(plan.checkpoints, clock, self, owner, self._attempts)
        self._first = FirstCheckpoint(self._checkpoints.newest)
        self.failing = FailingSplits(lambda again: owner.splits_failing(failing=again))
        """What fails now."""
        self._deploying: Registration | None = None
        """The subtask that is about to be deployed."""
        self._next_attempt = self.progress.first_attempt
        self.launches = 0
        """So often it was launched."""
        self._started = False
        """A subtask of some launch was deployed."""
        self._at_work = False
        """A subtask of the present launch was deployed, or of the one whose unfinished splits are to be put back."""
        self._launch_again = ""
        """Why the last launch ended, until the next one: that may wait for a checkpoint which is being stored."""
        self._preparing = False
        """The next launch waits for its time, or for the number of slots."""
        self._prepare_at: float | None = None
        """When the next launch may be prepared, None while none waits for its time."""
        self._ended_because = ""
        """Why the present launch was cancelled; empty where Spark ended it."""
        self._drained = False
        self._ended = False
        self._post: Callable[[Callable[[], None]], None] = _not_launched

    # --- called by the service ------------------------------------------------------------------------------

    def launch(self, post: Callable[[Callable[[], None]], None]) -> None:
        """Launch the job, or launch it again with what is unfinished.

        Args:
            post: runs a callable on the event loop, from any thread.
        """
        self._post = post
        self.launches += 1
        self._ended_because = ""
        self._attempts.clear()
        self._first = FirstCheckpoint(self._checkpoints.newest)
        spec = self.plan.spec(self.launches, self._group.size(len(self.splits.unfinished)))
        self.launched = spec
        self._group.begin(spec.subtasks, self.progress)
        self._slots.launched(spec.subtasks, self._clock.now(), needed=self._group.needed)
        self._jobs.launch(spec, lambda reason: post(lambda: self._on_launch_ended(spec, reason)))

    def finish_early(self) -> None:
        """Finish early: assign no more splits, stop log splits where they are, and take no more checkpoints."""
        self._checkpoints.end()
        self._step(FinishEarlyRequested(now=self._clock.now()))

    def cancel(self) -> None:
        """Stop the job; ignore all messages that arrive later."""
        self._checkpoints.end()
        self._ended, self._launch_again, self._preparing, self._prepare_at = True, "", False, None
        if self.launched is not None:
            self._jobs.cancel(self.launched)
        else:
            self._owner.job_ended()

    def tick(self) -> None:
        """Let checkpoints start and expire, and look after subtasks.

        One whose connection closed is given up alone. One that is connected and silent (hung, paused, unreachable)
        keeps its slot: the launch is cancelled.
        """
        if self._launch_again and not self._checkpoints.awaits_store:
            self._go_on()
        if self._prepare_at is not None and self._prepare_at <= self._clock.now():
            self._prepare()
        if self._ended or self._drained or self.launched is None:
            return
        now = self._clock.now()
        self._group.send_heartbeats(now, self.launched.fence_s / 10)
        if self._group.ends_together:
            self.failing.checkpointed(self._checkpoints.newest)
        if now >= self.splits.reconnect_by:
            self._step(ConnectionsChecked(now=now))
        if now >= self.splits.rested_by:
            self._step(SplitsRested(now=now))
        takes = self._group.takes_checkpoints
        if takes:
            self._first.may_be_taken(self._clock.wall_ms())
        if takes or self._checkpoints.running is not None:
            self._note(TimePassed(now=now, recovers=takes and self._group.recovers))
            self._first.look(self._checkpoints)
        self._watch_slots(now)
        self._watch_silence(now, self.launched)

    @property
    def splits(self) -> Splits:
        """The machine, for offsets and what may be committed."""
        return self.progress.splits

    @property
    def all_read(self) -> bool:
        """See `CheckpointedJob`."""
        return self.splits.done

    @property
    def running(self) -> bool:
        """True while a launch is under way, or about to be made again: it has to be cancelled if its round ends."""
        return self.launched is not None or bool(self._launch_again) or self._preparing

    @property
    def checkpoints(self) -> RoundCheckpoints:
        """Its checkpoints."""
        return self._checkpoints

    @property
    def attempts(self) -> Mapping[int, TaskAttempt]:
        """The newest attempt of each subtask of this launch."""
        return self._attempts

    @property
    def slots(self) -> tuple[int, int]:
        """How many subtasks of this launch are there, and how many it asked Spark for."""
        return self._group.there(len(self._attempts)), self._slots.asked

    @property
    def waits_for(self) -> str:
        """Why its splits fail, or what it waits for; empty while subtasks work, and once nothing is left to do."""
        if self.failing.cause and not self._ended:
            return self.failing.cause.text
        waits = self.launched is not None and not self._ended and not self._drained and not self._attempts
        return self._slots.message if waits else ""

    def counts(self) -> tuple[int, int, int]:
        """Return rows read, bytes read and splits done so far."""
        results = self.progress.results
        rows = sum(result.rows for result in results.values())
        live = [a.progress for a in self._attempts.values() if a.progress and a.progress.split_id not in results]
        return rows + sum(p.rows for p in live), sum(p.size_bytes for p in live), len(results)

    def subtasks(self) -> tuple[SubtaskReport, ...]:
        """Return how far the subtasks of the present launch are."""
        now = self._clock.now()
        return tuple(self._attempts[subtask].report(now) for subtask in sorted(self._attempts))

    def exchange(self) -> ExchangeReport | None:
        """Return what the exchange of this launch has moved, None without one."""
        planned = self.plan.exchange
        return None if planned is None else exchange_report(planned, self._attempts.values(), self._first.seconds)

    # --- called by the server -------------------------------------------------------------------------------

    def on_connect(self, register: Register, connection: Connection) -> ChannelKey | None:
        """See `ConnectionHandler`."""
        if self._ended or self.launched is None or register.subtask >= self.launched.subtasks:
            return None
        if register.attempt is not None:
            return self._readmit(register, connection)
        number = self._next_attempt
        self._next_attempt += 1
        if register.subtask in self._attempts:
            self.may_have_orphans = True
        key = ChannelKey(self.plan.round_name, self.launched.job_attempt, register.subtask, number)
        registration = Registration(key, connection, register.host, register.data_address)
        return key if self._group.register(self, registration) else None

    def on_message(self, key: ChannelKey, connection: Connection, envelope: Envelope) -> None:
        """See `ConnectionHandler`."""
        attempt = self._attempts.get(key.subtask)
        if attempt is None or attempt.number != key.task_attempt or self._ended:
            self._on_stale_message(envelope)
            TaskAttempt(key, connection, self._clock.now()).send(Cancel(reason="replaced by a newer attempt"))
            return
        attempt.seen = self._clock.now()
        event = attempt.receive(envelope)
        if event is not None:
            try:
                self._handle(attempt, envelope, event)
            except IllegalEventError as error:
                self.fail_attempt(key.subtask, attempt.number, str(error))
                return
        if envelope.sequence or isinstance(envelope.event, Heartbeat):
            attempt.acknowledge()
            self._count(attempt)

    def on_disconnect(self, key: ChannelKey, connection: Connection) -> None:
        """See `ConnectionHandler`."""
        attempt = self._attempts.get(key.subtask)
        if attempt is None or attempt.connection is not connection:
            if attempt is None and not self._ended:
                self._group.lost(self, key, f"subtask {key.subtask} disconnected")  # it waited for others
            return
        attempt.connection = None
        if not attempt.done and not self._ended:
            self._step(AttemptDisconnected(now=self._clock.now(), subtask=key.subtask, attempt=attempt.number))

    # --- called by the subtasks' group (`GroupedJob`) --------------------------------------------------------

    def deploy(self, registration: Registration) -> None:
        """Deploy a subtask that has registered, as the checkpoints admit it."""
        self._deploying = registration
        subtask, number = registration.key.subtask, registration.key.task_attempt
        if self._checkpoints.ended:
            self.admit(Admit(subtask, number, latest=0, closed_for=None))
        else:
            self._note(SubtaskRegistered(now=self._clock.now(), subtask=subtask, attempt=number))

    def end_launch(self, reason: str) -> None:
        """Cancel the launch: its other subtasks cannot go on. What they still send does not count."""
        _log.warning("subtask lost, ending the launch", round=self.plan.round_name, reason=reason)
        self.may_have_orphans = True
        for attempt in self._attempts.values():
            attempt.send(Cancel(reason=reason))
        self._note(LaunchEnded(now=self._clock.now()))
        self._attempts.clear()
        self._ended_because = reason
        if self.launched is not None:
            self._jobs.cancel(self.launched)

    def all_written(self) -> None:
        """End the job: nothing is left to read or to write."""
        self._drained = True
        self._preparing, self._prepare_at = False, None  # the launch that it waits for is not needed any more
        self._checkpoints.end()
        left_out = self.failing.cause_of(self.splits.skipped)
        self._owner.job_drained(finished_early=self.splits.incomplete, failing=left_out.text, code=left_out.code)

    # --- called by the checkpoints (`CheckpointedJob`) ------------------------------------------------------

    def admit(self, admit: Admit) -> None:
        """Deploy the attempt that has just registered, with the restored results that it must send again."""
        if self._deploying is None:
            return
        registration, self._deploying = self._deploying, None
        if (replaced := self._attempts.get(admit.subtask)) is not None:
            replaced.drop()
            # Before the new attempt is deployed: results that the lost one had to send again are now its to send.
            self._step(AttemptLost(now=self._clock.now(), subtask=admit.subtask, attempt=replaced.number))
        gateway = Gateway(latest=admit.latest, closed_for=admit.closed_for)
        key, connection = registration.key, registration.connection
        attempt = TaskAttempt(key, connection, self._clock.now(), gateway, host=registration.host)
        self._attempts[admit.subtask] = attempt
        blocked = self.progress.blocked()
        deploy = self._group.deployment(self.plan.deploy(admit.attempt))
        attempt.send(msgspec.structs.replace(deploy, gateway_closed=admit.closed_for, restored=blocked))
        restored = frozenset(one.event.result.split_id for one in blocked)
        now = self._clock.now()
        self._at_work = True
        self._step(AttemptRegistered(now=now, subtask=admit.subtask, attempt=admit.attempt, restored=restored))
        if not self._started:
            self._started = True
            self._owner.job_started()

    def give_back(self, part: SubtaskSnapshot | None) -> None:
        """Record the lost attempt's progress from its newest part; the splits machine then returns its splits."""
        if part is not None and part.exchange is None:  # else all of them go back to the newest checkpoint
            self.progress.take_over(part)

    def take_snapshot(self) -> RoundSnapshot:
        """Return the coordinator's part of a checkpoint."""
        return self._owner.snapshot(self.progress)

    def fail_attempt(self, subtask: int, attempt: int, reason: str) -> None:
        """Fail over an attempt that is alive but cannot take part in checkpoints."""
        if (found := self._there(subtask, attempt)) is not None:
            _log.warning("subtask failed over", round=self.plan.round_name, subtask=subtask, reason=reason)
            found.send(Cancel(reason=reason))
            self._note_failure(found, FailureCause(reason))
            self._lose(found, reason)

    # --- inside ---------------------------------------------------------------------------------------------

    def _drive(self, progress: RoundProgress) -> MachineDriver[SplitsEvent, SplitsCommand]:
        return MachineDriver(progress.splits, self._execute, on_step=step_log("lakeward.job", "splits"))

    def _watch_slots(self, now: float) -> None:
        self._slots.update(self._group.there(len(self._attempts)), now)
        if self._slots.should_warn(now) and not self.failing.cause:
            _log.warning(self._slots.message, round=self.plan.round_name)

    def _watch_silence(self, now: float, launched: JobSpec) -> None:
        for subtask, attempt in self._attempts.items():
            if not attempt.done and now - attempt.seen > self.plan.silence_s:
                _log.warning("subtask silent, cancelling its job", round=self.plan.round_name, subtask=subtask)
                self.may_have_orphans = True
                reason = f"subtask {subtask} was silent for {self.plan.silence_s:g} s"
                if not self._group.lost(self, attempt.key, reason):
                    self._ended_because = reason
                    self._jobs.cancel(launched)
                return

    def _readmit(self, register: Register, connection: Connection) -> ChannelKey | None:
        attempt = self._attempts.get(register.subtask)
        if attempt is None or attempt.number != register.attempt or self.launched is None:
            return None
        attempt.reconnect(connection, self._clock.now())
        self._step(AttemptReconnected(now=self._clock.now(), subtask=register.subtask, attempt=attempt.number))
        if self._checkpoints.ended:
            # The message that ended the last checkpoint may be lost with the connection. Without it the attempt's
            # gateway would never open.
            attempt.end_checkpoint(self._checkpoints.latest)
            attempt.send(CheckpointAborted(checkpoint=self._checkpoints.latest))
        self._note(SubtaskReconnected(now=self._clock.now(), subtask=register.subtask, attempt=attempt.number))
        return attempt.key

    def _handle(self, attempt: TaskAttempt, envelope: Envelope, event: AnyEvent) -> None:
        now, who = self._clock.now(), {"subtask": attempt.key.subtask, "attempt": attempt.number}
        match event:
            case RequestSplit():
                self._step(SplitRequested(now=now, **who))
            case SplitFinished():
                self._finished(attempt, event, envelope.sequence)
            case Progress():
                attempt.progress = event
            case Failed():
                self._failed(attempt, event)
            case Connected() | WriterFinished():
                self._group.on_event(self, attempt.key, event)
            case _:
                attempt.done = attempt.done or isinstance(event, SubtaskDone)
                message = to_checkpoint_event(event, now=now, **who)
                if message is not None:
                    self._note(message)

    def _count(self, attempt: TaskAttempt) -> None:
        """Pass changed counts of data events, received and acknowledged, to the checkpoints."""
        now, subtask, number = self._clock.now(), attempt.key.subtask, attempt.number
        received, acked = attempt.channel.received, attempt.channel.acked
        before, attempt.counted = attempt.counted, (received, acked)
        if received != before[0] and self._attempts.get(subtask) is attempt:
            self._note(DataReceived(now=now, subtask=subtask, attempt=number, number=received))
        if acked != before[1] and self._attempts.get(subtask) is attempt:
            self._note(DataAcked(now=now, subtask=subtask, attempt=number, number=acked))

    def _note(self, event: CheckpointsEvent) -> None:
        if not self._checkpoints.ended:
            self._checkpoints.step(event)

    def _finished(self, attempt: TaskAttempt, event: SplitFinished, sequence: int) -> None:
        result, key = event.result, attempt.key
        own = Origin(key.job_attempt, key.subtask, key.task_attempt, sequence)
        if not self.progress.first(event.origin or own):
            return
        done = SplitDone(
            now=self._clock.now(),
            subtask=key.subtask,
            attempt=attempt.number,
            split_id=result.split_id,
            end_offset=result.end_offset,
        )
        self._step(done, result)
        if result.split_id in self.progress.results:
            attempt.finish_split(result.split_id, result.rows, event.read_bytes)

    def _failed(self, attempt: TaskAttempt, event: Failed) -> None:
        self.may_have_orphans = True
        if event.code == SnapshotGoneError.code:
            reading = self.splits.held_by(attempt.key.subtask, attempt.number)
            self._owner.job_lost_snapshot(frozenset(snapshots_of(reading)), event.message)
        elif event.code == TableGoneError.code:
            self._owner.job_lost_table()
        elif event.code == CorruptFileError.code and self._group.restoring(attempt.key):
            self._owner.job_lost_checkpoint(event.message)
        elif event.permanent or event.code == ReadTimeoutError.code:
            self._owner.job_failed(event.message, permanent=event.permanent, code=event.code)
        elif event.code == CorruptFileError.code and self.failing.has_failed_by(self._reading(attempt), event.message):
            # Another try has found the same damage: a further one would find it as well.
            self._owner.job_failed(event.message, permanent=True, code=event.code)
        else:
            subtask = attempt.key.subtask
            _log.warning("subtask failed", round=self.plan.round_name, subtask=subtask, reason=event.message)
            reason = f"subtask {subtask} failed: {event.message}"
            self._note_failure(attempt, FailureCause(reason, event.code))
            self._lose(attempt, reason)

    def _lose(self, attempt: TaskAttempt, reason: str) -> None:
        """Fail an attempt: first record its progress and open all gateways, then return its splits."""
        self.may_have_orphans = True
        if self._group.lost(self, attempt.key, reason):
            return
        subtask, number, now = attempt.key.subtask, attempt.number, self._clock.now()
        self._attempts.pop(subtask, None)
        self._note(SubtaskLost(now=now, subtask=subtask, attempt=number))
        self._step(AttemptLost(now=now, subtask=subtask, attempt=number))

    def _give_up(self, attempts: Collection[tuple[int, int]]) -> None:
        """Lose subtasks that did not reconnect: all those of one executor, with one warning."""
        lost = [found for subtask, number in attempts if (found := self._there(subtask, number)) is not None]
        if not lost:
            return  # their launch was ended meanwhile
        reason = f"not reconnected within {self.plan.reconnect_within_s:g} s"
        alone = not self._group.ends_together
        _log.warning(
            "subtasks lost, their splits are read by others" if alone else "subtasks lost",
            round=self.plan.round_name,
            subtasks=[attempt.key.subtask for attempt in lost],
            host=", ".join(sorted({attempt.host for attempt in lost})),
            reason=reason,
        )
        for attempt in lost:
            if self._there(attempt.key.subtask, attempt.number) is attempt:
                why = f"subtask {attempt.key.subtask} has {reason}"
                self._note_failure(attempt, FailureCause(why), lost=True)
                self._lose(attempt, why)

    def _reading(self, attempt: TaskAttempt) -> list[str]:
        return [split.split_id for split in self.splits.held_by(attempt.key.subtask, attempt.number)]

    def _note_failure(self, attempt: TaskAttempt, cause: FailureCause, *, lost: bool = False) -> None:
        """Record what an attempt was reading when it failed, before its splits are returned."""
        now, newest = self._clock.now(), self._checkpoints.newest
        self.failing.failed(self._reading(attempt), cause, now=now, checkpoint=newest, lost=lost)

    def _there(self, subtask: int, number: int) -> TaskAttempt | None:
        attempt = self._attempts.get(subtask)
        return attempt if attempt is not None and attempt.number == number else None

    def _on_stale_message(self, envelope: Envelope) -> None:
        self.may_have_orphans = True
        if isinstance(envelope.event, SplitFinished):
            self._reject_files(envelope.event.result.files)

    def _reject_files(self, files: Collection[LakeFile]) -> None:
        to_delete = self.progress.not_ours(files)
        if to_delete and not self._ended:
            self._owner.files_rejected(to_delete)

    def _on_launch_ended(self, spec: JobSpec, reason: str | None) -> None:
        if self.launched is not spec:
            return
        self.launched = None
        if self._ended or self._drained:
            self._owner.job_ended()
            return
        self.may_have_orphans = True
        self._note(LaunchEnded(now=self._clock.now()))
        self._launch_again = self._ended_because or reason or "its subtasks ended with splits unfinished"
        if self.failing.cause:
            self._launch_again = self.failing.cause.text  # in the subtask's own words
        else:
            now, newest = self._clock.now(), self._checkpoints.newest
            cause = FailureCause(self._launch_again)
            self.failing.failed((), cause, now=now, checkpoint=newest, lost=True)
        if self._group.ends_together:
            self._attempts.clear()  # the next launch may have to wait, and what they still send does not count
        if not (self._group.ends_together and self._checkpoints.awaits_store):
            self._go_on()

    def _go_on(self) -> None:
        """Launch the job again with what is unfinished, or fail it if that was tried often enough."""
        reason, self._launch_again = self._launch_again, ""
        if self._ended:
            return
        if not self._drained:
            self._put_back()
            self._at_work = False
        if self._drained:
            self._owner.job_ended()
        elif self.launches >= self.plan.limit:
            why = f"job launched {self.launches} times, the last time: {reason}"
            self._owner.job_failed(why, permanent=False, code=self.failing.cause.code)
        else:
            pause_s = self.plan.retries.after(self.launches)
            _log.warning("launching the job again", round=self.plan.round_name, reason=reason, pause_s=pause_s)
            self._preparing, self._prepare_at = True, self._clock.now() + pause_s
            if not pause_s:
                self._prepare()

    def _prepare(self) -> None:
        self._prepare_at = None
        self._group.prepare(self.plan.checkpoints.work, self._relaunch)

    def _relaunch(self) -> None:
        if self._preparing:
            self._preparing = False
            self.launch(self._post)

    def _put_back(self) -> None:
        """Return what the launch that has ended did not finish, or with an exchange all since the newest checkpoint."""
        newest, early = self._checkpoints.newest, self.splits.finishing_early
        progress = self._group.put_back(self.progress, newest.state if newest is not None else None)
        if progress is self.progress:
            self._step(JobEnded(now=self._clock.now()))
            return
        self.progress, self._driver = progress, self._drive(progress)
        self._results.clear()
        self._owner.splits_returned(FailoverKind.JOB, self.launches, self.splits.unfinished)
        if early:
            self._step(FinishEarlyRequested(now=self._clock.now()))
        if self.splits.done and not progress.has_rows:
            self.all_written()

    def _step(self, event: SplitsEvent, result: WriteResult | None = None) -> None:
        if result is not None:
            self._results[event] = result
        self._driver.post(event)

    def _execute(self, command: SplitsCommand, event: SplitsEvent) -> None:
        result = self._results.pop(event, None) if isinstance(command, (Accept, Reject)) else None
        match command:
            case Assign():
                self._send(command.subtask, command.attempt, AssignSplits(splits=[self.progress.wire(command.split)]))
            case NoMore():
                self._send(command.subtask, command.attempt, NoMoreSplits())
            case SendFinishEarly():
                self._send(command.subtask, command.attempt, FinishEarly())
            case Accept() if result is not None:
                self.progress.accept(result)
                if not self._group.ends_together:  # else its rows are in no file yet
                    self.failing.finished(result.split_id)
            case Reject():
                self._reject(command, result)
            case SplitsReturned():
                kind = FailoverKind.JOB if isinstance(event, JobEnded) else FailoverKind.READER
                number = self.launches if kind is FailoverKind.JOB else getattr(event, "attempt", 0)
                self._owner.splits_returned(kind, number, command.splits)
                self._log_rests(command)
            case GiveUp():
                self._give_up(command.attempts)
            case AllDone():
                self._on_all_read()
            case _:
                pass

    def _on_all_read(self) -> None:
        """End the job, unless subtasks still have to write what they exchanged."""
        if not self._group.ends_together:
            self.all_written()
        elif not self._at_work and not self.progress.has_rows:
            self.all_written()
            if self.launched is not None:
                self._jobs.cancel(self.launched)  # its subtasks would wait for one another to write nothing

    def _log_rests(self, returned: SplitsReturned) -> None:
        for split in returned.splits:
            if (until := self.splits.rests_until(split.split_id)) is not None:
                facts = {"split": split.split_id, "next_try_s": round(until - self._clock.now(), 1)}
                _log.info("a split failed again, and rests", round=self.plan.round_name, **facts)

    def _reject(self, command: Reject, result: WriteResult | None) -> None:
        self.may_have_orphans = True
        if result is not None:
            self._reject_files(result.files)
        self._send(command.subtask, command.attempt, Cancel(reason=command.reason))

    def _send(self, subtask: int, number: int, event: AnyEvent) -> None:
        if (attempt := self._there(subtask, number)) is not None:
            attempt.send(event)


def _not_launched(work: Callable[[], None]) -> None:
    del work
    message = "a job that was never launched has nothing to run"
    raise UsageError(message)
