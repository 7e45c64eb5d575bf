"""A round's checkpoints: what its machine's commands mean for the store and for people.

Nothing here waits or blocks: what the store has to do is an effect, and its answer comes back as an event. In order:
`StoreCheckpoint` (a command of the machine), `CompleteCheckpoint` (the effect), `CheckpointStored` (an event of the
machine), `CheckpointCompleted` (an event of the round); subtasks are told by the message `CheckpointComplete`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import structlog

from lakeward.coordinator.checkpoints.contents import CheckpointContents
from lakeward.coordinator.rounds.effects import CompleteCheckpoint, DeleteCheckpoint, RetainCheckpoints
from lakeward.coordinator.workers.step_log import step_log
from lakeward.machines.checkpoints import CheckpointCoordinator, CheckpointPhase
from lakeward.machines.checkpoints.messages import (
    Abort,
    CheckpointsEvent,
    CheckpointStored,
    Complete,
    DiscardCheckpoint,
    DiscardPart,
    RoundEnded,
    StoreCheckpoint,
    StoreFailed,
)
from lakeward.machines.driver import MachineDriver

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakeward.coordinator.rounds.effects import EffectDone, EffectFailed
    from lakeward.machines.checkpoints.messages import CheckpointsCommand
    from lakeward.model.checkpoints import CheckpointRef, PartFile, RoundSnapshot, SubtaskSnapshot
    from lakeward.model.settings import CheckpointSettings
    from lakeward.ports import Clock

_log = structlog.get_logger("lakeward.checkpoints")


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """How a round's checkpoints are taken. `ref` names them (its number is set later)."""

    settings: CheckpointSettings
    ref: CheckpointRef
    latest: int
    """The highest number used so far in this epoch."""
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


@dataclass(frozen=True, slots=True)
class CheckpointCompleted:
    """A checkpoint is complete, and its round goes on."""

    checkpoint: CompletedCheckpoint


@dataclass(frozen=True, slots=True)
class CheckpointGivenUp:
    """A checkpoint was aborted, though the round was not at its end."""

    number: int
    reason: str


