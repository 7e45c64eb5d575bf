"""Mutants of the gateway."""

from __future__ import annotations

from dataclasses import replace

from lakeward.machines.checkpoints.gateway import (
    AbortFor,
    Gateway,
    GatewayCommand,
    GatewayEvent,
    GatewayPhase,
    Pass,
    Started,
)
from lakeward.model.checkpoints import BlockedEvent, Origin
from lakeward.model.events import DATA_EVENTS, AnyEvent, SplitFinished


class LetsDataPass(Gateway):
    """Mutant: a closed gateway holds nothing."""

    def _send(self, event: AnyEvent) -> tuple[GatewayCommand, ...]:
        return (Pass(event),)


class HoldsControl(Gateway):
    """Mutant: control events are held, too."""

    def _send(self, event: AnyEvent) -> tuple[GatewayCommand, ...]:
        self._held.append(event)
        return self._flush()


class SendsBackwards(Gateway):
    """Mutant: what was held goes out newest first."""

    def _pass_held(self) -> tuple[GatewayCommand, ...]:
        return tuple(reversed(super()._pass_held()))


class ForgetsWhatItHeld(Gateway):
    """Mutant: it opens empty."""

    def _open(self, checkpoint: int, before: GatewayPhase) -> tuple[GatewayCommand, ...]:
        super()._open(checkpoint, before)
        return ()


class SendsRestoredTwice(Gateway):
    """Mutant: what was restored is sent at the start and once more later."""

    def step(self, event: GatewayEvent) -> tuple[GatewayCommand, ...]:
        commands = super().step(event)
        return (*commands, *commands) if isinstance(event, Started) else commands


class SendsRestoredLast(Gateway):
    """Mutant: what is new overtakes what was restored."""

    def _send(self, event: AnyEvent) -> tuple[GatewayCommand, ...]:
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

    def step(self, event: GatewayEvent) -> tuple[GatewayCommand, ...]:
        return () if isinstance(event, AbortFor) else super().step(event)
