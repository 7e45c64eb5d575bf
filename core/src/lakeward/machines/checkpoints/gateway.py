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
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import Struct

from lakeward.machines.machine import Machine, MachineState, Rule, Rules
from lakeward.model.checkpoints import BlockedEvent, Origin
from lakeward.model.events import DATA_EVENTS, AnyEvent, SplitFinished

if TYPE_CHECKING:
    from collections.abc import Iterable

# --- events -----------------------------------------------------------------------------------------------------


class Started(Struct, frozen=True):
    """The attempt has started: restored events may be sent. Repeated, it changes nothing."""


class MessageReceived(Struct, frozen=True):
    """The gateway's owner sends this event."""

    event: AnyEvent


class CloseFor(Struct, frozen=True):
    """A checkpoint starts."""

    checkpoint: int


class OpenFor(Struct, frozen=True):
    """The snapshot is taken. Late or repeated, it changes nothing; with an id that was never seen, it is illegal."""

    checkpoint: int


class AbortFor(Struct, frozen=True):
    """A checkpoint was completed or aborted. Allowed for any id; an id that was never seen counts as ended as well."""

    checkpoint: int


GatewayEvent = Started | MessageReceived | CloseFor | OpenFor | AbortFor

# --- commands ---------------------------------------------------------------------------------------------------


class Pass(Struct, frozen=True):
    """Pass this event to the channel."""

    event: AnyEvent


class GatewayClosed(Struct, frozen=True):
    """The gateway is closed for this checkpoint: no data event follows. Repeated for each repeated `CloseFor`."""

    checkpoint: int


GatewayCommand = Pass | GatewayClosed

# --- states -----------------------------------------------------------------------------------------------------


class GatewayPhase(MachineState):
    """The state of a gateway."""

    OPEN = "open"
    CLOSED = "closed"


class HeldEvents(Machine[GatewayEvent, GatewayCommand]):
    """The newest checkpoint, and the events that are held."""

    phase: GatewayPhase

    def __init__(
        self, *, latest: int = 0, closed_for: int | None = None, restored: Iterable[BlockedEvent] = ()
    ) -> None:
        """Start open, or closed if the attempt registered while a checkpoint is running (`closed_for`, None for none).

        `latest`: number of the newest checkpoint so far; it and all older ones have ended. `restored`: events to be
        sent again before anything new.
        """
        super().__init__()
        self.phase = GatewayPhase.OPEN if closed_for is None else GatewayPhase.CLOSED
        self.latest = latest if closed_for is None else max(latest, closed_for)
        """The newest checkpoint that it ever saw."""
        self.held: tuple[AnyEvent, ...] = tuple(SplitFinished(result=one.result, origin=one.origin) for one in restored)
        """In order."""

    @property
    def closed_for(self) -> int | None:
        """The checkpoint that it is closed for, None while it is open."""
        return self.latest if self.phase is GatewayPhase.CLOSED else None

    @property
    def detail(self) -> str:
        """The newest checkpoint, for errors."""
        return f", newest checkpoint {self.latest}"

    def held_as(self, last_sent: Origin) -> tuple[BlockedEvent, ...]:
        """Return the held results for a snapshot. Held split requests are left out: a restored subtask sends new ones.

        Each has the origin that it was restored with, or the number that it will be sent under: `last_sent` is this
        attempt, with the number of the last data event that was sent.
        """
        blocked = []
        for position, event in enumerate(self.held, start=1):
            if isinstance(event, SplitFinished):
                origin = event.origin or replace(last_sent, sequence=last_sent.sequence + position)
                blocked.append(BlockedEvent(origin, event.result))
        return tuple(blocked)


# --- rules ------------------------------------------------------------------------------------------------------

Commands = tuple[GatewayCommand, ...]


def is_data(_: HeldEvents, event: MessageReceived) -> bool:
    """It is held back while a checkpoint is taken."""
    return isinstance(event.event, DATA_EVENTS)


