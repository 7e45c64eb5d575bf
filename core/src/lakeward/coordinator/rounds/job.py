"""The job of a round: its splits, its subtasks, its checkpoints and its launches.

Each machine decides alone. What its commands mean stands here, one handler a command; a handler sends what is to be
sent and yields what follows: events of the round's own queue, and effects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, cast, get_args

import msgspec
import structlog

from lakeward.coordinator.rounds import job_events as jobs
from lakeward.coordinator.rounds.checkpoints import RoundCheckpoints
from lakeward.coordinator.rounds.effects import CountFreeSlots, StartLaunch, StopLaunch
from lakeward.coordinator.rounds.failing_splits import FailingSplits, FailureCause
from lakeward.coordinator.rounds.gang import Gang
from lakeward.coordinator.rounds.messages import AttemptFailed, ChannelsOpen, FilesClosed, SplitResult
from lakeward.coordinator.rounds.progress import RoundProgress
from lakeward.coordinator.rounds.subtasks import Subtasks
from lakeward.coordinator.rounds.task_attempt import TaskAttempt
from lakeward.coordinator.workers.step_log import step_log
from lakeward.errors import CorruptFileError, LakewardError, ReadTimeoutError, SnapshotGoneError, TableGoneError
from lakeward.machines import launches
from lakeward.machines.checkpoints import messages as checkpoints
from lakeward.machines.checkpoints.gateway import Gateway
from lakeward.machines.driver import MachineDriver
from lakeward.machines.gang import AllWritten, DeployMembers, EndLaunch, GangEvent, RefuseMember
from lakeward.machines.splits import (
    Accept,
    AcceptRestored,
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
    SplitsCommand,
    SplitsEvent,
    SplitsRested,
    SplitsReturned,
)
from lakeward.model.events import (
    AssignSplits,
    Cancel,
    Close,
    FinishEarly,
    NoMoreSplits,
    TriggerCheckpoint,
)
from lakeward.model.events import CheckpointAborted as AbortedMessage
from lakeward.model.events import CheckpointComplete as CompleteMessage
from lakeward.model.leases import FailoverKind
from lakeward.model.splits import SnapshotSplit, snapshots_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from lakeward.coordinator.rounds.facts import RoundFacts
    from lakeward.coordinator.rounds.plan import JobPlan
    from lakeward.coordinator.rounds.subtasks import Registration
    from lakeward.machines.splits import Splits
    from lakeward.machines.transport.channel import ChannelKey
    from lakeward.model.checkpoints import SubtaskSnapshot
    from lakeward.model.events import AnyEvent, Register
    from lakeward.model.jobs import JobSpec
    from lakeward.model.results import LakeFile
    from lakeward.model.status import ExchangeReport
    from lakeward.ports import Clock, Connection

_log = structlog.get_logger("lakeward.job")
_REST_MOST_S = 10.0
"""Longest rest of a split in seconds: its round, and the slot of who waits for it, stay taken meanwhile."""
_SPLITS, _CHECKPOINTS = frozenset(get_args(SplitsEvent)), frozenset(get_args(checkpoints.CheckpointsEvent))
_GANG, _LAUNCHES = frozenset(get_args(GangEvent)), frozenset(get_args(launches.LaunchesEvent))
_TAKEN_AT_END = frozenset({checkpoints.CheckpointStored, checkpoints.StoreFailed, checkpoints.RoundEnded})
"""What still concerns checkpoints once the round takes none any more."""

Follows = Iterable[Any]
"""Events of the round's queue, and effects."""


