"""A gateway in front of a channel: it holds data events back while a checkpoint is taken. Pure.

For each attempt, coordinator and subtask have one gateway each, for the direction in which they send.

Rules
* Control events always pass. Data events pass while it is open; while it is closed they are held, in order.
* The channel numbers an event when it is sent. Held events keep their order and are sent before new ones, so the
  number that a held event will get is known (`held_as`).
* Checkpoint ids never go back: a checkpoint that ended here, or that is older than the newest one seen, does not close
  the gateway. If a newer checkpoint closes a closed gateway, held events stay held.
* Restored events are sent first, exactly once, under their origin.
* A gateway ends with its attempt, and so do the events that it holds: the next attempt does not get them.
* `TRANSITIONS` gives the next state; every state is looked up there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, assert_never

import msgspec

from lakeward.machines.machine_state import MachineState, next_state
from lakeward.model.checkpoints import BlockedEvent, Origin
from lakeward.model.events import DATA_EVENTS, AnyEvent, SplitFinished

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# --- events -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    """The attempt has started: restored events may be sent. Repeated, it changes nothing."""


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """The gateway's owner sends this event."""

    event: AnyEvent


@dataclass(frozen=True, slots=True)
class CloseFor:
    """A checkpoint starts."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class OpenFor:
    """The snapshot is taken. Late or repeated, it changes nothing; with an id that was never seen, it is illegal."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class AbortFor:
    """A checkpoint was completed or aborted. Allowed for any id; an id that was never seen counts as ended as well."""

    checkpoint: int


GatewayEvent = Started | MessageReceived | CloseFor | OpenFor | AbortFor

# --- commands ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pass:
    """Pass this event to the channel."""

    event: AnyEvent


@dataclass(frozen=True, slots=True)
class GatewayClosed:
    """The gateway is closed for this checkpoint: no data event follows. Repeated for each repeated `CloseFor`."""

    checkpoint: int


GatewayCommand = Pass | GatewayClosed

# --- states -----------------------------------------------------------------------------------------------------


class GatewayPhase(MachineState):
    """The state of a gateway."""

    OPEN = "open"
    CLOSED = "closed"


class GatewayGuard(MachineState):
    """How the event's checkpoint compares with the newest one; it selects the next state in the row of the event."""

    ALWAYS = "always"
    """The event has no checkpoint: its row has one next state."""
    NEWER = "newer checkpoint"
    """It is newer than all that were seen."""
    CURRENT = "current checkpoint"
    """It is the newest that was seen."""
    OLDER = "older checkpoint"
    """It is older than the newest that was seen."""


_OPEN, _CLOSED = GatewayPhase.OPEN, GatewayPhase.CLOSED
_ALWAYS, _NEWER = GatewayGuard.ALWAYS, GatewayGuard.NEWER
_CURRENT, _OLDER = GatewayGuard.CURRENT, GatewayGuard.OLDER

TRANSITIONS: Mapping[tuple[GatewayPhase, type[GatewayEvent]], Mapping[GatewayGuard, GatewayPhase]] = MappingProxyType(
    {
        (_OPEN, Started): {_ALWAYS: _OPEN},
        (_OPEN, MessageReceived): {_ALWAYS: _OPEN},
        (_OPEN, CloseFor): {_NEWER: _CLOSED, _CURRENT: _OPEN, _OLDER: _OPEN},  # an ended checkpoint does not close it
        (_OPEN, OpenFor): {_CURRENT: _OPEN, _OLDER: _OPEN},
        (_OPEN, AbortFor): {_NEWER: _OPEN, _CURRENT: _OPEN, _OLDER: _OPEN},
        (_CLOSED, Started): {_ALWAYS: _CLOSED},  # it registered in the middle of a checkpoint
        (_CLOSED, MessageReceived): {_ALWAYS: _CLOSED},
        (_CLOSED, CloseFor): {_NEWER: _CLOSED, _CURRENT: _CLOSED, _OLDER: _CLOSED},
        (_CLOSED, OpenFor): {_CURRENT: _OPEN, _OLDER: _CLOSED},
        (_CLOSED, AbortFor): {_NEWER: _OPEN, _CURRENT: _OPEN, _OLDER: _CLOSED},
    }
)
"""(state, event) to the next state by guard. Complete: what is not in it is illegal."""