def is_newer(gateway: HeldEvents, event: CloseFor | OpenFor | AbortFor) -> bool:
    """The checkpoint is newer than all that were seen."""
    return event.checkpoint > gateway.latest


def is_older(gateway: HeldEvents, event: CloseFor | OpenFor | AbortFor) -> bool:
    """The checkpoint is older than the newest that was seen."""
    return event.checkpoint < gateway.latest


def pass_event(_: HeldEvents, event: MessageReceived) -> Commands:
    """Send it now, whatever is held."""
    return (Pass(event.event),)


def hold(gateway: HeldEvents, event: MessageReceived) -> Commands:
    """Send it later."""
    gateway.held = (*gateway.held, event.event)
    return ()


def pass_held(gateway: HeldEvents, _: GatewayEvent) -> Commands:
    """Send what is held, in order."""
    held, gateway.held = gateway.held, ()
    return tuple(map(Pass, held))


def pass_in_order(gateway: HeldEvents, event: MessageReceived) -> Commands:
    """Send it behind what was restored and is not sent yet."""
    hold(gateway, event)
    return pass_held(gateway, event)


def close(gateway: HeldEvents, event: CloseFor) -> Commands:
    """Send what was restored, and close."""
    return (*pass_held(gateway, event), *stay_closed(gateway, event))


def stay_closed(gateway: HeldEvents, event: CloseFor) -> Commands:
    """Be closed for this checkpoint."""
    gateway.latest = event.checkpoint
    return (GatewayClosed(event.checkpoint),)


def note_ended(gateway: HeldEvents, event: AbortFor) -> Commands:
    """Let no late message of it, or of an older one, close the gateway."""
    gateway.latest = max(gateway.latest, event.checkpoint)
    return ()


def end(gateway: HeldEvents, event: AbortFor) -> Commands:
    """Send what is held: the checkpoint has ended."""
    note_ended(gateway, event)
    return pass_held(gateway, event)


OPEN, CLOSED = GatewayPhase.OPEN, GatewayPhase.CLOSED
RULES: Rules[HeldEvents, GatewayCommand] = Rules(
    "gateway",
    GatewayPhase,
    Rule(OPEN, Started, do=pass_held),
    Rule(CLOSED, Started),  # it registered in the middle of a checkpoint
    Rule(OPEN, MessageReceived, when=is_data, do=pass_in_order),
    Rule(CLOSED, MessageReceived, when=is_data, do=hold),
    Rule((OPEN, CLOSED), MessageReceived, do=pass_event),
    Rule(OPEN, CloseFor, when=is_newer, to=CLOSED, do=close),
    Rule(OPEN, CloseFor),  # an ended checkpoint does not close it
    Rule(CLOSED, CloseFor, when=is_older),
    Rule(CLOSED, CloseFor, do=stay_closed),
    Rule(CLOSED, OpenFor, when=lambda gateway, event: event.checkpoint == gateway.latest, to=OPEN, do=pass_held),
    Rule((OPEN, CLOSED), OpenFor, when=lambda gateway, event: event.checkpoint <= gateway.latest),
    Rule(CLOSED, AbortFor, when=is_older),
    Rule(CLOSED, AbortFor, to=OPEN, do=end),
    Rule(OPEN, AbortFor, do=note_ended),
)


class Gateway(HeldEvents):
    """One gateway of one attempt."""

    rules = RULES


class Origins:
    """The origins of the results that were received, by which the receiver finds duplicates.

    Kept as long as the coordinator lives. A restored coordinator starts empty: events that were held at the
    checkpoint had not been received before.
    """

    def __init__(self) -> None:
        self._seen: set[Origin] = set()

    def first(self, origin: Origin) -> bool:
        """Add an origin, the event's own or else its sender and number; return True if it was not there before."""
        if origin in self._seen:
            return False
        self._seen.add(origin)
        return True
