"""One round's job: its splits, its subtasks, its launches. IO around `machines/splits`.

The books win (design section 4, step 5): a finish that was accepted stays, whatever becomes of its attempt; a new
attempt gets unfinished splits only, and files that an old one closed later are deleted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import structlog

from lakeward.errors import SnapshotGoneError, TableGoneError
from lakeward.machines.channel import Channel, ChannelKey
from lakeward.machines.splits import (
    Accept,
    AllDone,
    Assign,
    AttemptLost,
    AttemptRegistered,
    CutAsked,
    JobEnded,
    NoMore,
    Reject,
    SplitDone,
    SplitRequested,
    Splits,
    SplitsCommand,
    SplitsEvent,
    SplitsReturned,
    TellCut,
)
from lakeward.model.events import (
    AnyEvent,
    AssignSplits,
    Cancel,
    Deploy,
    Envelope,
    Failed,
    FinishEarly,
    Heartbeat,
    Left,
    NoMoreSplits,
    Progress,
    Register,
    RequestSplit,
    SplitFinished,
    wire_split,
)
from lakeward.model.jobs import JobSpec
from lakeward.model.leases import FailoverKind
from lakeward.model.results import LakeFile, WriteResult
from lakeward.model.splits import Split

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from lakeward.coordinator.server import Connection
    from lakeward.machines.splits import Enumeration
    from lakeward.ports import Clock, Jobs

_log = structlog.get_logger("lakeward.job")


class JobOwner(Protocol):
    """Who is told how a job goes: its round."""

    def job_drained(self, *, cut: bool) -> None:
        """Every split is finished or left out."""
        ...

    def job_failed(self, reason: str, *, permanent: bool) -> None:
        """The job cannot go on."""
        ...

    def job_lost_snapshot(self) -> None:
        """A snapshot vanished under a reader."""
        ...

    def job_lost_table(self) -> None:
        """The table is gone."""
        ...

    def splits_returned(self, kind: FailoverKind, attempt: int, splits: tuple[Split, ...]) -> None:
        """Splits came back after a failure and will be read again."""
        ...

    def files_rejected(self, files: Collection[LakeFile]) -> None:
        """These were closed by an attempt that no longer counts."""
        ...

    def job_over(self) -> None:
        """The last launch is over: no task of it runs any more."""
        ...


@dataclass(slots=True)
class _Attempt:
    number: int
    channel: Channel
    connection: Connection | None
    seen: float
    progress: Progress | None = None
    closed: bool = False


@dataclass(slots=True)
class JobPlan:
    """What a job is made of. `deploy` makes the Deploy event for an attempt number; `limit` is launches at most."""

    round_name: str
    enumeration: Enumeration
    deploy: Callable[[int], Deploy]
    spec: Callable[[int, int], JobSpec]
    """Launch number and subtasks to the launch."""
    slots: int
    limit: int
    silence_s: float


@dataclass(slots=True)
class RoundJob:
    """One round's job, from its first launch to its end. Used on the event loop only."""

    plan: JobPlan
    jobs: Jobs
    clock: Clock
    owner: JobOwner
    launched: JobSpec | None = None
    results: dict[str, WriteResult] = field(default_factory=dict)
    irregular: bool = False
    """True once any attempt failed or was replaced: files may lie about that nobody reported."""
    _splits: Splits = field(init=False)
    _attempts: dict[int, _Attempt] = field(default_factory=dict)
    _next_attempt: int = 1
    _launches: int = 0
    _ended: bool = False
    _post: Callable[[Callable[[], None]], None] = field(init=False)

    def __post_init__(self) -> None:
        """Start with every split unassigned."""
        self._splits = Splits(self.plan.enumeration)

    # --- what the service asks ------------------------------------------------------------------------------

    def launch(self, post: Callable[[Callable[[], None]], None]) -> None:
        """Launch the job, or launch it again with what is unfinished.

        Args:
            post: runs a callable on the event loop, from any thread.
        """
        self._post = post
        self._launches += 1
        self._attempts.clear()
        spec = self.plan.spec(self._launches, min(self.plan.slots, max(1, len(self._splits.unfinished))))
        self.launched = spec
        self.jobs.launch(spec, lambda reason: post(lambda: self._over(spec, reason)))

    def cut(self) -> None:
        """End early: nothing new is handed out, log splits stop where they are."""
        self._step(CutAsked(now=self.clock.now()))

    def cancel(self) -> None:
        """Stop everything; nothing that arrives later counts."""
        self._ended = True
        if self.launched is not None:
            self.jobs.cancel(self.launched)
        else:
            self.owner.job_over()

    def check_silence(self) -> None:
        """Cancel the launch if a subtask has been silent for too long (hung, paused, unreachable)."""
        if self._ended or self._splits.done or self.launched is None:
            return
        now = self.clock.now()
        for subtask, attempt in self._attempts.items():
            if not attempt.closed and now - attempt.seen > self.plan.silence_s:
                _log.warning("subtask silent, cancelling its job", round=self.plan.round_name, subtask=subtask)
                self.irregular = True
                self.jobs.cancel(self.launched)
                return

    @property
    def splits(self) -> Splits:
        """The machine, for offsets and what may be committed."""
        return self._splits

    @property
    def running(self) -> bool:
        """True while a launch is under way."""
        return self.launched is not None

    def progress(self) -> tuple[int, int, int]:
        """Return rows read, bytes read and splits done so far."""
        rows = sum(result.rows for result in self.results.values())
        live = [a.progress for a in self._attempts.values() if a.progress and a.progress.split_id not in self.results]
        return rows + sum(p.rows for p in live), sum(p.size_bytes for p in live), len(self.results)

    # --- what the server says -------------------------------------------------------------------------------

    def attend(self, register: Register, connection: Connection) -> ChannelKey | None:
        """See `Attendant`."""
        if self._ended or self.launched is None or register.subtask >= self.launched.subtasks:
            return None
        if register.attempt is not None:
            return self._readmit(register, connection)
        number = self._next_attempt
        self._next_attempt += 1
        if register.subtask in self._attempts:
            self.irregular = True
        key = ChannelKey(self.plan.round_name, self.launched.job_attempt, register.subtask, number)
        attempt = _Attempt(number, Channel(key, "down"), connection, self.clock.now())
        replaced = self._attempts.get(register.subtask)
        if replaced is not None and replaced.connection is not None:
            replaced.connection.close()
        self._attempts[register.subtask] = attempt
        # The subtask has no channel before it is deployed: its first answer carries its number in the envelope.
        connection.send(
            Channel(ChannelKey(key.round_name, key.job_attempt, key.subtask, number), "down").send(
                self.plan.deploy(number)
            )
        )
        self._step(AttemptRegistered(now=self.clock.now(), subtask=register.subtask, attempt=number))
        return key

    def hear(self, key: ChannelKey, connection: Connection, envelope: Envelope) -> None:
        """See `Attendant`."""
        attempt = self._attempts.get(key.subtask)
        if attempt is None or attempt.number != key.task_attempt or self._ended:
            self._hear_stale(envelope)
            connection.send(Channel(key, "down").send(Cancel(reason="replaced by a newer attempt")))
            return
        attempt.seen = self.clock.now()
        event = attempt.channel.receive(envelope)
        if event is not None:
            self._handle(key.subtask, attempt, event)
        if envelope.sequence or isinstance(envelope.event, Heartbeat):
            self._send(attempt, Heartbeat(acked=attempt.channel.received))

    def leave(self, key: ChannelKey, connection: Connection) -> None:
        """See `Attendant`."""
        attempt = self._attempts.get(key.subtask)
        if attempt is not None and attempt.connection is connection:
            attempt.connection = None

    # --- inside ---------------------------------------------------------------------------------------------

    def _readmit(self, register: Register, connection: Connection) -> ChannelKey | None:
        attempt = self._attempts.get(register.subtask)
        if attempt is None or attempt.number != register.attempt or self.launched is None:
            return None
        attempt.connection = connection
        attempt.seen = self.clock.now()
        self._send(attempt, Heartbeat(acked=attempt.channel.received))
        for envelope in attempt.channel.unacked():
            connection.send(envelope)
        return ChannelKey(self.plan.round_name, self.launched.job_attempt, register.subtask, attempt.number)

    def _handle(self, subtask: int, attempt: _Attempt, event: AnyEvent) -> None:
        now = self.clock.now()
        match event:
            case RequestSplit():
                self._step(SplitRequested(now=now, subtask=subtask, attempt=attempt.number))
            case SplitFinished():
                self._finished(subtask, attempt, event.result)
            case Progress():
                attempt.progress = event
            case Failed():
                self._failed(subtask, attempt, event)
            case Left():
                attempt.closed = True
            case _:
                pass

    def _finished(self, subtask: int, attempt: _Attempt, result: WriteResult) -> None:
        done = SplitDone(
            now=self.clock.now(),
            subtask=subtask,
            attempt=attempt.number,
            split_id=result.split_id,
            end_offset=result.end_offset,
        )
        self._step(done, result)

    def _failed(self, subtask: int, attempt: _Attempt, event: Failed) -> None:
        self.irregular = True
        if event.code == SnapshotGoneError.code:
            self.owner.job_lost_snapshot()
        elif event.code == TableGoneError.code:
            self.owner.job_lost_table()
        elif event.permanent:
            self.owner.job_failed(event.message, permanent=True)
        else:
            _log.warning("subtask failed", round=self.plan.round_name, subtask=subtask, reason=event.message)
            self._attempts.pop(subtask, None)
            self._step(AttemptLost(now=self.clock.now(), subtask=subtask, attempt=attempt.number))

    def _hear_stale(self, envelope: Envelope) -> None:
        self.irregular = True
        if isinstance(envelope.event, SplitFinished):
            self.owner.files_rejected(envelope.event.result.files)

    def _over(self, spec: JobSpec, reason: str | None) -> None:
        if self.launched is not spec:
            return
        self.launched = None
        if self._ended or self._all_done():
            self.owner.job_over()
            return
        self.irregular = True
        self._step(JobEnded(now=self.clock.now()))
        if self._all_done():
            self.owner.job_over()
        elif self._launches >= self.plan.limit:
            sentence = reason or "its subtasks ended with splits unfinished"
            self.owner.job_failed(f"job launched {self._launches} times, the last time: {sentence}", permanent=False)
        else:
            _log.warning("launching the job again", round=self.plan.round_name, reason=reason)
            self.launch(self._post)

    def _all_done(self) -> bool:
        return self._splits.done

    def _step(self, event: SplitsEvent, result: WriteResult | None = None) -> None:
        for command in self._splits.step(event):
            self._do(command, event, result)

    def _do(self, command: SplitsCommand, event: SplitsEvent, result: WriteResult | None) -> None:
        match command:
            case Assign():
                self._tell(command.subtask, command.attempt, AssignSplits(splits=[wire_split(command.split)]))
            case NoMore():
                self._tell(command.subtask, command.attempt, NoMoreSplits())
            case TellCut():
                self._tell(command.subtask, command.attempt, FinishEarly())
            case Accept() if result is not None:
                self.results[command.split_id] = result
            case Reject():
                self._reject(command, result)
            case SplitsReturned():
                kind = FailoverKind.JOB if isinstance(event, JobEnded) else FailoverKind.READER
                number = self._launches if kind is FailoverKind.JOB else getattr(event, "attempt", 0)
                self.owner.splits_returned(kind, number, command.splits)
            case AllDone():
                self.owner.job_drained(cut=command.cut)
            case _:
                pass

    def _reject(self, command: Reject, result: WriteResult | None) -> None:
        self.irregular = True
        if result is not None:
            self.owner.files_rejected(result.files)
        self._tell(command.subtask, command.attempt, Cancel(reason=command.reason))

    def _tell(self, subtask: int, number: int, event: AnyEvent) -> None:
        attempt = self._attempts.get(subtask)
        if attempt is not None and attempt.number == number:
            self._send(attempt, event)

    def _send(self, attempt: _Attempt, event: AnyEvent) -> None:
        envelope = attempt.channel.send(event)
        if attempt.connection is not None:
            attempt.connection.send(envelope)