class RoundCheckpoints:
    """The checkpoints of one round, from its first launch on."""

    def __init__(self, plan: CheckpointPlan, clock: Clock) -> None:
        self._plan = plan
        self._clock = clock
        self._log = _log.bind(**plan.log_fields)
        self.machine = CheckpointCoordinator(plan.settings, now=clock.now(), latest=plan.latest)
        self.driver: MachineDriver[CheckpointsEvent, CheckpointsCommand] = MachineDriver(
            self.machine, on_step=step_log("lakeward.checkpoints", "checkpoints")
        )
        self._started = (0, 0.0)
        """Number of the newest checkpoint, and when it started."""
        self.answered = asyncio.Event()
        """Set unless the store has been asked to complete a checkpoint, and has not answered."""
        self.answered.set()
        self._aborted: list[int] = []
        self.newest: CompletedCheckpoint | None = None
        """The newest that completed since the round's job began."""
        self._ready_ms: int | None = None
        """When checkpoints of the present launch could be taken, None before that."""
        self.first_s: float | None = None
        """Seconds from then to the completion of the launch's first checkpoint; None before that."""

    @property
    def latest(self) -> int:
        """The highest checkpoint number used so far."""
        return self.machine.latest

    @property
    def phase(self) -> CheckpointPhase:
        """The machine's phase."""
        return self.machine.phase

    @property
    def running(self) -> int | None:
        """Number of the checkpoint in progress, None if there is none."""
        return self.machine.running

    @property
    def next_due(self) -> float | None:
        """When the machine next needs a `TimePassed`, in seconds."""
        return self.machine.next_due

    @property
    def ended(self) -> bool:
        """True once no checkpoint is taken any more: from then on the machine gets only the store's answer."""
        return self.machine.phase in {CheckpointPhase.ENDED, CheckpointPhase.ENDING}

    @property
    def awaits_store(self) -> bool:
        """True while the store has not answered whether the newest checkpoint is complete."""
        return not self.answered.is_set()

    @property
    def aborted(self) -> tuple[CheckpointRef, ...]:
        """The checkpoints that were aborted. Each was deleted then, but subtasks may have stored parts of it since."""
        return tuple(map(self._ref, self._aborted))

    @property
    def newest_with_rows(self) -> CheckpointRef | None:
        """The newest checkpoint that was begun, where rows lie beside checkpoints; None if there is none."""
        begun = self.machine.latest > self._plan.latest
        return self._ref(self.machine.latest) if self._plan.exchange and begun else None

    def end(self, *, superseded: bool = False) -> Iterator[RoundEnded]:
        """Take no more checkpoints: the round ends, or finishes early.

        Args:
            superseded: whether no later round will resume from the checkpoint that is being stored.
        """
        if not self.ended or (superseded and self.machine.phase is CheckpointPhase.ENDING):
            yield RoundEnded(now=self._clock.now(), superseded=superseded)

    def note_started(self, checkpoint: int) -> None:
        """Note that a checkpoint has started, the first time that this is said of it."""
        if self._started[0] != checkpoint:
            self._started = (checkpoint, self._clock.now())

    def begin_launch(self) -> None:
        """Wait for the first checkpoint of a launch."""
        self._ready_ms = self.first_s = None

    def may_be_taken(self) -> None:
        """Note that checkpoints of the launch can be taken from now on, the first time that this is said."""
        if self._ready_ms is None:
            self._ready_ms = self._clock.wall_ms()

    def store(self, command: StoreCheckpoint) -> Iterator[Any]:
        """Have the file written that makes a checkpoint complete."""
        ref = self._ref(command.checkpoint)
        coordinator = cast("RoundSnapshot", command.snapshot)
        pairs = cast("tuple[tuple[PartFile, SubtaskSnapshot], ...]", command.parts)
        state = CheckpointContents.of(coordinator, (part for _, part in pairs))
        if self._plan.exchange and (wrong := state.why_not_whole()):
            # A subtask ended in the midst of it, and its rows would be in no part.
            yield StoreFailed(now=self._clock.now(), checkpoint=ref.number, reason=wrong)
            return
        self.answered.clear()
        yield CompleteCheckpoint(ref, coordinator, pairs, state)

    def stored(self, done: EffectDone) -> Iterator[Any]:
        """Take the store's answer: the checkpoint is complete."""
        effect = cast("CompleteCheckpoint", done.effect)
        self.answered.set()
        seconds = self._clock.now() - self._started[1]
        newest = CompletedCheckpoint(effect.ref, effect.state, seconds, done.result, self._clock.wall_ms())
        self.newest = newest
        if self.first_s is None and self._ready_ms is not None:
            self.first_s = (newest.completed_ms - self._ready_ms) / 1000
        yield CheckpointStored(now=self._clock.now(), checkpoint=effect.ref.number)
        if not self.ended:
            yield CheckpointCompleted(newest)

    def not_stored(self, failure: EffectFailed) -> Iterator[Any]:
        """Take the store's answer: the checkpoint is not complete, and never will be."""
        effect = cast("CompleteCheckpoint", failure.effect)
        self.answered.set()
        yield StoreFailed(now=self._clock.now(), checkpoint=effect.ref.number, reason=str(failure.error))

    def complete(self, command: Complete) -> Iterator[Any]:
        """Delete those that are older than the retained ones."""
        del command
        yield RetainCheckpoints(self._plan.ref.table_id, self._plan.settings.retained)

    def abort(self, command: Abort, *, all_read: bool) -> Iterator[Any]:
        """Delete a checkpoint that is aborted; `all_read`: every split is finished, so that the round is at its end."""
        # The end of a round leaves a checkpoint out that nobody needs any more: nothing went wrong then.
        at_end = self.ended or all_read
        log = self._log.info if at_end else self._log.warning
        log("checkpoint aborted", checkpoint=str(self._ref(command.checkpoint)), reason=command.reason)
        self._aborted.append(command.checkpoint)
        yield DeleteCheckpoint(self._ref(command.checkpoint))
        if not at_end:
            yield CheckpointGivenUp(command.checkpoint, command.reason)

    def discard(self, command: DiscardPart | DiscardCheckpoint) -> Iterator[Any]:
        """Delete what came too late to count; a part of the checkpoint in progress goes with that."""
        if isinstance(command, DiscardPart) and command.checkpoint == self.machine.running:
            self._log.info("a part that is not counted goes with its checkpoint", part=command.part)
        else:
            yield DeleteCheckpoint(self._ref(command.checkpoint))

    def _ref(self, checkpoint: int) -> CheckpointRef:
        return replace(self._plan.ref, number=checkpoint)
