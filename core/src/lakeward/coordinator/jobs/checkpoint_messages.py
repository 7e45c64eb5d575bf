"""Translates a subtask's messages about checkpoints into events of the machine `checkpoints`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.machines.checkpoints.messages import CloseAcked, Declined, GatewayOpened, PartStored, SubtaskFinished
from lakeward.model.events import AckCheckpoint, AckClose, DeclineCheckpoint, Open, SubtaskDone

if TYPE_CHECKING:
    from lakeward.machines.checkpoints.messages import SubtaskEvent
    from lakeward.model.events import AnyEvent


def to_checkpoint_event(event: AnyEvent, *, now: float, subtask: int, attempt: int) -> SubtaskEvent | None:
    """Turn an event of the wire into one of the machine.

    Args:
        event: what came in.
        now: seconds on the service's clock.
        subtask: who sent it.
        attempt: which attempt of it.

    Returns:
        The machine's event, None for what is no business of checkpoints.
    """
    who = {"subtask": subtask, "attempt": attempt}
    match event:
        case SubtaskDone():
            return SubtaskFinished(now=now, **who)
        case AckClose():
            return CloseAcked(now=now, checkpoint=event.checkpoint, sent=event.sent, **who)
        case Open():
            return GatewayOpened(now=now, checkpoint=event.checkpoint, **who)
        case AckCheckpoint():
            number, part, snapshot = event.checkpoint, event.part, event.snapshot
            return PartStored(now=now, checkpoint=number, part=part, snapshot=snapshot, **who)
        case DeclineCheckpoint():
            return Declined(now=now, checkpoint=event.checkpoint, reason=event.reason, **who)
        case _:
            return None
