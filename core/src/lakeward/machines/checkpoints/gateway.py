"""One gateway in front of a channel: holds data events back while a checkpoint is cut. Pure.

Coordinator and subtask have one each, for each attempt, in the direction in which they send.

Rules
* Control events always pass. Data events pass while it is open; while it is closed they are held, in order.
* The channel gives numbers when an event is really sent. What was held keeps its order and is sent before anything
  new, so the number that a held event will get is known (`held_as`).
* Ids never regress: a checkpoint that ended here, or one older than the newest seen, closes nothing any more. A newer
  one takes a closed gateway over: what is held stays held.
* Restored events are sent first, exactly once, under their origin.
* A gateway goes with its attempt, and so does what it holds: nothing of it reaches the next attempt.
* `TRANSITIONS` names the state that follows; every state is looked up there.
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
    """Its attempt is there: what was restored may be sent. Repeated, it changes nothing."""


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """Its owner has this to send."""

    event: AnyEvent


@dataclass(frozen=True, slots=True)
class CloseFor:
    """A checkpoint starts."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class OpenFor:
    """The snapshot behind the gateway is taken. Late or repeated, it is harmless; with an id never seen, illegal."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class AbortFor:
    """A checkpoint is over, completed or aborted. Harmless for any id; one that was never seen is over as well."""

    checkpoint: int


GatewayEvent = Started | MessageReceived | CloseFor | OpenFor | AbortFor

# --- commands ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pass:
    """Give this to the channel."""

    event: AnyEvent


@dataclass(frozen=True, slots=True)
class GatewayClosed:
    """It is closed for this checkpoint: no data event follows. Repeated for each repeated `CloseFor`."""

    checkpoint: int


GatewayCommand = Pass | GatewayClosed

# --- states -----------------------------------------------------------------------------------------------------


class GatewayPhase(MachineState):
    """Where a gateway stands."""

    OPEN = "open"
    CLOSED = "closed"


class GatewayGuard(MachineState):
    """Which checkpoint an event names; it selects the next state in the row of the event."""

    ALWAYS = "always"
    """None: there is nothing to choose from."""
    NEWER = "newer checkpoint"
    """One that is newer than all that were seen."""
    CURRENT = "current checkpoint"
    """The newest that was seen."""
    OLDER = "older checkpoint"
    """One that is older than the newest that was seen."""


_OPEN, _CLOSED = GatewayPhase.OPEN, GatewayPhase.CLOSED
_ALWAYS, _NEWER = GatewayGuard.ALWAYS, GatewayGuard.NEWER
_CURRENT, _OLDER = GatewayGuard.CURRENT, GatewayGuard.OLDER

TRANSITIONS: Mapping[tuple[GatewayPhase, type[GatewayEvent]], Mapping[GatewayGuard, GatewayPhase]] = MappingProxyType(
    {
        (_OPEN, Started): {_ALWAYS: _OPEN},
        (_OPEN, MessageReceived): {_ALWAYS: _OPEN},
        (_OPEN, CloseFor): {_NEWER: _CLOSED, _CURRENT: _OPEN, _OLDER: _OPEN},  # one that is over closes nothing
        (_OPEN, OpenFor): {_CURRENT: _OPEN, _OLDER: _OPEN},
        (_OPEN, AbortFor): {_NEWER: _OPEN, _CURRENT: _OPEN, _OLDER: _OPEN},
        (_CLOSED, Started): {_ALWAYS: _CLOSED},  # it registered in the middle of a checkpoint
        (_CLOSED, MessageReceived): {_ALWAYS: _CLOSED},
        (_CLOSED, CloseFor): {_NEWER: _CLOSED, _CURRENT: _CLOSED, _OLDER: _CLOSED},
        (_CLOSED, OpenFor): {_CURRENT: _OPEN, _OLDER: _CLOSED},
        (_CLOSED, AbortFor): {_NEWER: _OPEN, _CURRENT: _OPEN, _OLDER: _CLOSED},
    }
)
"""(state, event) to the state that follows under each guard; complete: what is not in it is illegal."""


class Gateway:
    """One gateway of one attempt."""

    def __init__(
        self, *, latest: int = 0, closed_for: int | None = None, restored: Iterable[BlockedEvent] = ()
    ) -> None:
        """Start open, or closed for a checkpoint in the middle of which the attempt registered.

        Args:
            latest: number of the newest checkpoint so far; it and all older ones are over.
            closed_for: the checkpoint that runs, None for none.
            restored: events to be sent again before anything new.
        """
        self._phase = _OPEN if closed_for is None else _CLOSED
        self._latest = latest if closed_for is None else max(latest, closed_for)
        self._held: list[AnyEvent] = [msgspec.structs.replace(one.event, origin=one.origin) for one in restored]

    @property
    def phase(self) -> GatewayPhase:
        """Where it stands."""
        return self._phase

    @property
    def closed_for(self) -> int | None:
        """The checkpoint that it is closed for, None while it is not."""
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
        """Return what is held, for a snapshot: finishes only, for a restored subtask requests splits anew.

        Args:
            last_sent: this attempt, with the number of the last data event that was really sent.

        Returns:
            Each finish under the origin that it was restored with, or under the number that it will be sent with.
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
        restored = self._pass_held() if before is _OPEN else ()  # sent before the cut where that is still possible
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
    """The origins of the finishes that were received: the receiver's duplicate check.

    Kept while a coordinator lives. A restored one starts empty: what was held at a cut had not been received before.
    """

    def __init__(self) -> None:
        """Start with nothing received."""
        self._seen: set[Origin] = set()

    def first(self, origin: Origin) -> bool:
        """Keep an origin.

        Args:
            origin: the event's own, or who sent it under which number where it has none.

        Returns:
            True the first time.
        """
        if origin in self._seen:
            return False
        self._seen.add(origin)
        return True
