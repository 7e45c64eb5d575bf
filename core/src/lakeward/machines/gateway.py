"""One gateway in front of a channel: holds data events back while a checkpoint is cut. Pure.

Coordinator and subtask have one each, for each attempt, in the direction in which they send.

Rules
* Control events always pass. Data events pass while it is open; while it is closed they are held, in order.
* Numbers are not its business: the channel gives them when an event is really sent. What was held keeps its order and
  is sent before anything new, so the number that a held event will get is known (`held_as`).
* Ids never regress: a checkpoint that ended here, or one older than the newest seen, closes nothing any more. A newer
  one takes a closed gateway over: what is held stays held.
* What a restore gave is sent first, exactly once, under its origin.
* The gateway of an attempt that is gone drops what it holds: nothing of it reaches the next attempt.
* Where it may go is in `TRANSITIONS`, looked up at every move.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, assert_never

import msgspec

from lakeward.errors import IllegalEventError
from lakeward.machines.machine_state import MachineState
from lakeward.model.checkpoints import BlockedEvent, Origin
from lakeward.model.events import DATA_EVENTS, AnyEvent, SplitFinished

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_MACHINE = "gateway"

# --- events -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    """Its attempt is there: what was restored may go. Said again, it changes nothing."""


@dataclass(frozen=True, slots=True)
class Said:
    """Its owner wants to send this."""

    event: AnyEvent


@dataclass(frozen=True, slots=True)
class CloseFor:
    """A checkpoint starts."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class OpenFor:
    """The snapshot behind the gateway is taken. Late or again, it is harmless; of an id never seen, illegal."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class AbortFor:
    """A checkpoint is over, whatever became of it. Harmless for any id; one that was never seen is over, too."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class Discarded:
    """Its attempt is gone."""


GatewayEvent = Started | Said | CloseFor | OpenFor | AbortFor | Discarded

# --- commands ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pass:
    """Give this to the channel."""

    event: AnyEvent


@dataclass(frozen=True, slots=True)
class Shut:
    """It is closed for this checkpoint: no data event follows. Said again as often as it is asked to close."""

    checkpoint: int


GatewayCommand = Pass | Shut

# --- states -----------------------------------------------------------------------------------------------------


class GatewayPhase(MachineState):
    """Where a gateway stands."""

    OPEN = "open"
    CLOSED = "closed"
    GONE = "gone"
    """Its attempt is gone."""


_OPEN, _CLOSED, _GONE = GatewayPhase.OPEN, GatewayPhase.CLOSED, GatewayPhase.GONE


def _row(*states: GatewayPhase) -> frozenset[GatewayPhase]:
    return frozenset(states)


TRANSITIONS: Mapping[tuple[GatewayPhase, type[GatewayEvent]], frozenset[GatewayPhase]] = MappingProxyType(
    {
        (_OPEN, Started): _row(_OPEN),
        (_OPEN, Said): _row(_OPEN),
        (_OPEN, CloseFor): _row(_CLOSED, _OPEN),  # stays open for an id that is over
        (_OPEN, OpenFor): _row(_OPEN),  # late or again
        (_OPEN, AbortFor): _row(_OPEN),
        (_OPEN, Discarded): _row(_GONE),
        (_CLOSED, Started): _row(_CLOSED),  # it registered in the middle of a checkpoint
        (_CLOSED, Said): _row(_CLOSED),
        (_CLOSED, CloseFor): _row(_CLOSED),  # again, or a newer one takes over
        (_CLOSED, OpenFor): _row(_OPEN, _CLOSED),  # an older id's opens nothing
        (_CLOSED, AbortFor): _row(_OPEN, _CLOSED),
        (_CLOSED, Discarded): _row(_GONE),
        (_GONE, CloseFor): _row(_GONE),
        (_GONE, OpenFor): _row(_GONE),
        (_GONE, AbortFor): _row(_GONE),
        (_GONE, Discarded): _row(_GONE),
    }
)
"""(state, event) to the states that may follow; complete: what has no row is illegal."""


