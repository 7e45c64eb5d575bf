"""Mutants of the checkpoints machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from lakeward.machines.checkpoints import ATTEMPT_RULES, RULES, CheckpointCoordinator, CheckpointPhase, ParticipantPhase
from lakeward.machines.checkpoints import rules as checkpoints
from lakeward.machines.checkpoints.messages import (
    Abort,
    Admit,
    CheckpointsCommand,
    CheckpointsEvent,
    CloseAcked,
    CloseDownGateways,
    DataAcked,
    DataReceived,
    Declined,
    GatewayOpened,
    OpenDownGateway,
    ParticipantFailed,
    ParticipantsChanged,
    PartStored,
    ReturnSplits,
    SendAborted,
    SubtaskFinished,
    SubtaskReconnected,
    SubtaskRegistered,
    TimePassed,
)
from lakeward.machines.checkpoints.state import ALIVE, RUNNING, CheckpointsState
from lakeward.machines.machine import Rule
from lakeward_mutants.changed import with_rules

if TYPE_CHECKING:
    from collections.abc import Callable

Commands = tuple[CheckpointsCommand, ...]
Phase = CheckpointPhase
Attempt = ParticipantPhase


class CutsTooEarly(CheckpointCoordinator):
    """Mutant: data events sent before the cut may still be on their way."""

    rules = with_rules(RULES, Rule(Phase.CUTTING, ParticipantsChanged, to=Phase.SNAPPING, do=checkpoints.take_cut))


class TriggersTooEarly(CheckpointCoordinator):
    """Mutant: no acknowledgement is awaited."""

    rules = with_rules(RULES, Rule(Phase.DRAINING, ParticipantsChanged, to=Phase.COLLECTING, do=checkpoints.trigger))


def _cut(
    take: Callable[[CheckpointsState, ParticipantsChanged], Commands],
) -> Rule[CheckpointsState, CheckpointsCommand]:
    return Rule(Phase.CUTTING, ParticipantsChanged, when=checkpoints.all_is_received, to=Phase.SNAPPING, do=take)


class SnapsBeforeItCloses(CheckpointCoordinator):
    """Mutant: the order of the cut is swapped."""

    rules = with_rules(RULES, _cut(lambda state, event: checkpoints.take_cut(state, event)[::-1]))


def _close_some(state: CheckpointsState, event: ParticipantsChanged) -> Commands:
    close, snap = checkpoints.take_cut(state, event)
    assert isinstance(close, CloseDownGateways)
    for subtask, _ in close.attempts[:1]:
        state.change(replace(state.attempts[subtask], down_closed=False))
    return replace(close, attempts=close.attempts[1:]), snap


class ClosesOnlySome(CheckpointCoordinator):
    """Mutant: the gateway to one is left open."""

    rules = with_rules(RULES, _cut(_close_some))


def _without(commands: Commands, kind: type[CheckpointsCommand]) -> Commands:
    aborts = any(isinstance(one, Abort) for one in commands)
    return tuple(one for one in commands if not (aborts and isinstance(one, kind)))


class LeavesItsOwnEndClosed(CheckpointCoordinator):
    """Mutant: an abort opens the subtasks' ends only."""

    def step(self, event: CheckpointsEvent) -> Commands:
        return _without(super().step(event), OpenDownGateway)


class LeavesTheirEndsClosed(CheckpointCoordinator):
    """Mutant: an abort opens the coordinator's ends only."""

    def step(self, event: CheckpointsEvent) -> Commands:
        return _without(super().step(event), SendAborted)


def _open_all(state: CheckpointsState, _: object) -> Commands:
    return tuple(
        command for one in state.participants() if one.down_closed for command in checkpoints.open_one(state, one)
    )


def _open_all_and_keep(state: CheckpointsState, event: PartStored) -> Commands:
    return (*_open_all(state, event), *checkpoints.keep_part(state, event))


