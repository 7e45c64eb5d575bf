"""A round's checkpoints: executes the commands of `machines/checkpoints`. Used on the event loop only.

The store is called on worker threads; its answer comes back as an event. Nothing here blocks.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

import structlog

from lakeward.coordinator.checkpoints.contents import CheckpointContents
from lakeward.coordinator.workers.step_log import step_log
from lakeward.errors import LakewardError
from lakeward.machines.checkpoints import CheckpointCoordinator, CheckpointPhase
from lakeward.machines.checkpoints.messages import (
    Abort,
    Admit,
    CheckpointStored,
    CloseDownGateways,
    Complete,
    DiscardCheckpoint,
    DiscardPart,
    FailAttempt,
    FailRound,
    OpenDownGateway,
    RejectMessage,
    ReturnSplits,
    RoundEnded,
    SendAborted,
    SendClose,
    SendComplete,
    SendTrigger,
    SnapshotFailed,
    SnapshotTaken,
    StoreCheckpoint,
    StoreFailed,
    TakeSnapshot,
)
from lakeward.machines.driver import MachineDriver
from lakeward.model.events import CheckpointAborted, CheckpointComplete, Close, TriggerCheckpoint
from lakeward.model.identity import Incarnation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakeward.machines.checkpoints.messages import CheckpointsCommand, CheckpointsEvent
    from lakeward.model.checkpoints import CheckpointRef, LeaseCopy, PartFile, RoundSnapshot, SubtaskSnapshot
    from lakeward.model.events import AnyEvent
    from lakeward.model.settings import CheckpointSettings
    from lakeward.ports import CheckpointStore, Clock

_log = structlog.get_logger("lakeward.checkpoints")


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """How a round's checkpoints are taken. `ref` names them (its number is set later).

    `latest` is the highest number used so far in this epoch. `work` runs a blocking call on a worker thread and passes
    its result, or the error that it raised, to a callable on the event loop.
    """

    settings: CheckpointSettings
    store: CheckpointStore
    ref: CheckpointRef
    latest: int
    work: Callable[[str, Callable[[], object], Callable[[object], None]], None]
    exchange: bool = False
    """Whether each part has to have a state of the exchange."""
    log_fields: Mapping[str, str] = field(default_factory=dict)
    """What each log line has that belongs to the round."""


@dataclass(frozen=True, slots=True)
class CompletedCheckpoint:
    """A completed checkpoint: for reports, leases and commits of the running round."""

    ref: CheckpointRef
    state: CheckpointContents
    seconds: float
    size_bytes: int
    completed_ms: int


class CheckpointListener(Protocol):
    """Receives the outcome of checkpoints; the round implements it."""

    def lease_copy(self) -> LeaseCopy | None:
        """Return the lease as it is written into the checkpoint."""
        ...

    def checkpoint_storing(self, state: CheckpointContents) -> None:
        """A checkpoint is about to be written: from now on it may be complete, even if the store's answer is lost."""
        ...

    def checkpoint_done(self, done: CompletedCheckpoint) -> None:
        """A checkpoint is complete."""
        ...

    def checkpoint_aborted(self, number: int, reason: str) -> None:
        """A checkpoint was aborted."""
        ...

    def step_due(self) -> bool:
        """Return whether a commit is to be made of the next checkpoint, while the round goes on."""
        ...

    def job_failed(self, reason: str, *, permanent: bool, code: str = "") -> None:
        """Too many checkpoints in a row failed."""
        ...


class CheckpointedAttempt(Protocol):
    """The newest attempt of a subtask: what checkpoints need of it."""

    @property
    def number(self) -> int:
        """The attempt's number, given by the coordinator."""
        ...

    @property
    def sent(self) -> int:
        """Sequence number of the last data event that was sent to it."""
        ...

    def send(self, event: AnyEvent) -> None:
        """Send an event. A data event waits while the gateway is closed."""
        ...

    def close_gateway(self, checkpoint: int) -> None:
        """Hold data events back."""
        ...

    def open_gateway(self, checkpoint: int) -> None:
        """Let data events out again: the subtask has taken its snapshot."""
        ...

    def end_checkpoint(self, checkpoint: int) -> None:
        """Let data events out again: the checkpoint has completed or was aborted."""
        ...


class CheckpointedJob(Protocol):
    """The round's job: what checkpoints need of it."""

    @property
    def all_read(self) -> bool:
        """Whether every split is finished: the round is about to end."""
        ...

    def admit(self, admit: Admit) -> None:
        """Deploy the attempt that has just registered."""
        ...

    def give_back(self, part: SubtaskSnapshot | None) -> None:
        """Continue a lost attempt's splits from its newest part in a completed checkpoint."""
        ...

    def take_snapshot(self) -> RoundSnapshot:
        """Return the coordinator's part. Makes no call to source, lake or store."""
        ...

    def fail_attempt(self, subtask: int, attempt: int, reason: str) -> None:
        """Fail an attempt over."""
        ...


