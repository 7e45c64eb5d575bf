"""One round's job: its splits, its subtasks, its launches. IO around `machines/splits`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import structlog

from lakeward.coordinator.checkpoints.round_checkpoints import RoundCheckpoints
from lakeward.coordinator.jobs.checkpoint_messages import to_checkpoint_event
from lakeward.coordinator.jobs.progress import RoundProgress
from lakeward.coordinator.jobs.slots import SlotWatch
from lakeward.coordinator.jobs.task_attempt import TaskAttempt
from lakeward.coordinator.workers.step_log import step_log
from lakeward.errors import IllegalEventError, SnapshotGoneError, TableGoneError, UsageError
from lakeward.machines.checkpoints.commands import Admit
from lakeward.machines.checkpoints.events import (
    DataAcked,
    DataReceived,
    LaunchEnded,
    SubtaskLost,
    SubtaskReconnected,
    SubtaskRegistered,
    TimePassed,
)
from lakeward.machines.checkpoints.gateway import Gateway
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
    SplitsReturned,
)
from lakeward.machines.transport.channel import ChannelKey
from lakeward.model.checkpoints import Origin
from lakeward.model.events import (
    AnyEvent,
    AssignSplits,
    Cancel,
    CheckpointAborted,
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
)
from lakeward.model.jobs import JobSpec
from lakeward.model.leases import FailoverKind
from lakeward.model.results import LakeFile, WriteResult
from lakeward.model.splits import snapshots_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from lakeward.coordinator.jobs.plan import JobListener, JobPlan
    from lakeward.machines.checkpoints.events import CheckpointsEvent
    from lakeward.model.checkpoints import RoundSnapshot, SubtaskSnapshot
    from lakeward.ports import Clock, Connection, Jobs

_log = structlog.get_logger("lakeward.job")


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
        self.progress = RoundProgress(plan.enumeration, plan.restored, reconnect_within_s=plan.reconnect_within_s)
        self._driver = MachineDriver(self.progress.splits, self._execute, on_step=step_log("lakeward.job", "splits"))
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
        self._registering: tuple[JobSpec, Connection, str] | None = None
        """The launch, connection and host of the subtask that registers."""
        self._next_attempt = self.progress.first_attempt
        self._launches = 0
        self._ended = False
        self._post: Callable[[Callable[[], None]], None] = _not_launched

    # --- called by the service ------------------------------------------------------------------------------

    def launch(self, post: Callable[[Callable[[], None]], None]) -> None:
        """Launch the job, or launch it again with what is unfinished.

        Args:
            post: runs a callable on the event loop, from any thread.
        """
        self._post = post
        self._launches += 1
        self._attempts.clear()
        spec = self.plan.spec(self._launches, min(self.plan.slots, max(1, len(self.splits.unfinished))))
        self.launched = spec
        self._slots.launched(spec.subtasks, self._clock.now())
        self._jobs.launch(spec, lambda reason: post(lambda: self._on_launch_ended(spec, reason)))

    def finish_early(self) -> None:
        """Finish early: assign no more splits, stop log splits where they are, and take no more checkpoints."""
        self._checkpoints.end()
        self._step(FinishEarlyRequested(now=self._clock.now()))

    def cancel(self) -> None:
        """Stop the job; ignore all messages that arrive later."""
        self._checkpoints.end()
        self._ended = True
        if self.launched is not None:
            self._jobs.cancel(self.launched)
        else:
            self._owner.job_ended()

    def tick(self) -> None:
        """Let checkpoints start and expire, and look after subtasks.

        One whose connection closed is given up alone. One that is connected and silent (hung, paused, unreachable)
        keeps its slot: the launch is cancelled.
        """
        if self._ended or self.splits.done or self.launched is None:
            return
        now = self._clock.now()
        if now >= self.splits.reconnect_by:
            self._step(ConnectionsChecked(now=now))
        self._note(TimePassed(now=now))
        self._watch_slots(now)
        for subtask, attempt in self._attempts.items():
            if not attempt.done and now - attempt.seen > self.plan.silence_s:
                _log.warning("subtask silent, cancelling its job", round=self.plan.round_name, subtask=subtask)
                self.may_have_orphans = True
                self._jobs.cancel(self.launched)
                return

    @property
    def splits(self) -> Splits:
        """The machine, for offsets and what may be committed."""
        return self.progress.splits

    @property
    def running(self) -> bool:
        """True while a launch is under way."""
        return self.launched is not None

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
        return len(self._attempts), self._slots.asked

    @property
    def waits_for(self) -> str:
        """What it waits for, in words; empty while any subtask is there, and once nothing is left to read."""
        waits = self.launched is not None and not self._ended and not self.splits.done and not self._attempts
        return self._slots.message if waits else ""

    def counts(self) -> tuple[int, int, int]:
        """Return rows read, bytes read and splits done so far."""
        results = self.progress.results
        rows = sum(result.rows for result in results.values())
        live = [a.progress for a in self._attempts.values() if a.progress and a.progress.split_id not in results]
        return rows + sum(p.rows for p in live), sum(p.size_bytes for p in live), len(results)

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
        self._registering = (self.launched, connection, register.host)
        if self._checkpoints.ended:
            self.admit(Admit(register.subtask, number, latest=0, closed_for=None))
        else:
            self._note(SubtaskRegistered(now=self._clock.now(), subtask=register.subtask, attempt=number))
        return self._attempts[register.subtask].key

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
            return
        attempt.connection = None
        if not attempt.done and not self._ended:
            self._step(AttemptDisconnected(now=self._clock.now(), subtask=key.subtask, attempt=attempt.number))

    # --- called by the checkpoints (`CheckpointedJob`) ------------------------------------------------------

    def admit(self, admit: Admit) -> None:
        """Deploy the attempt that has just registered, with the restored results that it must send again."""
        if self._registering is None:
            return
        spec, connection, host = self._registering
        self._registering = None
        if (replaced := self._attempts.get(admit.subtask)) is not None:
            replaced.drop()
            # Before the new attempt is deployed: results that the lost one had to send again are now its to send.
            self._step(AttemptLost(now=self._clock.now(), subtask=admit.subtask, attempt=replaced.number))
        key = ChannelKey(self.plan.round_name, spec.job_attempt, admit.subtask, admit.attempt)
        gateway = Gateway(latest=admit.latest, closed_for=admit.closed_for)
        attempt = TaskAttempt(key, connection, self._clock.now(), gateway, host=host)
        self._attempts[admit.subtask] = attempt
        blocked = self.progress.blocked()
        deploy = self.plan.deploy(admit.attempt)
        attempt.send(msgspec.structs.replace(deploy, gateway_closed=admit.closed_for, restored=blocked))
        restored = frozenset(one.event.result.split_id for one in blocked)
        now = self._clock.now()
        self._step(AttemptRegistered(now=now, subtask=admit.subtask, attempt=admit.attempt, restored=restored))

    def give_back(self, part: SubtaskSnapshot | None) -> None:
        """Record the lost attempt's progress from its newest part; the splits machine then returns its splits."""
        if part is not None:
            self.progress.take_over(part)

    def take_snapshot(self) -> RoundSnapshot:
        """Return the coordinator's part of a checkpoint."""
        return self._owner.snapshot(self.progress)

    def fail_attempt(self, subtask: int, attempt: int, reason: str) -> None:
        """Fail over an attempt that is alive but cannot take part in checkpoints."""
        found = self._attempts.get(subtask)
        if found is not None and found.number == attempt:
            _log.warning("subtask failed over", round=self.plan.round_name, subtask=subtask, reason=reason)
            found.send(Cancel(reason=reason))
            self._lose(found)

    # --- inside ---------------------------------------------------------------------------------------------

    def _watch_slots(self, now: float) -> None:
        self._slots.update(len(self._attempts), now)
        if self._slots.should_warn(now):
            _log.warning(self._slots.message, round=self.plan.round_name)

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

    def _failed(self, attempt: TaskAttempt, event: Failed) -> None:
        self.may_have_orphans = True
        if event.code == SnapshotGoneError.code:
            reading = self.splits.held_by(attempt.key.subtask, attempt.number)
            self._owner.job_lost_snapshot(frozenset(snapshots_of(reading)), event.message)
        elif event.code == TableGoneError.code:
            self._owner.job_lost_table()
        elif event.permanent:
            self._owner.job_failed(event.message, permanent=True)
        else:
            subtask = attempt.key.subtask
            _log.warning("subtask failed", round=self.plan.round_name, subtask=subtask, reason=event.message)
            self._lose(attempt)

    def _lose(self, attempt: TaskAttempt) -> None:
        """Fail an attempt: first record its progress and open all gateways, then return its splits."""
        self.may_have_orphans = True
        subtask, number, now = attempt.key.subtask, attempt.number, self._clock.now()
        self._attempts.pop(subtask, None)
        self._note(SubtaskLost(now=now, subtask=subtask, attempt=number))
        self._step(AttemptLost(now=now, subtask=subtask, attempt=number))

    def _give_up(self, attempts: Collection[tuple[int, int]]) -> None:
        """Lose subtasks that did not reconnect: all those of one executor, with one warning."""
        _log.warning(
            "subtasks lost, their splits are read by others",
            round=self.plan.round_name,
            subtasks=[subtask for subtask, _ in attempts],
            host=", ".join(sorted({self._attempts[subtask].host for subtask, _ in attempts})),
            reason=f"not reconnected within {self.plan.reconnect_within_s:g} s",
        )
        for subtask, number in attempts:
            attempt = self._attempts.get(subtask)
            if attempt is not None and attempt.number == number:
                self._lose(attempt)

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
        if self._ended or self._all_done():
            self._owner.job_ended()
            return
        self.may_have_orphans = True
        self._note(LaunchEnded(now=self._clock.now()))
        self._step(JobEnded(now=self._clock.now()))
        if self._all_done():
            self._owner.job_ended()
        elif self._launches >= self.plan.limit:
            message = reason or "its subtasks ended with splits unfinished"
            self._owner.job_failed(f"job launched {self._launches} times, the last time: {message}", permanent=False)
        else:
            _log.warning("launching the job again", round=self.plan.round_name, reason=reason)
            self.launch(self._post)

    def _all_done(self) -> bool:
        return self.splits.done

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
            case Reject():
                self._reject(command, result)
            case SplitsReturned():
                kind = FailoverKind.JOB if isinstance(event, JobEnded) else FailoverKind.READER
                number = self._launches if kind is FailoverKind.JOB else getattr(event, "attempt", 0)
                self._owner.splits_returned(kind, number, command.splits)
            case GiveUp():
                self._give_up(command.attempts)
            case AllDone():
                self._checkpoints.end()
                self._owner.job_drained(finished_early=command.incomplete)
            case _:
                pass

    def _reject(self, command: Reject, result: WriteResult | None) -> None:
        self.may_have_orphans = True
        if result is not None:
            self._reject_files(result.files)
        self._send(command.subtask, command.attempt, Cancel(reason=command.reason))

    def _send(self, subtask: int, number: int, event: AnyEvent) -> None:
        attempt = self._attempts.get(subtask)
        if attempt is not None and attempt.number == number:
            attempt.send(event)


def _not_launched(work: Callable[[], None]) -> None:
    del work
    message = "a job that was never launched has nothing to run"
    raise UsageError(message)