class Gateway:
    """One gateway of one attempt."""

    def __init__(
        self, *, latest: int = 0, closed_for: int | None = None, restored: Iterable[BlockedEvent] = ()
    ) -> None:
        """Start open, or closed for a checkpoint in the middle of which the attempt registered.

        Args:
            latest: number of the newest checkpoint so far; not higher ones than this are over.
            closed_for: the checkpoint that runs, None for none.
            restored: events to be sent again before anything new.
        """
        self._phase = _OPEN if closed_for is None else _CLOSED
        self._latest = latest if closed_for is None else max(latest, closed_for)
        self._held: list[AnyEvent] = [msgspec.structs.replace(was.event, origin=was.origin) for was in restored]

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
        """What is held back, in order."""
        return tuple(self._held)

    def held_as(self, last_sent: Origin) -> tuple[BlockedEvent, ...]:
        """Return what is held, for a snapshot: finishes only, for who goes on asks for splits anew.

        Args:
            last_sent: this attempt, with the number of the last data event that was really sent.

        Returns:
            Each finish under the origin that it was restored with, or under the number that it will be sent with.
        """
        blocked = []
        for place, event in enumerate(self._held, start=1):
            if isinstance(event, SplitFinished):
                origin = event.origin or replace(last_sent, sequence=last_sent.sequence + place)
                blocked.append(BlockedEvent(origin, msgspec.structs.replace(event, origin=None)))
        return tuple(blocked)

    def step(self, event: GatewayEvent) -> tuple[GatewayCommand, ...]:
        """Take one event.

        Args:
            event: what happened.

        Returns:
            What is to be done, in this order.

        Raises:
            IllegalEventError: no row for this event, or an id that was never seen is opened; nothing was changed.
        """
        if (self._phase, type(event)) not in TRANSITIONS:
            raise self._illegal(event)
        match event:
            case Started():
                return self._flush()
            case Said():
                return self._said(event.event)
            case CloseFor():
                return self._close(event)
            case OpenFor():
                return self._open(event)
            case AbortFor():
                return self._abort(event)
            case Discarded():
                self._held = []
                self._move(_GONE, event)
                return ()
            case _:
                assert_never(event)

    def _said(self, event: AnyEvent) -> tuple[GatewayCommand, ...]:
        if not isinstance(event, DATA_EVENTS):
            return (Pass(event),)
        self._held.append(event)
        return self._flush()

    def _close(self, event: CloseFor) -> tuple[GatewayCommand, ...]:
        if self._phase is _GONE:
            return ()
        again = self._phase is _CLOSED and event.checkpoint == self._latest
        if event.checkpoint <= self._latest and not again:
            return ()
        sent = self._flush()  # what a restore gave comes before the cut if it may
        self._latest = event.checkpoint
        self._move(_CLOSED, event)
        return (*sent, Shut(event.checkpoint))

    def _open(self, event: OpenFor) -> tuple[GatewayCommand, ...]:
        if event.checkpoint > self._latest:
            raise self._illegal(event)
        return self._over(event)

    def _abort(self, event: AbortFor) -> tuple[GatewayCommand, ...]:
        if self._phase is _OPEN:
            self._latest = max(self._latest, event.checkpoint)
        return self._over(event)

    def _over(self, event: OpenFor | AbortFor) -> tuple[GatewayCommand, ...]:
        """Open if it is closed for this checkpoint, or for an older one that can no longer go on."""
        if self._phase is not _CLOSED or event.checkpoint < self._latest:
            return ()
        self._latest = event.checkpoint
        self._move(_OPEN, event)
        return self._flush()

    def _flush(self) -> tuple[GatewayCommand, ...]:
        if self._phase is not _OPEN:
            return ()
        held, self._held = self._held, []
        return tuple(Pass(event) for event in held)

    def _move(self, phase: GatewayPhase, cause: GatewayEvent) -> None:
        if phase not in TRANSITIONS[self._phase, type(cause)]:
            raise IllegalEventError(_MACHINE, f"{self._phase.value}, which cannot become {phase.value}", cause)
        self._phase = phase

    def _illegal(self, event: GatewayEvent) -> IllegalEventError:
        return IllegalEventError(_MACHINE, f"{self._phase.value}, newest checkpoint {self._latest}", event)


class Origins:
    """Which finishes were received already, by their origin: the receiver's duplicate check.

    Kept for as long as a coordinator lives; a restored one starts empty, for what was blocked at a cut had not been
    received before it.
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