class RoundCheckpoints:
    """Drives the machine of one round."""

    def __init__(
        self,
        plan: CheckpointPlan,
        clock: Clock,
        job: CheckpointedJob,
        owner: CheckpointListener,
        attempts: Mapping[int, CheckpointedAttempt],
    ) -> None:
        """Start with no checkpoint in progress.

        Args:
            plan: how checkpoints are taken.
            clock: the service's clock.
            job: the round's job.
            owner: the round.
            attempts: the newest attempt of each subtask, as the owner keeps them.
        """
        self._plan = plan
        self._clock = clock
        self._job = job
        self._owner = owner
        self._attempts = attempts
        self._log = _log.bind(**plan.log_fields)
        self._machine = CheckpointCoordinator(plan.settings, now=clock.now(), latest=plan.latest)
        self._driver = MachineDriver(
            self._machine, self._execute, on_step=step_log("lakeward.checkpoints", "checkpoints")
        )
        self._executing = False
        self._end_posted = False
        self._to_fail: deque[tuple[int, int, str]] = deque()
        """Attempts that the machine has ordered to fail over: subtask, attempt, reason."""
        self._started = (0, 0.0)
        """Number of the newest checkpoint, and when it started."""
        self._answered = asyncio.Event()
        """Set unless a write of the store is still pending."""
        self._answered.set()
        self._aborted: list[int] = []
        self.newest: CompletedCheckpoint | None = None
        """The newest that completed since the round's job began."""

    @property
    def latest(self) -> int:
        """The highest checkpoint number used so far."""
        return self._machine.latest

    @property
    def phase(self) -> CheckpointPhase:
        """The machine's phase."""
        return self._machine.phase

    @property
    def running(self) -> int | None:
        """Number of the checkpoint in progress, None if there is none."""
        return self._machine.running

    @property
    def next_due(self) -> float | None:
        """When the machine next needs a `TimePassed`, in seconds."""
        return self._machine.next_due

    @property
    def ended(self) -> bool:
        """True once the machine was told that the round ended: from then on it gets only the store's answer."""
        return self._end_posted or self._machine.phase in {CheckpointPhase.ENDED, CheckpointPhase.ENDING}

    @property
    def awaits_store(self) -> bool:
        """True while the store has not answered whether the newest checkpoint is complete."""
        return not self._answered.is_set()

    @property
    def aborted(self) -> tuple[CheckpointRef, ...]:
        """The checkpoints that were aborted. Each was deleted then, but subtasks may have stored parts of it since."""
        return tuple(map(self._ref, self._aborted))

    @property
    def newest_with_rows(self) -> CheckpointRef | None:
        """The newest checkpoint that was begun, where rows lie beside checkpoints; None if there is none."""
        begun = self._machine.latest > self._plan.latest
        return self._ref(self._machine.latest) if self._plan.exchange and begun else None

    async def settled(self) -> None:
        """Wait for the store's answer, if a write is pending."""
        await self._answered.wait()

    def end(self, *, superseded: bool = False) -> None:
        """Stop taking checkpoints: the round ends, or finishes early.

        Args:
            superseded: whether no later round will resume from the checkpoint that is being stored.
        """
        if not self.ended or (superseded and self._machine.phase is CheckpointPhase.ENDING):
            self._end_posted = True
            self.step(RoundEnded(now=self._clock.now(), superseded=superseded))

    def step(self, event: CheckpointsEvent) -> None:
        """Post an event to the machine and execute its commands.

        Args:
            event: what happened.
        """
        self._driver.post(event)
        # Only after the step: the machine must see `SubtaskLost` before the attempt's splits are returned.
        while self._to_fail and not self._executing:
            self._job.fail_attempt(*self._to_fail.popleft())

    def _execute(self, command: CheckpointsCommand, _: CheckpointsEvent) -> None:
        before, self._executing = self._executing, True
        try:
            self._execute_one(command)
        finally:
            self._executing = before

    def _execute_one(self, command: CheckpointsCommand) -> None:
        match command:
            case SendClose() | SendTrigger() | SendComplete() | SendAborted():
                self._send(command)
            case CloseDownGateways() | OpenDownGateway():
                self._turn(command)
            case TakeSnapshot():
                self._take(command.checkpoint)
            case StoreCheckpoint() | Complete() | Abort() | DiscardPart() | DiscardCheckpoint():
                self._keep(command)
            case Admit():
                self._job.admit(command)
            case ReturnSplits():
                self._job.give_back(cast("SubtaskSnapshot | None", command.snapshot))
            case FailAttempt() | RejectMessage():
                self._to_fail.append((command.subtask, command.attempt, command.reason))
            case FailRound():
                self._owner.job_failed(command.reason, permanent=False)

    def _send(self, command: SendClose | SendTrigger | SendComplete | SendAborted) -> None:
        attempt = self._attempts.get(command.subtask)
        if attempt is None or attempt.number != command.attempt:
            return
        match command:
            case SendClose():
                if self._started[0] != command.checkpoint:
                    self._started = (command.checkpoint, self._clock.now())
                attempt.send(Close(checkpoint=command.checkpoint))
            case SendTrigger():
                attempt.send(TriggerCheckpoint(checkpoint=command.checkpoint, close_files=command.close_files))
            case SendComplete():
                attempt.send(CheckpointComplete(checkpoint=command.checkpoint))
            case SendAborted():
                attempt.end_checkpoint(command.checkpoint)
                attempt.send(CheckpointAborted(checkpoint=command.checkpoint))

    def _turn(self, command: CloseDownGateways | OpenDownGateway) -> None:
        if isinstance(command, OpenDownGateway):
            attempt = self._attempts.get(command.subtask)
            if attempt is not None and attempt.number == command.attempt:
                attempt.open_gateway(command.checkpoint)
            return
        for subtask, _ in command.attempts:
            self._attempts[subtask].close_gateway(command.checkpoint)

    def _take(self, checkpoint: int) -> None:
        now = self._clock.now()
        sent = {(subtask, attempt.number): attempt.sent for subtask, attempt in self._attempts.items()}
        try:
            snapshot = self._job.take_snapshot()
        except LakewardError as error:
            self.step(SnapshotFailed(now=now, checkpoint=checkpoint, reason=str(error)))
            return
        due = self._plan.exchange and self._owner.step_due()
        self.step(SnapshotTaken(now=now, checkpoint=checkpoint, snapshot=snapshot, sent=sent, step_due=due))

    def _keep(self, command: StoreCheckpoint | Complete | Abort | DiscardPart | DiscardCheckpoint) -> None:
        match command:
            case StoreCheckpoint():
                self._complete(command)
            case Complete():
                plan = self._plan
                ours = Incarnation.parse(plan.ref.incarnation)
                self._later(
                    "retain checkpoints", partial(plan.store.retain, ours, plan.ref.table_id, plan.settings.retained)
                )
            case Abort():
                # The end of a round leaves a checkpoint out that nobody needs any more: nothing went wrong then.
                at_end = self.ended or self._job.all_read
                log = self._log.info if at_end else self._log.warning
                log("checkpoint aborted", checkpoint=str(self._ref(command.checkpoint)), reason=command.reason)
                self._aborted.append(command.checkpoint)
                self._delete(command.checkpoint)
                if not at_end:
                    self._owner.checkpoint_aborted(command.checkpoint, command.reason)
            case DiscardPart() if command.checkpoint == self._machine.running:
                self._log.info("a part that is not counted goes with its checkpoint", part=command.part)
            case DiscardPart() | DiscardCheckpoint():
                self._delete(command.checkpoint)

    def _complete(self, command: StoreCheckpoint) -> None:
        """Write `_metadata`. If that fails, first make sure that the file can never appear, then report the failure."""
        ref = self._ref(command.checkpoint)
        coordinator = cast("RoundSnapshot", command.snapshot)
        pairs = cast("tuple[tuple[PartFile, SubtaskSnapshot], ...]", command.parts)
        lease = self._owner.lease_copy()
        store = self._plan.store
        state = CheckpointContents.of(coordinator, (part for _, part in pairs))
        if self._plan.exchange and (wrong := state.why_not_whole()):
            # A subtask ended in the midst of it, and its rows would be in no part.
            self.step(StoreFailed(now=self._clock.now(), checkpoint=ref.number, reason=wrong))
            return
        self._owner.checkpoint_storing(state)
        self._answered.clear()

        def write() -> int:
            try:
                return store.complete(ref, coordinator, [part for part, _ in pairs], lease)
            except LakewardError:
                store.abandon(ref)
                raise

        def then(answer: object) -> None:
            now = self._clock.now()
            self._answered.set()
            if isinstance(answer, BaseException):
                self.step(StoreFailed(now=now, checkpoint=ref.number, reason=str(answer)))
                return
            seconds, size = now - self._started[1], cast("int", answer)
            done = self.newest = CompletedCheckpoint(ref, state, seconds, size, self._clock.wall_ms())
            self.step(CheckpointStored(now=now, checkpoint=ref.number))
            if not self.ended:
                self._owner.checkpoint_done(done)

        self._plan.work(f"complete {ref}", write, then)

    def _delete(self, checkpoint: int) -> None:
        self._later("delete a checkpoint", partial(self._plan.store.delete, self._ref(checkpoint)))

    def _later(self, what: str, work: Callable[[], object]) -> None:
        def then(answer: object) -> None:
            if isinstance(answer, BaseException):
                self._log.warning("left for the sweep", what=what, reason=str(answer))

        self._plan.work(what, work, then)

    def _ref(self, checkpoint: int) -> CheckpointRef:
        return replace(self._plan.ref, number=checkpoint)
