"""Mutants of the gateway."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import structs

from lakeward.machines.checkpoints import gateway
from lakeward.machines.checkpoints.gateway import (
    CLOSED,
    OPEN,
    RULES,
    AbortFor,
    Gateway,
    GatewayCommand,
    GatewayEvent,
    MessageReceived,
    OpenFor,
    Pass,
    Started,
)
from lakeward.machines.machine import Rule
from lakeward.model.events import SplitFinished
from lakeward_mutants.changed import with_rules

if TYPE_CHECKING:
    from lakeward.model.checkpoints import BlockedEvent, Origin


def _hold_first(held: gateway.HeldEvents, event: MessageReceived) -> tuple[GatewayCommand, ...]:
    held.held = (event.event, *held.held)
    return ()


def _pass_first(held: gateway.HeldEvents, event: MessageReceived) -> tuple[GatewayCommand, ...]:
    return (*_hold_first(held, event), *gateway.pass_held(held, event))


class LetsDataPass(Gateway):
    """Mutant: a closed gateway holds nothing."""

    rules = with_rules(RULES, Rule((OPEN, CLOSED), MessageReceived, do=gateway.pass_event))


class HoldsControl(Gateway):
    """Mutant: control events are held, too."""

    rules = with_rules(
        RULES,
        Rule(OPEN, MessageReceived, do=gateway.pass_in_order),
        Rule(CLOSED, MessageReceived, do=gateway.hold),
    )


class SendsBackwards(Gateway):
    """Mutant: what was held goes out newest first."""

    def step(self, event: GatewayEvent) -> tuple[GatewayCommand, ...]:
        commands = super().step(event)
        passed = [command for command in commands if isinstance(command, Pass)]
        return (*reversed(passed), *commands[len(passed) :])


class ForgetsWhatItHeld(Gateway):
    """Mutant: it opens empty."""

    def step(self, event: GatewayEvent) -> tuple[GatewayCommand, ...]:
        commands = super().step(event)
        return () if isinstance(event, OpenFor | AbortFor) else commands


class SendsRestoredTwice(Gateway):
    """Mutant: what was restored is sent at the start and once more later."""

    def step(self, event: GatewayEvent) -> tuple[GatewayCommand, ...]:
        commands = super().step(event)
        return (*commands, *commands) if isinstance(event, Started) else commands


class SendsRestoredLast(Gateway):
    """Mutant: what is new overtakes what was restored."""

    rules = with_rules(
        RULES,
        Rule(OPEN, MessageReceived, when=gateway.is_data, do=_pass_first),
        Rule(CLOSED, MessageReceived, when=gateway.is_data, do=_hold_first),
    )


class ForgetsRestoredOrigins(Gateway):
    """Mutant: a restored event that is held again gets a new origin."""

    def held_as(self, last_sent: Origin) -> tuple[BlockedEvent, ...]:
        kept = super().held_as(last_sent)
        return tuple(structs.replace(one, origin=replace(last_sent, sequence=last_sent.sequence + 1)) for one in kept)


class CountsFinishesOnly(Gateway):
    """Mutant: the number of a held finish leaves the other held events out."""

    def held_as(self, last_sent: Origin) -> tuple[BlockedEvent, ...]:
        held, self.held = self.held, tuple(event for event in self.held if isinstance(event, SplitFinished))
        kept = super().held_as(last_sent)
        self.held = held
        return kept


class NeverOpensOnAbort(Gateway):
    """Mutant: only its own snapshot opens it."""

    def step(self, event: GatewayEvent) -> tuple[GatewayCommand, ...]:
        return () if isinstance(event, AbortFor) else super().step(event)
