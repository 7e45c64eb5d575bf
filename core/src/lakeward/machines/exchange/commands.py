"""The commands of the machine `alignment`: what the subtask does, in the order in which they are returned.

All commands of a step are done before a batch is given to the writer.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BlockChannel:
    """Give the writer nothing more of this channel: what comes next in it is after the barrier."""

    channel: int


@dataclass(frozen=True, slots=True)
class UnblockChannel:
    """Give the writer this channel's batches again."""

    channel: int


@dataclass(frozen=True, slots=True)
class TakeWriterSnapshot:
    """Take the writer's state as it is now: this much of each channel is in it, and no more.

    `unaligned`: what `PersistBatches` names is to be kept with it, and the subtask's own outputs let their barriers
    overtake what they still hold.
    """

    checkpoint: int
    unaligned: bool


@dataclass(frozen=True, slots=True)
class PersistBatches:
    """Keep a channel's batches from `first` up to `end` for the checkpoint. They were received and not consumed."""

    checkpoint: int
    channel: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class InputComplete:
    """The consumer's share of the checkpoint is whole: nothing follows for it."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class CancelCheckpoint:
    """Drop what was collected for the checkpoint.

    `decline`: the coordinator does not know yet, and is to be told the reason.
    """

    checkpoint: int
    reason: str
    decline: bool


@dataclass(frozen=True, slots=True)
class ChannelsEnded:
    """Every channel has ended, and all of it was consumed; returned once."""


AlignmentCommand = (
    BlockChannel
    | UnblockChannel
    | TakeWriterSnapshot
    | PersistBatches
    | InputComplete
    | CancelCheckpoint
    | ChannelsEnded
)
