"""Translates what a subtask sends into events of the round's machines, and of the round itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.machines.checkpoints.messages import CloseAcked, Declined, GatewayOpened, PartStored, SubtaskFinished
from lakeward.machines.splits import SplitDone, SplitRequested
from lakeward.model.checkpoints import Origin
from lakeward.model.events import (
    AckCheckpoint,
    AckClose,
    Connected,
    DeclineCheckpoint,
    Failed,
    Open,
    RequestSplit,
    SplitFinished,
    SubtaskDone,
    WriterFinished,
)

if TYPE_CHECKING:
    from lakeward.machines.checkpoints.messages import SubtaskEvent
    from lakeward.machines.transport.channel import ChannelKey
    from lakeward.model.events import AnyEvent
    from lakeward.model.results import WriteResult


@dataclass(frozen=True, slots=True)
class SplitResult:
    """An attempt has read a split to its end; `origin` names the message that said so first."""

    done: SplitDone
    result: WriteResult
    origin: Origin
    read_bytes: int | None


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """An attempt says that it cannot go on."""

    key: ChannelKey
    failure: Failed


@dataclass(frozen=True, slots=True)
class ChannelsOpen:
    """An attempt has opened all channels to the other subtasks."""

    key: ChannelKey


@dataclass(frozen=True, slots=True)
class FilesClosed:
    """An attempt has closed all files."""

    key: ChannelKey
    message: WriterFinished


SubtaskMessage = SplitRequested | SplitResult | AttemptFailed | ChannelsOpen | FilesClosed
"""What is no business of checkpoints."""


def to_event(
    message: AnyEvent, key: ChannelKey, *, now: float, sequence: int = 0
) -> SubtaskMessage | SubtaskEvent | None:
    """Turn a message of `key` into an event; None for what only says that the subtask lives.

    `now`: seconds on the service's clock. `sequence`: of the message, 0 where it has none.
    """
    who = {"subtask": key.subtask, "attempt": key.task_attempt}
    match message:
        case RequestSplit():
            return SplitRequested(now=now, **who)
        case SplitFinished():
            result = message.result
            done = SplitDone(now=now, split_id=result.split_id, end_offset=result.end_offset, **who)
            own = Origin(key.job_attempt, key.subtask, key.task_attempt, sequence)
            return SplitResult(done, result, message.origin or own, message.read_bytes)
        case Failed():
            return AttemptFailed(key, message)
        case Connected():
            return ChannelsOpen(key)
        case WriterFinished():
            return FilesClosed(key, message)
        case _:
            return _of_checkpoints(message, key, now)


def _of_checkpoints(message: AnyEvent, key: ChannelKey, now: float) -> SubtaskEvent | None:
    who = {"subtask": key.subtask, "attempt": key.task_attempt}
    match message:
        case SubtaskDone():
            return SubtaskFinished(now=now, **who)
        case AckClose():
            return CloseAcked(now=now, checkpoint=message.checkpoint, sent=message.sent, **who)
        case Open():
            return GatewayOpened(now=now, checkpoint=message.checkpoint, **who)
        case AckCheckpoint():
            number, part, snapshot = message.checkpoint, message.part, message.snapshot
            return PartStored(now=now, checkpoint=number, part=part, snapshot=snapshot, **who)
        case DeclineCheckpoint():
            return Declined(now=now, checkpoint=message.checkpoint, reason=message.reason, **who)
        case _:
            return None