class Job:
    """The job of a round. Used on the event loop only."""

    def __init__(self, plan: JobPlan, facts: RoundFacts, clock: Clock) -> None:
        """Start with every split unassigned, or with the progress of a checkpoint."""
        self.plan = plan
        self.progress = RoundProgress(
            plan.enumeration,
            plan.restored,
            reconnect_within_s=plan.reconnect_within_s,
            retries=plan.retries.at_most(_REST_MOST_S),
            exchange=plan.exchange is not None,
        )
        self.subtasks = (
            Subtasks(plan, self.progress.first_attempt)
            if plan.exchange is None
            else Gang(plan, self.progress, plan.exchange)
        )
        self.checkpoints = RoundCheckpoints(plan.checkpoints, clock)
        self.launches = launches.Launches(limit=plan.limit, pauses=plan.retries)
        self.failing = FailingSplits()
        """What fails now."""
        self.launched: JobSpec | None = None
        """The newest launch, None where none is under way."""
        self.may_have_orphans = plan.restored is not None
        """True once any attempt failed or was replaced: it may have written files that it never reported."""
        self._facts = facts
        self._clock = clock
        self._slots = plan.slots
        self._fence_s = 0.0
        """Of the newest launch: seconds without an answer of the coordinator after which a task stops."""
        self._splits: MachineDriver[SplitsEvent, SplitsCommand] = self._drive(self.progress)
        self._launches: MachineDriver[launches.LaunchesEvent, launches.LaunchesCommand] = MachineDriver(
            self.launches, on_step=step_log("lakeward.job", "launches")
        )

    # --- what is asked of it ----------------------------------------------------------------------------------

    @property
    def splits(self) -> Splits:
        """The machine, for offsets and what may be committed."""
        return self.progress.splits

    @property
    def running(self) -> bool:
        """True while a launch is under way, or about to be made again: it has to be stopped if its round ends."""
        return self.launches.running

    @property
    def may_write(self) -> bool:
        """Whether a task of a launch that has ended may still write a file."""
        return self.subtasks.may_write(self._clock.now(), self._fence_s)

    @property
    def attempts(self) -> Mapping[int, TaskAttempt]:
        """The newest attempt of each subtask of this launch."""
        return self.subtasks.attempts

    @property
    def waits_for(self) -> str:
        """Why its splits fail, or what it waits for; empty while subtasks work, and once nothing is left to do."""
        if self.failing.cause and not self.launches.ended:
            return self.failing.cause.text
        waits = self.launched is not None and not self.launches.drained and not self.attempts
        return self.subtasks.slots.message if waits else ""

    @property
    def step_due(self) -> bool:
        """Whether a commit is to be made of the next checkpoint; never while a snapshot is to be read.

        Only the end of a snapshot has an offset, and with an exchange its rows are in files with those of others.
        """
        due = self._facts.is_step_due(self.plan.commit_every_s, self._clock.now())
        return due and not any(isinstance(split, SnapshotSplit) for split in self.splits.unfinished)

    def counts(self) -> tuple[int, int, int]:
        """Return rows read, bytes read and splits done so far."""
        results = self.progress.results
        rows = sum(result.rows for result in results.values())
        live = [a.progress for a in self.attempts.values() if a.progress and a.progress.split_id not in results]
        return rows + sum(p.rows for p in live), sum(p.size_bytes for p in live), len(results)

    def exchange(self) -> ExchangeReport | None:
        """Return what the exchange of this launch has moved, None without one."""
        return self.subtasks.exchange(self.checkpoints.first_s)

    # --- the machines -----------------------------------------------------------------------------------------

    def take(self, event: object) -> Follows:
        """Step the machine that an event is for, or take the event itself; yield what follows."""
        kind = type(event)
        if kind in _SPLITS:
            return self._execute(self._splits, event)
        if kind in _CHECKPOINTS:
            if self.checkpoints.ended and kind not in _TAKEN_AT_END:
                return self._without_checkpoints(event)
            return self._execute(self.checkpoints.driver, event)
        if kind in _GANG:
            return self._execute(cast("Gang", self.subtasks).driver, event)
        if kind in _LAUNCHES:
            return self._execute(self._launches, event)
        follows: Follows = self._EVENTS[kind](self, event)
        return follows

    def _execute(self, driver: MachineDriver[Any, Any], event: Any) -> Follows:  # noqa: ANN401 - of any machine
        for command in driver.step(event):
            yield from self._COMMANDS[type(command)](self, command, event)

    def _without_checkpoints(self, event: object) -> Follows:
        """Take an event of checkpoints when none is taken any more."""
        if isinstance(event, checkpoints.SubtaskRegistered):
            yield from self._admit(checkpoints.Admit(event.subtask, event.attempt, latest=0, closed_for=None), event)

    def _drive(self, progress: RoundProgress) -> MachineDriver[SplitsEvent, SplitsCommand]:
        return MachineDriver(progress.splits, on_step=step_log("lakeward.job", "splits"))

    # --- subtasks ---------------------------------------------------------------------------------------------

    def is_of_launch(self, subtask: int) -> bool:
        """Return whether the present launch has such a subtask, whose messages count."""
        return self.launched is not None and not self.launches.ended and subtask < self.launched.subtasks

    def register(self, register: Register, connection: Connection) -> Registration:
        """Give an attempt its number that registers for the first time."""
        if register.subtask in self.attempts:
            self.may_have_orphans = True
        return self.subtasks.register(register, connection, 0 if self.launched is None else self.launched.job_attempt)

    def readmit(self, attempt: TaskAttempt, connection: Connection) -> Follows:
        """Take an attempt back whose connection had closed."""
        now, subtask, number = self._clock.now(), attempt.key.subtask, attempt.number
        attempt.reconnect(connection, now)
        yield AttemptReconnected(now=now, subtask=subtask, attempt=number)
        if self.checkpoints.ended:
            # The message that ended the last checkpoint may be lost with the connection. Without it the attempt's
            # gateway would never open.
            attempt.end_checkpoint(self.checkpoints.latest)
            attempt.send(AbortedMessage(checkpoint=self.checkpoints.latest))
        yield checkpoints.SubtaskReconnected(now=now, subtask=subtask, attempt=number)

    def disconnected(self, key: ChannelKey, connection: Connection) -> Follows:
        """Take the end of a connection."""
        attempt = self.attempts.get(key.subtask)
        if self.launches.ended:
            if attempt is not None and attempt.connection is connection:
                attempt.connection = None
            return
        if attempt is None:
            yield from self.subtasks.lost(key, f"subtask {key.subtask} disconnected") or ()  # it waited for others
        elif attempt.connection is connection:
            attempt.connection = None
            if not attempt.done:
                yield AttemptDisconnected(now=self._clock.now(), subtask=key.subtask, attempt=attempt.number)

    def counted(self, attempt: TaskAttempt) -> Follows:
        """Pass changed counts of data events, received and acknowledged, to the checkpoints."""
        now, subtask, number = self._clock.now(), attempt.key.subtask, attempt.number
        received, acked = attempt.channel.received, attempt.channel.acked
        before, attempt.counted = attempt.counted, (received, acked)
        if received != before[0]:
            yield checkpoints.DataReceived(now=now, subtask=subtask, attempt=number, number=received)
        if acked != before[1]:
            yield checkpoints.DataAcked(now=now, subtask=subtask, attempt=number, number=acked)

    def reject_files(self, files: Collection[LakeFile]) -> Follows:
        """Have files deleted that an attempt wrote which does not count, unless something needs them."""
        self.may_have_orphans = True
        rejected = tuple(self.progress.not_ours(files))
        if rejected and not self.launches.ended:
            yield jobs.FilesRejected(rejected)

    def _split_read(self, event: SplitResult) -> Follows:
        if not self.progress.first(event.origin):
            return
        attempt = self.subtasks.find(event.done.subtask, event.done.attempt)
        for command in self._splits.step(event.done):
            yield from self._COMMANDS[type(command)](self, command, event)
        if attempt is not None and event.result.split_id in self.progress.results:
            attempt.finish_split(event.result.split_id, event.result.rows, event.read_bytes)

    def _attempt_failed(self, event: AttemptFailed) -> Follows:
        self.may_have_orphans = True
        failure, key = event.failure, event.key
        attempt = self.subtasks.find(key.subtask, key.task_attempt)
        if failure.code == SnapshotGoneError.code:
            reading = self.splits.held_by(key.subtask, key.task_attempt)
            yield jobs.SnapshotLost(frozenset(snapshots_of(reading)), failure.message)
        elif failure.code == TableGoneError.code:
            yield jobs.TableLost()
        elif failure.code == CorruptFileError.code and self.subtasks.restoring(key):
            yield jobs.CheckpointLost(failure.message)
        elif failure.permanent or failure.code == ReadTimeoutError.code:
            yield jobs.JobFailed(failure.message, permanent=failure.permanent, code=failure.code)
        elif failure.code == CorruptFileError.code and self.failing.has_failed_by(self._reading(key), failure.message):
            # Another try has found the same damage: a further one would find it as well.
            yield jobs.JobFailed(failure.message, permanent=True, code=failure.code)
        elif attempt is not None:
            _log.warning("subtask failed", round=self.plan.round_name, subtask=key.subtask, reason=failure.message)
            reason = f"subtask {key.subtask} failed: {failure.message}"
            yield from self._note_failure(key, FailureCause(reason, failure.code))
            yield from self._lose(attempt, reason)

    def _attempt_useless(self, event: jobs.AttemptUseless) -> Follows:
        attempt = self.subtasks.find(event.subtask, event.attempt)
        if attempt is not None:
            _log.warning("subtask failed over", round=self.plan.round_name, subtask=event.subtask, reason=event.reason)
            attempt.send(Cancel(reason=event.reason))
            yield from self._note_failure(attempt.key, FailureCause(event.reason))
            yield from self._lose(attempt, event.reason)

    def _lose(self, attempt: TaskAttempt, reason: str) -> Follows:
        """Fail an attempt: first record its progress and open all gateways, then return its splits."""
        self.may_have_orphans = True
        together = self.subtasks.lost(attempt.key, reason)
        if together is not None:
            yield from together
            return
        subtask, number, now = attempt.key.subtask, attempt.number, self._clock.now()
        self.subtasks.give_up(subtask, now)
        yield checkpoints.SubtaskLost(now=now, subtask=subtask, attempt=number)
        yield AttemptLost(now=now, subtask=subtask, attempt=number)

    def _reading(self, key: ChannelKey) -> list[str]:
        return [split.split_id for split in self.splits.held_by(key.subtask, key.task_attempt)]

    def _note_failure(self, key: ChannelKey, cause: FailureCause, *, lost: bool = False) -> Follows:
        """Record what an attempt was reading when it failed, before its splits are returned."""
        now, newest = self._clock.now(), self.checkpoints.newest
        return self._changed(self.failing.failed(self._reading(key), cause, now=now, checkpoint=newest, lost=lost))

    @staticmethod
    def _changed(failing: bool | None) -> Follows:
        return () if failing is None else (jobs.JobFailing(failing),)

    # --- time -------------------------------------------------------------------------------------------------

    def tick(self) -> Follows:
        """Let checkpoints start and expire, and look after subtasks.

        One whose connection closed is given up alone. One that is connected and silent (hung, paused, unreachable)
        keeps its slot: the launch is cancelled.
        """
        now, paused_until = self._clock.now(), self.launches.paused_until
        if paused_until is not None and paused_until <= now:
            yield launches.PauseOver(now=now)
        if self.launches.drained or self.launched is None:
            return
        self.subtasks.send_heartbeats(now, self.launched.fence_s / 10)
        if self.subtasks.ends_together:
            yield from self._changed(self.failing.checkpointed(self.checkpoints.newest))
        if now >= self.splits.reconnect_by:
            yield ConnectionsChecked(now=now)
        if now >= self.splits.rested_by:
            yield SplitsRested(now=now)
        takes = self.subtasks.takes_checkpoints
        if takes:
            self.checkpoints.may_be_taken()
        if takes or self.checkpoints.running is not None:
            yield checkpoints.TimePassed(now=now, recovers=takes and self.subtasks.recovers)
        self.subtasks.watch_slots(now, quiet=bool(self.failing.cause))
        yield from self._watch_silence(now)

    def _watch_silence(self, now: float) -> Follows:
        for subtask, attempt in self.attempts.items():
            if not attempt.done and now - attempt.seen > self.plan.silence_s:
                _log.warning("subtask silent, cancelling its job", round=self.plan.round_name, subtask=subtask)
                self.may_have_orphans = True
                reason = f"subtask {subtask} was silent for {self.plan.silence_s:g} s"
                together = self.subtasks.lost(attempt.key, reason)
                return (launches.LaunchLost(now=now, reason=reason),) if together is None else together
        return ()

    # --- commands of the splits -------------------------------------------------------------------------------

    def _assign(self, command: Assign, _: object) -> Follows:
        progress = self.progress.progress_of(command.split)
        return self._send(command.subtask, command.attempt, AssignSplits(splits=[progress]))

    def _no_more(self, command: NoMore, _: object) -> Follows:
        return self._send(command.subtask, command.attempt, NoMoreSplits())

    def _send_finish_early(self, command: SendFinishEarly, _: object) -> Follows:
        return self._send(command.subtask, command.attempt, FinishEarly())

    def _accept(self, _: Accept, event: object) -> Follows:
        if not isinstance(event, SplitResult):
            return ()
        self.progress.accept(event.result)
        if self.subtasks.ends_together:  # its rows are in no file yet
            return ()
        return self._changed(self.failing.finished(event.result.split_id))

    def _accept_restored(self, command: AcceptRestored, _: object) -> Follows:
        self.progress.accept_restored(command.split_id)
        return self._changed(self.failing.finished(command.split_id))

    def _reject(self, command: Reject, event: object) -> Follows:
        self.may_have_orphans = True
        if isinstance(event, SplitResult):
            yield from self.reject_files(event.result.files)
        yield from self._send(command.subtask, command.attempt, Cancel(reason=command.reason))

    def _splits_returned(self, command: SplitsReturned, event: object) -> Follows:
        kind = FailoverKind.JOB if isinstance(event, JobEnded) else FailoverKind.READER
        number = self.launches.number if kind is FailoverKind.JOB else getattr(event, "attempt", 0)
        for split in command.splits:
            if (until := self.splits.rests_until(split.split_id)) is not None:
                facts = {"split": split.split_id, "next_try_s": round(until - self._clock.now(), 1)}
                _log.info("a split failed again, and rests", round=self.plan.round_name, **facts)
        yield jobs.SplitsBack(kind, number, command.splits)

    def _give_up(self, command: GiveUp, _: object) -> Follows:
        """Lose subtasks that did not reconnect: all those of one executor, with one warning."""
        lost = [one for attempt in command.attempts if (one := self.subtasks.find(*attempt)) is not None]
        if not lost:
            return  # their launch was ended meanwhile
        reason = f"not reconnected within {self.plan.reconnect_within_s:g} s"
        alone = not self.subtasks.ends_together
        _log.warning(
            "subtasks lost, their splits are read by others" if alone else "subtasks lost",
            round=self.plan.round_name,
            subtasks=[attempt.key.subtask for attempt in lost],
            host=", ".join(sorted({attempt.host for attempt in lost})),
            reason=reason,
        )
        for attempt in lost if alone else lost[:1]:  # the first one ends the launch of a gang
            why = f"subtask {attempt.key.subtask} has {reason}"
            yield from self._note_failure(attempt.key, FailureCause(why), lost=True)
            yield from self._lose(attempt, why)

    def _all_done(self, _: AllDone, __: object) -> Follows:
        written = not self.subtasks.ends_together
        yield launches.AllRead(now=self._clock.now(), written=written, nothing=not self.progress.has_rows)

    # --- commands of the checkpoints --------------------------------------------------------------------------

    def _send_close(self, command: checkpoints.SendClose, _: object) -> Follows:
        if self.subtasks.find(command.subtask, command.attempt) is not None:
            self.checkpoints.note_started(command.checkpoint)
        return self._send(command.subtask, command.attempt, Close(checkpoint=command.checkpoint))

    def _send_trigger(self, command: checkpoints.SendTrigger, _: object) -> Follows:
        trigger = TriggerCheckpoint(checkpoint=command.checkpoint, close_files=command.close_files)
        return self._send(command.subtask, command.attempt, trigger)

    def _send_complete(self, command: checkpoints.SendComplete, _: object) -> Follows:
        return self._send(command.subtask, command.attempt, CompleteMessage(checkpoint=command.checkpoint))

    def _send_aborted(self, command: checkpoints.SendAborted, _: object) -> Follows:
        attempt = self.subtasks.find(command.subtask, command.attempt)
        if attempt is not None:
            attempt.end_checkpoint(command.checkpoint)
            attempt.send(AbortedMessage(checkpoint=command.checkpoint))
        return ()

    def _close_gateways(self, command: checkpoints.CloseDownGateways, _: object) -> Follows:
        for subtask, _number in command.attempts:
            self.attempts[subtask].close_gateway(command.checkpoint)
        return ()

    def _open_gateway(self, command: checkpoints.OpenDownGateway, _: object) -> Follows:
        attempt = self.subtasks.find(command.subtask, command.attempt)
        if attempt is not None:
            attempt.open_gateway(command.checkpoint)
        return ()

    def _take_snapshot(self, command: checkpoints.TakeSnapshot, _: object) -> Follows:
        now, number = self._clock.now(), command.checkpoint
        sent = {(subtask, attempt.number): attempt.sent for subtask, attempt in self.attempts.items()}
        try:
            snapshot = self._facts.snapshot(self.progress)
        except LakewardError as error:
            yield jobs.Next(checkpoints.SnapshotFailed(now=now, checkpoint=number, reason=str(error)))
        else:
            due = self.plan.exchange is not None and self.step_due
            yield jobs.Next(
                checkpoints.SnapshotTaken(now=now, checkpoint=number, snapshot=snapshot, sent=sent, step_due=due)
            )

    def _abort(self, command: checkpoints.Abort, _: object) -> Follows:
        return self.checkpoints.abort(command, all_read=self.splits.done)

    def _admit(self, admit: checkpoints.Admit, _: object) -> Follows:
        """Deploy an attempt that has registered, once the one that it replaces is lost to the splits as well."""
        replaced = self.attempts.get(admit.subtask)
        if replaced is not None:
            replaced.drop()
            yield AttemptLost(now=self._clock.now(), subtask=admit.subtask, attempt=replaced.number)
        yield jobs.Deployable(admit)

    def _deploy(self, event: jobs.Deployable) -> Follows:
        """Deploy an attempt, with the restored results that it must send again."""
        admit, now = event.admit, self._clock.now()
        registration = self.subtasks.waiting.pop((admit.subtask, admit.attempt), None)
        if registration is None:
            return
        gateway = Gateway(latest=admit.latest, closed_for=admit.closed_for)
        attempt = TaskAttempt(registration.key, registration.connection, now, gateway, host=registration.host)
        self.subtasks.deployed(attempt, now)
        blocked = self.progress.blocked()
        deploy = self.subtasks.deployment(self.plan.deploy(admit.attempt))
        attempt.send(msgspec.structs.replace(deploy, gateway_closed=admit.closed_for, restored=blocked))
        restored = frozenset(one.result.split_id for one in blocked)
        yield AttemptRegistered(now=now, subtask=admit.subtask, attempt=admit.attempt, restored=restored)
        yield launches.SubtaskDeployed(now=now)

    def _return_splits(self, command: checkpoints.ReturnSplits, _: object) -> Follows:
        """Record the lost attempt's progress from its newest part; the splits machine then returns its splits."""
        part = cast("SubtaskSnapshot | None", command.snapshot)
        if part is not None and part.exchange is None:  # else all of them go back to the newest checkpoint
            self.progress.take_over(part)
        return ()

    def _fail_attempt(self, command: checkpoints.FailAttempt | checkpoints.RejectMessage, _: object) -> Follows:
        return (jobs.AttemptUseless(command.subtask, command.attempt, command.reason),)

    # --- commands of the gang ---------------------------------------------------------------------------------

    def _deploy_members(self, command: DeployMembers, _: object) -> Follows:
        return cast("Gang", self.subtasks).members(command, self._clock.now())

    def _refuse_member(self, command: RefuseMember, _: object) -> Follows:
        cast("Gang", self.subtasks).refuse(command.subtask, command.attempt)
        return ()

    def _end_launch(self, command: EndLaunch, _: object) -> Follows:
        """Cancel the launch: its other subtasks cannot go on. What they still send does not count."""
        _log.warning("subtask lost, ending the launch", round=self.plan.round_name, reason=command.reason)
        self.may_have_orphans = True
        for attempt in self.attempts.values():
            attempt.send(Cancel(reason=command.reason))
        self.subtasks.give_up_all(self._clock.now())
        yield checkpoints.LaunchEnded(now=self._clock.now())
        yield launches.LaunchLost(now=self._clock.now(), reason=command.reason)

    def _all_written(self, _: AllWritten, __: object) -> Follows:
        yield launches.AllRead(now=self._clock.now(), written=True)

    # --- commands of the launches -----------------------------------------------------------------------------

    def _launch(self, command: launches.Launch, _: object) -> Follows:
        """Launch the job, or launch it again with what is unfinished."""
        self.checkpoints.begin_launch()
        spec = self.plan.spec(command.number, self.subtasks.size(len(self.splits.unfinished), self._slots))
        self.launched, self._fence_s = spec, spec.fence_s
        self.subtasks.begin(spec.subtasks, self._clock.now())
        yield StartLaunch(spec)

    def _cancel_launch(self, _: launches.CancelLaunch, __: object) -> Follows:
        if self.launched is not None:
            yield StopLaunch(self.launched)

    def _tell_lost(self, command: launches.TellLost, _: object) -> Follows:
        """Note a launch that has ended with work unfinished; what its subtasks still send does not count."""
        self.launched = None
        self.may_have_orphans = True
        yield checkpoints.LaunchEnded(now=self._clock.now())
        if not self.failing.cause:
            now, newest = self._clock.now(), self.checkpoints.newest
            cause = FailureCause(command.reason)
            yield from self._changed(self.failing.failed((), cause, now=now, checkpoint=newest, lost=True))
        if self.subtasks.ends_together:
            self.subtasks.give_up_all(self._clock.now())

    def _return_work(self, _: launches.ReturnWork, __: object) -> Follows:
        """Return what the launch did not finish, or with an exchange all since the newest checkpoint."""
        now, newest, early = self._clock.now(), self.checkpoints.newest, self.splits.finishing_early
        why = self.failing.cause.text  # in the subtask's own words
        progress = self.subtasks.put_back(self.progress, newest.state if newest is not None else None)
        if progress is self.progress:
            yield JobEnded(now=now)
        else:
            self.progress, self._splits = progress, self._drive(progress)
            yield jobs.SplitsBack(FailoverKind.JOB, self.launches.number, self.splits.unfinished)
            if early:
                yield FinishEarlyRequested(now=now)
        yield jobs.WorkBack(why)

    def _work_back(self, event: jobs.WorkBack) -> Follows:
        now = self._clock.now()
        if self.subtasks.ends_together and self.splits.done and not self.progress.has_rows:
            yield launches.AllRead(now=now, written=False, nothing=True)
        yield launches.WorkReturned(now=now, why=event.why)

    def _count_slots(self, _: launches.CountSlots, __: object) -> Follows:
        """Count them where all subtasks start at once: executors may have gone with the one that was lost."""
        return (CountFreeSlots(),) if self.subtasks.ends_together else (launches.SlotsKnown(now=self._clock.now()),)

    def counted_slots(self, slots: int | None) -> Follows:
        """Take the number of slots that the next launch may have, None where it could not be found out."""
        self._slots = self._slots if slots is None else slots
        yield launches.SlotsKnown(now=self._clock.now())

    def _tell_started(self, _: launches.TellStarted, __: object) -> Follows:
        yield jobs.FirstDeployed()

    def _tell_drained(self, _: launches.TellDrained, __: object) -> Follows:
        yield from self.checkpoints.end()
        yield jobs.JobDrained(self.splits.incomplete, self.failing.cause_of(self.splits.skipped))

    def _tell_again(self, command: launches.TellAgain, _: object) -> Follows:
        facts = {"reason": command.reason, "pause_s": command.pause_s}
        _log.warning("launching the job again", round=self.plan.round_name, **facts)
        return ()

    def _tell_launches_failed(self, command: launches.TellLaunchesFailed, _: object) -> Follows:
        yield jobs.JobFailed(command.reason, code=self.failing.cause.code)

    def _tell_over(self, _: launches.TellOver, __: object) -> Follows:
        self.launched = None
        yield jobs.JobOver()

    def _send(self, subtask: int, number: int, event: AnyEvent) -> Follows:
        if (attempt := self.subtasks.find(subtask, number)) is not None:
            attempt.send(event)
        return ()

    _EVENTS: ClassVar[Mapping[type[Any], Callable[[Any, Any], Follows]]] = {
        SplitResult: _split_read,
        AttemptFailed: _attempt_failed,
        jobs.AttemptUseless: _attempt_useless,
        ChannelsOpen: lambda job, event: job.subtasks.connected(event.key),
        FilesClosed: lambda job, event: job.subtasks.written(event.key, event.message),
        jobs.Deployable: _deploy,
        jobs.WorkBack: _work_back,
    }
    """What is done with an event that is no machine's."""
    _COMMANDS: ClassVar[Mapping[type[Any], Callable[[Any, Any, Any], Follows]]] = {
        Assign: _assign,
        NoMore: _no_more,
        SendFinishEarly: _send_finish_early,
        Accept: _accept,
        AcceptRestored: _accept_restored,
        Reject: _reject,
        SplitsReturned: _splits_returned,
        GiveUp: _give_up,
        AllDone: _all_done,
        checkpoints.SendClose: _send_close,
        checkpoints.SendTrigger: _send_trigger,
        checkpoints.SendComplete: _send_complete,
        checkpoints.SendAborted: _send_aborted,
        checkpoints.CloseDownGateways: _close_gateways,
        checkpoints.OpenDownGateway: _open_gateway,
        checkpoints.TakeSnapshot: _take_snapshot,
        checkpoints.StoreCheckpoint: lambda job, command, _: job.checkpoints.store(command),
        checkpoints.Complete: lambda job, command, _: job.checkpoints.complete(command),
        checkpoints.Abort: _abort,
        checkpoints.DiscardPart: lambda job, command, _: job.checkpoints.discard(command),
        checkpoints.DiscardCheckpoint: lambda job, command, _: job.checkpoints.discard(command),
        checkpoints.Admit: _admit,
        checkpoints.ReturnSplits: _return_splits,
        checkpoints.FailAttempt: _fail_attempt,
        checkpoints.RejectMessage: _fail_attempt,
        checkpoints.FailRound: lambda _, command, __: (jobs.JobFailed(command.reason),),
        DeployMembers: _deploy_members,
        RefuseMember: _refuse_member,
        EndLaunch: _end_launch,
        AllWritten: _all_written,
        launches.Launch: _launch,
        launches.CancelLaunch: _cancel_launch,
        launches.TellLost: _tell_lost,
        launches.ReturnWork: _return_work,
        launches.CountSlots: _count_slots,
        launches.TellStarted: _tell_started,
        launches.TellDrained: _tell_drained,
        launches.TellAgain: _tell_again,
        launches.TellLaunchesFailed: _tell_launches_failed,
        launches.TellOver: _tell_over,
    }
    """What is done at each command of a machine."""