class Gateway:
    """One gateway of one attempt."""

    def __init__(
        self, *, latest: int = 0, closed_for: int | None = None, restored: Iterable[BlockedEvent] = ()
    ) -> None:
        """Start open, or closed if the attempt registered while a checkpoint is running.

        Args:
            latest: number of the newest checkpoint so far; it and all older ones have ended.
            closed_for: the checkpoint that runs, None for none.
            restored: events to be sent again before anything new.
        """
        self._phase = _OPEN if closed_for is None else _CLOSED
        self._latest = latest if closed_for is None else max(latest, closed_for)
        self._held: list[AnyEvent] = [msgspec.structs.replace(one.event, origin=one.origin) for one in restored]

    @property
    def phase(self) -> GatewayPhase:
        """The gateway's state."""
        return self._phase

    @property
    def closed_for(self) -> int | None:
        """The checkpoint that it is closed for, None while it is open."""
        return self._latest if self._phase is _CLOSED else None

    @property
    def latest(self) -> int:
        """The newest checkpoint that it ever saw."""
        return self._latest

    @property
    def held(self) -> tuple[AnyEvent, ...]:
        """The events that are held, in order."""
        return tuple(self._held)

    def held_as(self, last_sent: Origin) -> tuple[BlockedEvent, ...]:
        """Return the held results for a snapshot. Held split requests are left out: a restored subtask sends new ones.

        Args:
            last_sent: this attempt, with the number of the last data event that was sent.

        Returns:
            Each result with the origin that it was restored with, or with the number that it will be sent under.
        """
        blocked = []
        for position, event in enumerate(self._held, start=1):
            if isinstance(event, SplitFinished):
                origin = event.origin or replace(last_sent, sequence=last_sent.sequence + position)
                blocked.append(BlockedEvent(origin, msgspec.structs.replace(event, origin=None)))
        return tuple(blocked)

    def step(self, event: GatewayEvent) -> tuple[GatewayCommand, ...]:
        """Take one event.

        Args:
            event: what happened.

        Returns:
            What is to be done, in this order.

        Raises:
            IllegalEventError: a checkpoint is opened that was never seen; nothing was changed.
        """
        guard = self._guard(event)
        detail = f", newest checkpoint {self._latest}"
        before = self._phase
        self._phase = next_state("gateway", TRANSITIONS, before, event, guard, detail=detail)
        match event:
            case Started():
                return self._flush()
            case MessageReceived():
                return self._send(event.event)
            case CloseFor():
                return self._close(event.checkpoint, guard, before)
            case OpenFor() | AbortFor():
                return self._open(event.checkpoint, before)
            case _:
                assert_never(event)

    def _guard(self, event: GatewayEvent) -> GatewayGuard:
        if isinstance(event, Started | MessageReceived):
            return _ALWAYS
        if event.checkpoint == self._latest:
            return _CURRENT
        return _NEWER if event.checkpoint > self._latest else _OLDER

    def _send(self, event: AnyEvent) -> tuple[GatewayCommand, ...]:
        if not isinstance(event, DATA_EVENTS):
            return (Pass(event),)
        self._held.append(event)
        return self._flush()

    def _close(self, checkpoint: int, guard: GatewayGuard, before: GatewayPhase) -> tuple[GatewayCommand, ...]:
        if self._phase is _OPEN or guard is _OLDER:
            return ()
        restored = self._pass_held() if before is _OPEN else ()  # sent before the gateway closes, if it is still open
        self._latest = checkpoint
        return (*restored, GatewayClosed(checkpoint))

    def _open(self, checkpoint: int, before: GatewayPhase) -> tuple[GatewayCommand, ...]:
        self._latest = max(self._latest, checkpoint)
        return self._flush() if before is _CLOSED else ()

    def _flush(self) -> tuple[GatewayCommand, ...]:
        return self._pass_held() if self._phase is _OPEN else ()

    def _pass_held(self) -> tuple[GatewayCommand, ...]:
        held, self._held = self._held, []
        return tuple(Pass(event) for event in held)


class Origins:
    """The origins of the results that were received, by which the receiver finds duplicates.

    Kept as long as the coordinator lives. A restored coordinator starts empty: events that were held at the
    checkpoint had not been received before.
    """

    def __init__(self) -> None:
        """Start with nothing received."""
        self._seen: set[Origin] = set()

    def first(self, origin: Origin) -> bool:
        """Add an origin.

        Args:
            origin: the event's own one, or else its sender and number.

        Returns:
            True if it was not there before.
        """
        if origin in self._seen:
            return False
        self._seen.add(origin)
        return True
