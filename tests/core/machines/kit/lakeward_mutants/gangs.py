"""Mutants of the machine of a gang."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.machines.gang import DeployMembers, EndLaunch, GangGuard, GangMachine, GangPhase, RefuseMember

if TYPE_CHECKING:
    from lakeward.machines.gang import (
        GangCommand,
        GangEvent,
        MemberConnected,
        MemberFinished,
        MemberLost,
        MemberRegistered,
    )


class DeploysBeforeAllAreThere(GangMachine):
    """Mutant: the first ones are told where some of the others are."""

    def _guard_of_registered(self, event: MemberRegistered) -> GangGuard:
        guard = super()._guard_of_registered(event)
        early = guard is GangGuard.UNCHANGED and len(self._members) + 2 >= self._size
        return GangGuard.ALL_THERE if early else guard


class AdmitsLateMembers(GangMachine):
    """Mutant: a task that registers after the deployment is neither refused nor a sign of a loss."""

    def _registered(self, event: MemberRegistered, before: GangPhase) -> tuple[GangCommand, ...]:
        commands = super()._registered(event, before)
        self._members = {**self._members, event.subtask: event.attempt}
        return tuple(one for one in commands if not isinstance(one, RefuseMember))


class KeepsTheLaunchAfterALoss(GangMachine):
    """Mutant: the others wait for a member that is gone."""

    def _lose(self, event: MemberLost, guard: GangGuard) -> tuple[GangCommand, ...]:
        return tuple(one for one in super()._lose(event, guard) if not isinstance(one, EndLaunch))


class RemembersWhoLeft(GangMachine):
    """Mutant: a task that left before the deployment counts as there."""

    def _lose(self, event: MemberLost, guard: GangGuard) -> tuple[GangCommand, ...]:
        members = self._members
        commands = super()._lose(event, guard)
        self._members = members
        return commands


class EndsTheLaunchTwice(GangMachine):
    """Mutant: each loss ends the launch, also one of a launch that has ended."""

    def _lose(self, event: MemberLost, guard: GangGuard) -> tuple[GangCommand, ...]:
        found = super()._lose(event, guard)
        return found or ((EndLaunch(event.reason),) if self._phase is GangPhase.BROKEN else ())


class TakesCheckpointsAtOnce(GangMachine):
    """Mutant: one member that has connected is enough."""

    def _guard_of_connected(self, event: MemberConnected) -> GangGuard:
        guard = super()._guard_of_connected(event)
        early = guard is GangGuard.UNCHANGED and self._phase is GangPhase.CONNECTING
        return GangGuard.ALL_CONNECTED if early else guard


class EndsWithTheFirstWriter(GangMachine):
    """Mutant: what the other writers hold is not awaited."""

    def _guard_of_finished(self, event: MemberFinished) -> GangGuard:
        guard = super()._guard_of_finished(event)
        return GangGuard.ALL_WRITTEN if guard is GangGuard.UNCHANGED else guard


class BelievesAnEarlyEnd(GangMachine):
    """Mutant: a writer may finish while splits are still read."""

    def _guard_of_finished(self, event: MemberFinished) -> GangGuard:
        guard = super()._guard_of_finished(event)
        wrong = guard is GangGuard.NOT_ALLOWED and self._phase is GangPhase.EXCHANGING
        return GangGuard.UNCHANGED if wrong else guard


class ListensToStrangers(GangMachine):
    """Mutant: what an attempt says that is no member counts."""

    def _guard(self, event: GangEvent) -> GangGuard:
        deployed = self._phase in {GangPhase.CONNECTING, GangPhase.EXCHANGING}
        stranger = not self.is_member(event.subtask, event.attempt)
        return GangGuard.LOST if deployed and stranger and hasattr(event, "reason") else super()._guard(event)


class ForgetsToDeployOne(GangMachine):
    """Mutant: one member is not deployed with the others."""

    def step(self, event: GangEvent) -> tuple[GangCommand, ...]:
        return tuple(
            DeployMembers(one.members[1:]) if isinstance(one, DeployMembers) else one for one in super().step(event)
        )
