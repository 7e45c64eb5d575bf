"""Mutants of the machine of a subtask's link."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from lakeward.machines import link
from lakeward.machines.link import (
    RULES,
    Connect,
    ConnectionLost,
    Deliver,
    EnvelopeReceived,
    LinkCommand,
    LinkEvent,
    LinkMachine,
    LinkPhase,
    PeerRejected,
    ReportSettled,
    SendRequested,
    Transmit,
)
from lakeward.machines.machine import Rule
from lakeward.model.events import Heartbeat, Register, SubtaskDone
from lakeward_mutants.changed import with_rules

if TYPE_CHECKING:
    from lakeward.machines.link import LinkState

REGISTERING, CONNECTED = LinkPhase.REGISTERING, LinkPhase.CONNECTED
RECONNECTING, CLOSED = LinkPhase.RECONNECTING, LinkPhase.CLOSED
Commands = tuple[LinkCommand, ...]


def _may_go_on(held: LinkState, event: EnvelopeReceived) -> bool:
    return not link.is_cancelled(held, event)


def _send_nothing(held: LinkState, event: EnvelopeReceived) -> Commands:
    link.send_again(held, event)
    return ()


def _send_data_again(held: LinkState, event: EnvelopeReceived) -> Commands:
    return tuple(
        one
        for one in link.send_again(held, event)
        if not (isinstance(one, Transmit) and isinstance(one.envelope.event, SubtaskDone))
    )


def _send_at_once(held: LinkState, event: SendRequested) -> Commands:
    return (Transmit(link.keep(held, event)),)


def _deliver_again(held: LinkState, event: EnvelopeReceived) -> Commands:
    return (*link.acknowledge(held, event), Deliver(event.envelope.event))


class SendsNothingAgain(LinkMachine):
    """Mutant: what was lost with a connection stays lost."""

    rules = with_rules(RULES, Rule(RECONNECTING, EnvelopeReceived, when=_may_go_on, to=CONNECTED, do=_send_nothing))


class ForgetsThatItIsDone(LinkMachine):
    """Mutant: `SubtaskDone` has no number, and is not sent again."""

    rules = with_rules(RULES, Rule(RECONNECTING, EnvelopeReceived, when=_may_go_on, to=CONNECTED, do=_send_data_again))


class SendsWhileItReconnects(LinkMachine):
    """Mutant: a data event overtakes those that are to be sent again."""

    rules = with_rules(RULES, Rule(RECONNECTING, SendRequested, do=_send_at_once))


class DeliversTwice(LinkMachine):
    """Mutant: what arrives again is delivered again."""

    rules = with_rules(RULES, Rule(CONNECTED, EnvelopeReceived, when=link.is_repeated, do=_deliver_again))


class AcknowledgesNothing(LinkMachine):
    """Mutant: a checkpoint may wait for an acknowledgement that only the next heartbeat brings."""

    def step(self, event: LinkEvent) -> Commands:
        """Answer nothing."""
        commands = super().step(event)
        if not isinstance(event, EnvelopeReceived):
            return commands
        return tuple(
            one for one in commands if not (isinstance(one, Transmit) and isinstance(one.envelope.event, Heartbeat))
        )


class RegistersAsAnotherAttempt(LinkMachine):
    """Mutant: after a reconnect it registers as one that never was deployed."""

    def step(self, event: LinkEvent) -> Commands:
        """Leave out which attempt it is."""
        return tuple(_unnamed(one) if isinstance(one, Connect) else one for one in super().step(event))


def _unnamed(command: Connect) -> Connect:
    register = command.register.event
    assert isinstance(register, Register)
    event = msgspec.structs.replace(register, attempt=None)
    return replace(command, register=msgspec.structs.replace(command.register, task_attempt=0, event=event))


class NeverGivesUp(LinkMachine):
    """Mutant: however long the coordinator was silent, it goes on."""

    rules = with_rules(
        RULES,
        Rule(REGISTERING, ConnectionLost, do=link.register_later),
        Rule(CONNECTED, (ConnectionLost, PeerRejected), to=RECONNECTING, do=link.reconnect),
        Rule(RECONNECTING, (ConnectionLost, PeerRejected), do=link.reconnect_later),
    )


class GivesUpAtOnce(LinkMachine):
    """Mutant: a connection that is lost is not replaced."""

    rules = with_rules(
        RULES,
        Rule(REGISTERING, ConnectionLost, to=CLOSED, do=link.report_never_deployed),
        Rule((CONNECTED, RECONNECTING), (ConnectionLost, PeerRejected), to=CLOSED, do=link.report_lost),
    )


class SettlesTooEarly(LinkMachine):
    """Mutant: the subtask ends before everything is acknowledged."""

    def step(self, event: LinkEvent) -> Commands:
        """Say so whenever it was sent."""
        commands = super().step(event)
        said = self.done is None or self.phase is not CONNECTED or ReportSettled() in commands
        return commands if said else (*commands, ReportSettled())


class NeverSettles(LinkMachine):
    """Mutant: a subtask that is done waits for ever."""

    def step(self, event: LinkEvent) -> Commands:
        """Leave it out."""
        return tuple(one for one in super().step(event) if not isinstance(one, ReportSettled))


class HurriesToReconnect(LinkMachine):
    """Mutant: a coordinator that is away is asked without a pause."""

    def step(self, event: LinkEvent) -> Commands:
        """Connect at once."""
        return tuple(replace(one, after_s=0.0) if isinstance(one, Connect) else one for one in super().step(event))