class OpensAll(CheckpointCoordinator):
    """Mutant: the first subtask that took its snapshot opens all gateways."""

    attempt_rules = with_rules(
        ATTEMPT_RULES,
        Rule(Attempt.TRIGGERED, GatewayOpened, when=checkpoints.is_current, to=Attempt.TAKEN, do=_open_all),
        Rule(Attempt.TRIGGERED, PartStored, when=checkpoints.is_current, to=Attempt.STORED, do=_open_all_and_keep),
    )


class AdmitsOpen(CheckpointCoordinator):
    """Mutant: an attempt that registers in the middle of a checkpoint starts open."""

    def step(self, event: CheckpointsEvent) -> Commands:
        return tuple(replace(one, closed_for=None) if isinstance(one, Admit) else one for one in super().step(event))


def _one_is_stored(state: CheckpointsState, _: ParticipantsChanged) -> bool:
    return any(state.phases[one.key] is Attempt.STORED for one in state.participants())


class StoresTooEarly(CheckpointCoordinator):
    """Mutant: one part is enough."""

    rules = with_rules(
        RULES,
        Rule(Phase.COLLECTING, ParticipantsChanged, when=_one_is_stored, to=Phase.STORING, do=checkpoints.store),
    )


class ReusesNumbers(CheckpointCoordinator):
    """Mutant: the number of an aborted checkpoint is used again."""

    def step(self, event: CheckpointsEvent) -> Commands:
        commands = super().step(event)
        self.latest -= sum(isinstance(one, Abort) for one in commands)
        return commands


class ForgetsTheDeadline(CheckpointCoordinator):
    """Mutant: a checkpoint waits for ever."""

    rules = with_rules(RULES, Rule(RUNNING, TimePassed))

    @property
    def next_due(self) -> float | None:
        return super().next_due if self.phase is Phase.IDLE else None


def _is_lost(_: CheckpointsState, event: ParticipantFailed) -> bool:
    return event.reason.endswith((" was lost", " replaces its predecessor", "the launch ended"))


class GoesOnWithoutTheLost(CheckpointCoordinator):
    """Mutant: a participant that is lost is left out."""

    rules = with_rules(RULES, Rule(RUNNING, ParticipantFailed, when=_is_lost, do=checkpoints.go_on))


class ReturnsSplitsTooLate(CheckpointCoordinator):
    """Mutant: the next attempt is admitted before its predecessor's splits are returned."""

    def step(self, event: CheckpointsEvent) -> Commands:
        commands = super().step(event)
        return commands[::-1] if isinstance(event, SubtaskRegistered) else commands


class ReturnsSplitsTwice(CheckpointCoordinator):
    """Mutant: a lost attempt's splits are returned twice."""

    def step(self, event: CheckpointsEvent) -> Commands:
        commands = super().step(event)
        return (*commands, *(one for one in commands if isinstance(one, ReturnSplits)))


class RejectsNobody(CheckpointCoordinator):
    """Mutant: messages of attempts that are gone are not rejected."""

    attempt_rules = with_rules(
        ATTEMPT_RULES,
        Rule(Attempt.GONE, (CloseAcked, GatewayOpened, Declined, PartStored), when=checkpoints.was_started),
        Rule(Attempt.GONE, (SubtaskReconnected, SubtaskFinished, DataReceived, DataAcked)),
    )


class LeavesOutTheFinished(CheckpointCoordinator):
    """Mutant: a subtask that sent something after its snapshot, and finished, is left out."""

    attempt_rules = with_rules(
        ATTEMPT_RULES, Rule(Attempt.TAKEN, SubtaskFinished, to=Attempt.FINISHED, do=checkpoints.go_on)
    )


class SendsNothingAgain(CheckpointCoordinator):
    """Mutant: what was lost with a connection stays lost."""

    attempt_rules = with_rules(ATTEMPT_RULES, Rule(ALIVE, SubtaskReconnected))
