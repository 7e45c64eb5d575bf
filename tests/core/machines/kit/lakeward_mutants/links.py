"""Mutants of the machine of a subtask's link."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from lakeward.machines.link import Connect, Deliver, LinkGuard, LinkMachine, LinkPhase, ReportSettled, Transmit
from lakeward.model.events import Heartbeat, SubtaskDone

if TYPE_CHECKING:
    from lakeward.machines.link import ConnectionLost, EnvelopeReceived, LinkCommand, LinkEvent, PeerRejected
    from lakeward.model.events import AnyEvent


class SendsNothingAgain(LinkMachine):
    """Mutant: what was lost with a connection stays lost."""

    def _received(self, event: EnvelopeReceived, before: LinkPhase, found: AnyEvent | None) -> tuple[LinkCommand, ...]:
        commands = super()._received(event, before, found)
        return () if before is LinkPhase.RECONNECTING and self._phase is LinkPhase.CONNECTED else commands


class ForgetsThatItIsDone(LinkMachine):
    """Mutant: `SubtaskDone` has no number, and is not sent again."""

    def _received(self, event: EnvelopeReceived, before: LinkPhase, found: AnyEvent | None) -> tuple[LinkCommand, ...]:
        commands = super()._received(event, before, found)
        again = before is LinkPhase.RECONNECTING
        return tuple(
            one
            for one in commands
            if not (again and isinstance(one, Transmit) and isinstance(one.envelope.event, SubtaskDone))
        )


class SendsWhileItReconnects(LinkMachine):
    """Mutant: a data event overtakes those that are to be sent again."""

    def _send(self, event: AnyEvent) -> tuple[LinkCommand, ...]:
        envelope = self._open_channel().send(event)
        if isinstance(event, SubtaskDone):
            self._done = envelope
        return (Transmit(envelope), *(self._settled() if isinstance(event, SubtaskDone) else ()))


class DeliversTwice(LinkMachine):
    """Mutant: what arrives again is delivered again."""

    def _received(self, event: EnvelopeReceived, before: LinkPhase, found: AnyEvent | None) -> tuple[LinkCommand, ...]:
        if before is LinkPhase.CONNECTED and self._phase is LinkPhase.CONNECTED and found is None:
            return (*super()._received(event, before, found), Deliver(event.envelope.event))
        return super()._received(event, before, found)


class AcknowledgesNothing(LinkMachine):
    """Mutant: a checkpoint may wait for an acknowledgement that only the next heartbeat brings."""

    def _received(self, event: EnvelopeReceived, before: LinkPhase, found: AnyEvent | None) -> tuple[LinkCommand, ...]:
        commands = super()._received(event, before, found)
        return tuple(
            one for one in commands if not (isinstance(one, Transmit) and isinstance(one.envelope.event, Heartbeat))
        )


class RegistersAsAnotherAttempt(LinkMachine):
    """Mutant: after a reconnect it registers as one that never was deployed."""

    def _connect(self, after_s: float) -> tuple[LinkCommand, ...]:
        known, self._register = self._register, msgspec.structs.replace(self._register, attempt=None)
        commands = super()._connect(after_s)
        self._register = known
        return commands


class NeverGivesUp(LinkMachine):
    """Mutant: however long the coordinator was silent, it goes on."""

    def _guard(self, event: LinkEvent) -> LinkGuard:
        guard = super()._guard(event)
        return LinkGuard.IN_TIME if guard is LinkGuard.SILENT else guard


class GivesUpAtOnce(LinkMachine):
    """Mutant: a connection that is lost is not replaced."""

    def _guard(self, event: LinkEvent) -> LinkGuard:
        guard = super()._guard(event)
        return LinkGuard.SILENT if guard is LinkGuard.IN_TIME else guard


class SettlesTooEarly(LinkMachine):
    """Mutant: the subtask ends before everything is acknowledged."""

    def _settled(self) -> tuple[LinkCommand, ...]:
        return (ReportSettled(),) if self._done is not None else ()


class NeverSettles(LinkMachine):
    """Mutant: a subtask that is done waits for ever."""

    def _settled(self) -> tuple[LinkCommand, ...]:
        return ()


class HurriesToReconnect(LinkMachine):
    """Mutant: a coordinator that is away is asked without a pause."""

    def _lost(self, event: ConnectionLost | PeerRejected, before: LinkPhase) -> tuple[LinkCommand, ...]:
        return tuple(
            replace(one, after_s=0.0) if isinstance(one, Connect) else one for one in super()._lost(event, before)
        )
