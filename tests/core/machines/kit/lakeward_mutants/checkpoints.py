"""Mutants of the checkpoints machine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakeward.machines.checkpoint_members import Member
from lakeward.machines.checkpoint_phases import MEMBERS
from lakeward.machines.checkpoint_protocol import (
    Admit,
    CheckpointsCommand,
    CheckpointsEvent,
    GatewayOpened,
    GiveBack,
    OpenDownGateway,
    PartStored,
    SnapshotTaken,
    StoreCheckpoint,
    SubtaskLeft,
    SubtaskRegistered,
    SubtaskWord,
    TellAborted,
)
from lakeward.machines.checkpoints import AttemptPhase, CheckpointPhase, Checkpoints

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


class CutsTooEarly(Checkpoints):
    """Mutant: data events sent before the cut may still be on their way."""

    def _advance(self, cause: CheckpointsEvent) -> list[CheckpointsCommand]:
        for member in self._members:
            member.received = max(member.received, member.cut_at)
        return super()._advance(cause)


class TriggersTooEarly(Checkpoints):
    """Mutant: nobody's acknowledgement is awaited."""

    def _snapshot_taken(self, event: SnapshotTaken) -> list[CheckpointsCommand]:
        return super()._snapshot_taken(replace(event, sent=dict.fromkeys(event.sent, 0)))


class SnapsBeforeItCloses(Checkpoints):
    """Mutant: the order of the cut is swapped."""

    def _cut(self, members: list[Member], cause: CheckpointsEvent) -> list[CheckpointsCommand]:
        return super()._cut(members, cause)[::-1]


class ClosesOnlySome(Checkpoints):
    """Mutant: the gateway to one is left open."""

    def _cut(self, members: list[Member], cause: CheckpointsEvent) -> list[CheckpointsCommand]:
        return super()._cut(members[1:], cause)


class LeavesItsOwnEndClosed(Checkpoints):
    """Mutant: an abort opens the subtasks' ends alone."""

    def _abort(self, cause: CheckpointsEvent, reason: str, lost: Collection[Member] = ()) -> list[CheckpointsCommand]:
        commands = super()._abort(cause, reason, lost)
        return [command for command in commands if not isinstance(command, OpenDownGateway)]


class LeavesTheirEndsClosed(Checkpoints):
    """Mutant: an abort opens the coordinator's ends alone."""

    def _abort(self, cause: CheckpointsEvent, reason: str, lost: Collection[Member] = ()) -> list[CheckpointsCommand]:
        commands = super()._abort(cause, reason, lost)
        return [command for command in commands if not isinstance(command, TellAborted)]


class OpensAll(Checkpoints):
    """Mutant: the first one that took its snapshot opens everybody's gateway."""

    def _taken(self, member: Member, cause: GatewayOpened | PartStored) -> list[CheckpointsCommand]:
        commands = super()._taken(member, cause)
        return [self._open(one) for one in self._members.of(MEMBERS) if one.down_closed] + commands


class AdmitsOpen(Checkpoints):
    """Mutant: who registers in the middle of a checkpoint starts open."""

    def _registered(self, event: SubtaskRegistered) -> list[CheckpointsCommand]:
        commands = super()._registered(event)
        return [replace(one, closed_for=None) if isinstance(one, Admit) else one for one in commands]


class StoresTooEarly(Checkpoints):
    """Mutant: one part is enough."""

    def _part_stored(self, member: Member, event: PartStored) -> list[CheckpointsCommand]:
        commands = super()._part_stored(member, event)
        if self.phase is CheckpointPhase.COLLECTING:
            self._move(CheckpointPhase.STORING, event)
            commands.append(StoreCheckpoint(self._latest, self._snapshot, tuple(self._parts.values())))
        return commands


class ReusesNumbers(Checkpoints):
    """Mutant: a checkpoint that was aborted gives its number back."""

    def _abort(self, cause: CheckpointsEvent, reason: str, lost: Collection[Member] = ()) -> list[CheckpointsCommand]:
        commands = super()._abort(cause, reason, lost)
        self._latest -= 1
        return commands


class ForgetsTheDeadline(Checkpoints):
    """Mutant: a checkpoint waits for ever."""

    @property
    def next_due(self) -> float | None:
        return super().next_due if self._phase is CheckpointPhase.IDLE else None


class GoesOnWithoutTheLost(Checkpoints):
    """Mutant: a member that is lost is left out."""

    def _lose(self, members: Iterable[Member], cause: CheckpointsEvent, reason: str) -> list[CheckpointsCommand]:
        phase, self._phase = self._phase, CheckpointPhase.STORING
        commands: list[CheckpointsCommand] = []
        for member in members:
            if member.phase in MEMBERS:
                member.phase = AttemptPhase.OUTSIDE
            commands += super()._lose([member], cause, reason)
        self._phase = phase
        return [*commands, *self._advance(cause)]


class GivesBackTooLate(Checkpoints):
    """Mutant: the next attempt is admitted before its predecessor's splits are back."""

    def _registered(self, event: SubtaskRegistered) -> list[CheckpointsCommand]:
        return super()._registered(event)[::-1]


class GivesBackTwice(Checkpoints):
    """Mutant: a lost attempt's splits come back again."""

    def _lose(self, members: Iterable[Member], cause: CheckpointsEvent, reason: str) -> list[CheckpointsCommand]:
        commands = super()._lose(members, cause, reason)
        return [*commands, *(one for one in commands if isinstance(one, GiveBack))]


class ListensToTheGone(Checkpoints):
    """Mutant: any attempt speaks for its subtask."""

    def _reject(self, event: SubtaskWord) -> list[CheckpointsCommand]:
        return []


class LeavesOutWhoLeft(Checkpoints):
    """Mutant: a subtask that sent something after its snapshot, and left, is left out."""

    def _left(self, member: Member, event: SubtaskLeft) -> list[CheckpointsCommand]:
        if member.phase is AttemptPhase.TAKEN:
            member.phase = AttemptPhase.TRIGGERED
        return super()._left(member, event)


class SaysNothingAgain(Checkpoints):
    """Mutant: what was lost with a connection stays lost."""

    def _say_again(self, member: Member) -> list[CheckpointsCommand]:
        return []
