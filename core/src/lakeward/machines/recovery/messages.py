"""The events and commands of the machine `recovery`.

A channel here is one of the restored checkpoint, counted from 0 in the order in which all are drained; a piece is a
batch of its rows that are ours. Rows stay outside: the machine sees channels and bytes.
"""

from __future__ import annotations

from msgspec import Struct

# --- events: what the worker that reads back, the writer and the checkpoints report ----------------------------------


class RowsSpilled(Struct, frozen=True):
    """Everything that was restored is read back; what is ours is sealed on local disks."""


class ProducersConnected(Struct, frozen=True):
    """Every producer has opened its channel to this subtask."""


class PieceRead(Struct, frozen=True):
    """The piece that `ReadPiece` asked for was read from disk. It is not delivered before this step."""

    channel: int
    size_bytes: int


class SpillEnded(Struct, frozen=True):
    """There was no further piece on disk."""


class PieceRequested(Struct, frozen=True):
    """The writer takes the oldest piece in memory; only where `can_take`."""


class CheckpointRequested(Struct, frozen=True):
    """The coordinator triggered this subtask."""

    checkpoint: int


class SnapshotStarted(Struct, frozen=True):
    """The checkpoint's cut is now: whatever the writer has not taken is to be in it."""

    checkpoint: int


class ContentRequested(Struct, frozen=True):
    """The checkpoint wants what is in memory. The writer has taken nothing since its `SnapshotStarted`."""

    checkpoint: int


class SnapshotAborted(Struct, frozen=True):
    """A checkpoint will not be. Allowed for any number, also twice."""

    checkpoint: int


class RecoveryStopped(Struct, frozen=True):
    """The subtask ends, or the recovery failed: nothing more is drained."""


RecoveryEvent = (
    RowsSpilled
    | ProducersConnected
    | PieceRead
    | SpillEnded
    | PieceRequested
    | CheckpointRequested
    | SnapshotStarted
    | ContentRequested
    | SnapshotAborted
    | RecoveryStopped
)

# --- commands: what the subtask does, in this order -----------------------------------------------------------------


class AcceptCheckpoints(Struct, frozen=True):
    """Tell the coordinator that all channels are open: from now on checkpoints are taken, and splits are read."""


class ReadPiece(Struct, frozen=True):
    """Have the worker read the next piece; only one is asked for at a time."""


class DeliverPiece(Struct, frozen=True):
    """Put the piece that was read behind those in memory, and commit it in the spill: both, or neither."""

    channel: int


class WakeWriter(Struct, frozen=True):
    """Something can be taken, or nothing will come any more: let the writer look."""


class WritePiece(Struct, frozen=True):
    """Give the writer the oldest piece in memory, which is of this channel."""

    channel: int


class RefuseCheckpoint(Struct, frozen=True):
    """Decline the checkpoint as not ready: that is not counted as a failure."""

    checkpoint: int


class SnapshotSpill(Struct, frozen=True):
    """Keep what is not committed in the spill for the checkpoint. Nothing is copied."""

    checkpoint: int


class KeepPieces(Struct, frozen=True):
    """Keep the oldest `count` pieces of a channel that are in memory for the checkpoint; they are before its spill."""

    checkpoint: int
    channel: int
    count: int


class FailMarkerMissing(Struct, frozen=True):
    """The checkpoint has no border in a channel that is in recovery: fail it for that, and count it. It is a bug."""

    checkpoint: int
    channel: int


class DropSnapshot(Struct, frozen=True):
    """Give the spill back that was kept for the checkpoint."""

    checkpoint: int


class FinishRecovery(Struct, frozen=True):
    """Everything that was restored is written: give all producers credit, let live rows pass, and delete the spill."""


RecoveryCommand = (
    AcceptCheckpoints
    | ReadPiece
    | DeliverPiece
    | WakeWriter
    | WritePiece
    | RefuseCheckpoint
    | SnapshotSpill
    | KeepPieces
    | FailMarkerMissing
    | DropSnapshot
    | FinishRecovery
)
