"""A coordinator and its subtasks take checkpoints over a network that loses connections; mutants must die."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test as play

from lakeward.errors import LakewardError
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
from lakeward.machines.gateway import (
    AbortFor,
    Gateway,
    GatewayCommand,
    GatewayEvent,
    OpenFor,
    Pass,
    Started,
)
from lakeward.model.checkpoints import BlockedEvent, Origin
from lakeward.model.events import (
    DATA_EVENTS,
    AnyEvent,
    SplitFinished,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

from lakeward_cuts.game import QUICK, Game
from lakeward_cuts.scripts import (
    abort_lost_with_a_connection,
    left_after_its_snapshot,
    opened_one_by_one,
    overtaken_by_its_own_word,
)
from lakeward_cuts.world import World


def test_the_machines_hold_every_invariant() -> None:
    """After every step of a world that does anything it may, and to the end of every round."""
    play(Game, settings=QUICK)


# --- mutants ----------------------------------------------------------------------------------------------------


class LetsDataPass(Gateway):
    """Mutant: a closed gateway holds nothing."""

    def _said(self, event: AnyEvent) -> tuple[GatewayCommand, ...]:
        return (Pass(event),)


class HoldsControl(Gateway):
    """Mutant: control events are held, too."""

    def _said(self, event: AnyEvent) -> tuple[GatewayCommand, ...]:
        self._held.append(event)
        return self._flush()


class SendsBackwards(Gateway):
    """Mutant: what was held goes out newest first."""

    def _flush(self) -> tuple[GatewayCommand, ...]:
        return tuple(reversed(super()._flush()))


class ForgetsWhatItHeld(Gateway):
    """Mutant: it opens empty."""

    def _over(self, event: OpenFor | AbortFor) -> tuple[GatewayCommand, ...]:
        super()._over(event)
        return ()


class SendsRestoredTwice(Gateway):
    """Mutant: what was restored is sent at the start and once more later."""

    def step(self, event: GatewayEvent) -> tuple[GatewayCommand, ...]:
        commands = super().step(event)
        return (*commands, *commands) if isinstance(event, Started) else commands


class SendsRestoredLast(Gateway):
    """Mutant: what is new overtakes what was restored."""

    def _said(self, event: AnyEvent) -> tuple[GatewayCommand, ...]:
        if isinstance(event, DATA_EVENTS):
            self._held.insert(0, event)
            return self._flush()
        return (Pass(event),)


class ForgetsRestoredOrigins(Gateway):
    """Mutant: a restored event that is held again gets a new origin."""

    def held_as(self, last_sent: Origin) -> tuple[BlockedEvent, ...]:
        kept = super().held_as(last_sent)
        return tuple(replace(one, origin=replace(last_sent, sequence=last_sent.sequence + 1)) for one in kept)


class CountsFinishesOnly(Gateway):
    """Mutant: the number of a held finish leaves the other held events out."""

    def held_as(self, last_sent: Origin) -> tuple[BlockedEvent, ...]:
        finishes = [event for event in self._held if isinstance(event, SplitFinished)]
        held, self._held = self._held, list(finishes)
        kept = super().held_as(last_sent)
        self._held = held
        return kept


class NeverOpensOnAbort(Gateway):
    """Mutant: only its own snapshot opens it."""

    def _abort(self, event: AbortFor) -> tuple[GatewayCommand, ...]:
        return ()


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


HUNT = settings(QUICK, max_examples=600, phases=[Phase.generate], print_blob=False)
GATEWAYS = [
    LetsDataPass,
    HoldsControl,
    SendsBackwards,
    ForgetsWhatItHeld,
    SendsRestoredTwice,
    SendsRestoredLast,
    ForgetsRestoredOrigins,
    CountsFinishesOnly,
    NeverOpensOnAbort,
]
MACHINES = [
    TriggersTooEarly,
    SnapsBeforeItCloses,
    ClosesOnlySome,
    LeavesItsOwnEndClosed,
    LeavesTheirEndsClosed,
    AdmitsOpen,
    StoresTooEarly,
    ReusesNumbers,
    ForgetsTheDeadline,
    GoesOnWithoutTheLost,
    GivesBackTooLate,
    GivesBackTwice,
    ListensToTheGone,
]
SCRIPTED = [
    (OpensAll, opened_one_by_one),
    (LeavesOutWhoLeft, left_after_its_snapshot),
    (SaysNothingAgain, abort_lost_with_a_connection),
    (CutsTooEarly, overtaken_by_its_own_word),
]
"""Too rare for the game."""


@pytest.mark.parametrize("mutant", [*GATEWAYS, *MACHINES])
def test_a_mutant_of_the_protocol_dies(mutant: type[Gateway | Checkpoints]) -> None:
    """The same game finds it: an invariant is broken, or a machine sees what cannot be."""
    part = "gateway" if issubclass(mutant, Gateway) else "machine"
    kind = type(f"{mutant.__name__}World", (World,), {part: mutant})
    game = type(f"{mutant.__name__}Game", (Game,), {"kind": kind})
    with pytest.raises((AssertionError, KeyError, LakewardError, ExceptionGroup)):
        play(game, settings=HUNT)


@pytest.mark.parametrize(("mutant", "script"), SCRIPTED)
def test_a_rare_mutant_of_the_protocol_dies(mutant: type[Checkpoints], script: Callable[[type[World]], None]) -> None:
    """A script finds it that the real machines play without harm."""
    script(World)
    with pytest.raises(AssertionError, match="A-I"):
        script(type(f"{mutant.__name__}World", (World,), {"machine": mutant}))
