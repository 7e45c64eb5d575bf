"""Mutants of the machine of a gang."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from lakeward.machines import gang
from lakeward.machines.gang import RULES, DeployMembers, EndLaunch, GangMachine, GangPhase, MemberConnected
from lakeward.machines.gang import MemberFinished as Finished
from lakeward.machines.gang import MemberLost as Lost
from lakeward.machines.gang import MemberRegistered as Registered
from lakeward.machines.machine import Rule
from lakeward_mutants.changed import with_rules

if TYPE_CHECKING:
    from lakeward.machines.gang import GangCommand, GangEvent, GangState

GATHERING, CONNECTING, EXCHANGING = GangPhase.GATHERING, GangPhase.CONNECTING, GangPhase.EXCHANGING
BROKEN, WRITTEN = GangPhase.BROKEN, GangPhase.WRITTEN


def _end(_: GangState, event: Lost) -> tuple[GangCommand, ...]:
    return (EndLaunch(event.reason),)


def _admit(held: GangState, event: Registered) -> tuple[GangCommand, ...]:
    held.members[event.subtask] = event.attempt
    return ()


class DeploysBeforeAllAreThere(GangMachine):
    """Mutant: the first ones are told where some of the others are."""

    rules = with_rules(
        RULES,
        Rule(
            GATHERING,
            Registered,
            when=lambda held, event: gang.is_of_launch(held, event) and len(held.members) + 2 >= held.size,
            to=CONNECTING,
            do=gang.deploy,
        ),
    )


class AdmitsLateMembers(GangMachine):
    """Mutant: a task that registers after the deployment is neither refused nor a sign of a loss."""

    rules = with_rules(RULES, Rule((CONNECTING, EXCHANGING, WRITTEN, BROKEN), Registered, do=_admit))


class KeepsTheLaunchAfterALoss(GangMachine):
    """Mutant: the others wait for a member that is gone."""

    rules = with_rules(RULES, Rule((CONNECTING, EXCHANGING), Lost, when=gang.is_member, to=BROKEN))


class RemembersWhoLeft(GangMachine):
    """Mutant: a task that left before the deployment counts as there."""

    rules = with_rules(RULES, Rule(GATHERING, Lost))


class EndsTheLaunchTwice(GangMachine):
    """Mutant: each loss ends the launch, also one of a launch that has ended."""

    rules = with_rules(RULES, Rule(BROKEN, Lost, do=_end))


class TakesCheckpointsAtOnce(GangMachine):
    """Mutant: one member that has connected is enough."""

    rules = with_rules(
        RULES, Rule(CONNECTING, MemberConnected, when=gang.is_member, to=EXCHANGING, do=gang.note_connected)
    )


class EndsWithTheFirstWriter(GangMachine):
    """Mutant: what the other writers hold is not awaited."""

    rules = with_rules(
        RULES,
        Rule(
            EXCHANGING, Finished, when=gang.has_finished, to=WRITTEN, do=gang.note_finished, then=(gang.AllWritten(),)
        ),
    )


class BelievesAnEarlyEnd(GangMachine):
    """Mutant: a writer may finish while splits are still read."""

    def step(self, event: GangEvent) -> tuple[GangCommand, ...]:
        """Take it as one that comes when all is read."""
        return super().step(replace(event, all_read=True) if isinstance(event, Finished) else event)


class ListensToStrangers(GangMachine):
    """Mutant: what an attempt says that is no member counts."""

    rules = with_rules(RULES, Rule((CONNECTING, EXCHANGING), Lost, to=BROKEN, do=_end))


class ForgetsToDeployOne(GangMachine):
    """Mutant: one member is not deployed with the others."""

    def step(self, event: GangEvent) -> tuple[GangCommand, ...]:
        """Leave the first one out."""
        return tuple(
            DeployMembers(one.members[1:]) if isinstance(one, DeployMembers) else one for one in super().step(event)
        )
