"""Mutants of the checkpoints machine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakeward.machines.checkpoints import CheckpointCoordinator, CheckpointPhase, ParticipantPhase
from lakeward.machines.checkpoints.attempts import AttemptState
from lakeward.machines.checkpoints.commands import (
    Admit,
    CheckpointsCommand,
    OpenDownGateway,
    ReturnSplits,
    SendAborted,
    StoreCheckpoint,
)
from lakeward.machines.checkpoints.events import (
    CheckpointsEvent,
    GatewayOpened,
    PartStored,
    SnapshotTaken,
    SubtaskEvent,
    SubtaskFinished,
    SubtaskRegistered,
)
from lakeward.machines.checkpoints.transitions import CheckpointGuard

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


class CutsTooEarly(CheckpointCoordinator):
    """Mutant: data events sent before the cut may still be on their way."""

    def _advance(self, cause: CheckpointsEvent) -> list[CheckpointsCommand]:
        for state in self._attempts:
            state.received = max(state.received, state.closed_after)
        return super()._advance(cause)


class TriggersTooEarly(CheckpointCoordinator):
    """Mutant: no acknowledgement is awaited."""

    def _snapshot_taken(self, event: SnapshotTaken) -> list[CheckpointsCommand]:
        return super()._snapshot_taken(replace(event, sent=dict.fromkeys(event.sent, 0)))


class SnapsBeforeItCloses(CheckpointCoordinator):
    """Mutant: the order of the cut is swapped."""

    def _take_cut(self, participants: list[AttemptState], cause: CheckpointsEvent) -> list[CheckpointsCommand]:
        return super()._take_cut(participants, cause)[::-1]


class ClosesOnlySome(CheckpointCoordinator):
    """Mutant: the gateway to one is left open."""

    def _take_cut(self, participants: list[AttemptState], cause: CheckpointsEvent) -> list[CheckpointsCommand]:
        return super()._take_cut(participants[1:], cause)


class LeavesItsOwnEndClosed(CheckpointCoordinator):
    """Mutant: an abort opens the subtasks' ends only."""

    def _abort(
        self, cause: CheckpointsEvent, reason: str, lost: Collection[AttemptState] = ()
    ) -> list[CheckpointsCommand]:
        commands = super()._abort(cause, reason, lost)
        return [command for command in commands if not isinstance(command, OpenDownGateway)]


class LeavesTheirEndsClosed(CheckpointCoordinator):
    """Mutant: an abort opens the coordinator's ends only."""

    def _abort(
        self, cause: CheckpointsEvent, reason: str, lost: Collection[AttemptState] = ()
    ) -> list[CheckpointsCommand]:
        commands = super()._abort(cause, reason, lost)
        return [command for command in commands if not isinstance(command, SendAborted)]


class OpensAll(CheckpointCoordinator):
    """Mutant: the first subtask that took its snapshot opens all gateways."""

    def _snapshot_of(self, state: AttemptState, cause: GatewayOpened | PartStored) -> list[CheckpointsCommand]:
        commands = super()._snapshot_of(state, cause)
        return [self._open_gateway(one) for one in self._attempts.participants() if one.down_closed] + commands


class AdmitsOpen(CheckpointCoordinator):
    """Mutant: an attempt that registers in the middle of a checkpoint starts open."""

    def _registered(self, event: SubtaskRegistered) -> list[CheckpointsCommand]:
        commands = super()._registered(event)
        return [replace(one, closed_for=None) if isinstance(one, Admit) else one for one in commands]


class StoresTooEarly(CheckpointCoordinator):
    """Mutant: one part is enough."""

    def _part_stored(self, state: AttemptState, event: PartStored) -> list[CheckpointsCommand]:
        commands = super()._part_stored(state, event)
        if self.phase is CheckpointPhase.COLLECTING:
            self._move(CheckpointGuard.ALL_STORED, event)
            commands.append(StoreCheckpoint(self._latest, self._snapshot, tuple(self._parts.values())))
        return commands


class ReusesNumbers(CheckpointCoordinator):
    """Mutant: the number of an aborted checkpoint is used again."""

    def _abort(
        self, cause: CheckpointsEvent, reason: str, lost: Collection[AttemptState] = ()
    ) -> list[CheckpointsCommand]:
        commands = super()._abort(cause, reason, lost)
        self._latest -= 1
        return commands


class ForgetsTheDeadline(CheckpointCoordinator):
    """Mutant: a checkpoint waits for ever."""

    @property
    def next_due(self) -> float | None:
        return super().next_due if self._phase is CheckpointPhase.IDLE else None


class GoesOnWithoutTheLost(CheckpointCoordinator):
    """Mutant: a participant that is lost is left out."""

    def _lose(self, states: Iterable[AttemptState], cause: CheckpointsEvent, reason: str) -> list[CheckpointsCommand]:
        phase, self._phase = self._phase, CheckpointPhase.STORING
        commands: list[CheckpointsCommand] = []
        for state in states:
            if state.participates:
                state._phase = ParticipantPhase.NOT_PARTICIPATING
            commands += super()._lose([state], cause, reason)
        self._phase = phase
        return [*commands, *self._advance(cause)]


class ReturnsSplitsTooLate(CheckpointCoordinator):
    """Mutant: the next attempt is admitted before its predecessor's splits are returned."""

    def _registered(self, event: SubtaskRegistered) -> list[CheckpointsCommand]:
        return super()._registered(event)[::-1]


class ReturnsSplitsTwice(CheckpointCoordinator):
    """Mutant: a lost attempt's splits are returned twice."""

    def _lose(self, states: Iterable[AttemptState], cause: CheckpointsEvent, reason: str) -> list[CheckpointsCommand]:
        commands = super()._lose(states, cause, reason)
        return [*commands, *(one for one in commands if isinstance(one, ReturnSplits))]


class RejectsNobody(CheckpointCoordinator):
    """Mutant: messages of attempts that are gone are not rejected."""

    def _reject(self, event: SubtaskEvent) -> list[CheckpointsCommand]:
        return []


class LeavesOutTheFinished(CheckpointCoordinator):
    """Mutant: a subtask that sent something after its snapshot, and finished, is left out."""

    def _subtask_finished(
        self, state: AttemptState, event: SubtaskFinished, guard: CheckpointGuard
    ) -> list[CheckpointsCommand]:
        if state.phase is ParticipantPhase.TAKEN:
            state._phase, guard = ParticipantPhase.TRIGGERED, CheckpointGuard.COUNTS
        return super()._subtask_finished(state, event, guard)


class SendsNothingAgain(CheckpointCoordinator):
    """Mutant: what was lost with a connection stays lost."""

    def _send_again(self, state: AttemptState) -> list[CheckpointsCommand]:
        return []
