"""The events and commands of the machines `alignment` and `output`.

A channel is the number of its producer. `now` is in seconds on the subtask's clock. Batches stay outside: a machine
sees their channel and their sequence, which counts from 0 in each channel.
"""

from __future__ import annotations

from msgspec import Struct

from lakeward.model.exchange import ChannelMark

# --- events of an alignment: what a consumer's channels, its coordinator and the clock report -----------------------


class _OfBatch(Struct, frozen=True, kw_only=True):
    channel: int
    sequence: int


class _OfCheckpoint(Struct, frozen=True):
    checkpoint: int


class BatchReceived(_OfBatch, frozen=True):
    """The next batch of a channel has arrived."""


class BatchConsumed(_OfBatch, frozen=True):
    """The writer takes the oldest batch of a channel that it has not taken yet; only where `may_consume` allows it."""


class BarrierReceived(Struct, frozen=True, kw_only=True):
    """A channel's barrier arrived, `age_s` seconds after the checkpoint was triggered."""

    now: float
    channel: int
    checkpoint: int
    first_after: int
    age_s: float = 0.0


class OvertakenReceived(Struct, frozen=True, kw_only=True):
    """A channel's producer keeps the batches from `first` up to its barrier for the checkpoint."""

    now: float
    channel: int
    checkpoint: int
    first: int


class EndReceived(Struct, frozen=True, kw_only=True):
    """Nothing comes in a channel after the batch before `first_after`."""

    channel: int
    first_after: int


class CheckpointTriggered(Struct, frozen=True, kw_only=True):
    """The subtask begins a checkpoint, `age_s` seconds after its coordinator's trigger had come.

    Its readers' state and its own barriers belong to this moment; the time to be aligned counts from the trigger.
    """

    now: float
    checkpoint: int
    age_s: float = 0.0
    close_files: bool = False
    """It is aligned, however long that takes."""
    at_once: bool = False
    """It does not wait to be aligned: channels stand still until restored rows are written."""


class BarrierAborted(_OfCheckpoint, frozen=True):
    """A checkpoint will not be: the coordinator, a peer or the store says so. Allowed for any number, also twice.

    The producers' queues take it as well.
    """


class TimeoutChecked(Struct, frozen=True, kw_only=True):
    """The clock was looked at: it is `deadline`, or any other time."""

    now: float


AlignmentEvent = (
    BatchReceived
    | BatchConsumed
    | BarrierReceived
    | OvertakenReceived
    | EndReceived
    | CheckpointTriggered
    | BarrierAborted
    | TimeoutChecked
)


class ChannelsMoved(Struct, frozen=True):
    """Whatever happened, the running checkpoint may get further by it. `now`: where that depends on the time."""

    now: float | None


class ChannelsDrained(Struct, frozen=True):
    """Every channel has ended, and all of it was consumed."""


# --- commands of an alignment: what the subtask does, all of a step before a batch is given to the writer -----------


class BlockChannel(Struct, frozen=True):
    """Give the writer nothing more of this channel: what comes next in it is after the barrier."""

    channel: int


class UnblockChannel(Struct, frozen=True):
    """Give the writer this channel's batches again."""

    channel: int


class TakeWriterSnapshot(_OfCheckpoint, frozen=True):
    """Take the writer's state as it is now: this much of each channel is in it, and no more.

    `unaligned`: what `PersistBatches` names is to be kept with it, and the subtask's own outputs let their barriers
    overtake what they still hold.
    """

    unaligned: bool


class PersistBatches(_OfCheckpoint, frozen=True):
    """Keep a channel's batches from `first` up to `end` for the checkpoint. They were received and not consumed."""

    channel: int
    first: int
    end: int


class InputComplete(_OfCheckpoint, frozen=True):
    """The consumer's share of the checkpoint is whole: nothing follows for it."""


class CancelCheckpoint(_OfCheckpoint, frozen=True):
    """Drop what was collected for the checkpoint.

    `decline`: the coordinator does not know yet, and is to be told the reason.
    """

    reason: str
    decline: bool


class ChannelsEnded(Struct, frozen=True):
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

# --- events of a producer's channel ---------------------------------------------------------------------------------


class BatchQueued(Struct, frozen=True):
    """A batch is put in; its sequence is `queued` before the step. `size_bytes` as the producer counts it."""

    size_bytes: int


class BatchesWritten(Struct, frozen=True):
    """The consumer has written all batches before `end` (`ChannelReceiver.on_credit`). Late or repeated: no change."""

    end: int


class BarrierRequested(_OfCheckpoint, frozen=True):
    """The subtask was triggered `age_s` seconds ago: everything that was put in so far is before the barrier."""

    age_s: float = 0.0


class OvertakeRequested(_OfCheckpoint, frozen=True):
    """The checkpoint is not aligned any more: its barrier overtakes what waits here."""


class EndRequested(Struct, frozen=True):
    """Nothing more is put in."""


OutputEvent = BatchQueued | BatchesWritten | BarrierRequested | OvertakeRequested | EndRequested | BarrierAborted

# --- commands of a producer's channel -------------------------------------------------------------------------------


class SendBatches(Struct, frozen=True):
    """Send the batches from `first` up to `end`, in order."""

    first: int
    end: int


class SendMark(Struct, frozen=True):
    """Send a mark at once, past the batches. Those that wait are sent after it."""

    mark: ChannelMark


class KeepBatches(_OfCheckpoint, frozen=True):
    """Keep the waiting batches from `first` up to `end` for the checkpoint; they are sent as well."""

    first: int
    end: int


OutputCommand = SendBatches | SendMark | KeepBatches
