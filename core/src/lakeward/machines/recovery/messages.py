"""The events and commands of the machine `recovery`.

A channel here is one of the restored checkpoint, counted from 0 in the order in which all are drained; a piece is a
batch of its rows that are ours. Rows stay outside: the machine sees channels and bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

# --- events: what the worker that reads back, the writer and the checkpoints report ----------------------------------


@dataclass(frozen=True, slots=True)
class RowsSpilled:
    """Everything that was restored is read back; what is ours is sealed on local disks."""


@dataclass(frozen=True, slots=True)
class ProducersConnected:
    """Every producer has opened its channel to this subtask."""


@dataclass(frozen=True, slots=True)
class PieceRead:
    """The piece that `ReadPiece` asked for was read from disk. It is not delivered before this step."""

    channel: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SpillEnded:
    """There was no further piece on disk."""


@dataclass(frozen=True, slots=True)
class PieceRequested:
    """The writer takes the oldest piece in memory; only where `can_take`."""


@dataclass(frozen=True, slots=True)
class CheckpointRequested:
    """The coordinator triggered this subtask."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class SnapshotStarted:
    """The checkpoint's cut is now: whatever the writer has not taken is to be in it."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class ContentRequested:
    """The checkpoint wants what is in memory. The writer has taken nothing since its `SnapshotStarted`."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class SnapshotAborted:
    """A checkpoint will not be. Allowed for any number, also twice."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class RecoveryStopped:
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


@dataclass(frozen=True, slots=True)
class AcceptCheckpoints:
    """Tell the coordinator that all channels are open: from now on checkpoints are taken, and splits are read."""


@dataclass(frozen=True, slots=True)
class ReadPiece:
    """Have the worker read the next piece; only one is asked for at a time."""


@dataclass(frozen=True, slots=True)
class DeliverPiece:
    """Put the piece that was read behind those in memory, and commit it in the spill: both, or neither."""

    channel: int


@dataclass(frozen=True, slots=True)
class WakeWriter:
    """Something can be taken, or nothing will come any more: let the writer look."""


@dataclass(frozen=True, slots=True)
class WritePiece:
    """Give the writer the oldest piece in memory, which is of this channel."""

    channel: int


@dataclass(frozen=True, slots=True)
class RefuseCheckpoint:
    """Decline the checkpoint as not ready: that is not counted as a failure."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class SnapshotSpill:
    """Keep what is not committed in the spill for the checkpoint. Nothing is copied."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class KeepPieces:
    """Keep the oldest `count` pieces of a channel that are in memory for the checkpoint; they are before its spill."""

    checkpoint: int
    channel: int
    count: int


@dataclass(frozen=True, slots=True)
class FailMarkerMissing:
    """The checkpoint has no border in a channel that is in recovery: fail it for that, and count it. It is a bug."""

    checkpoint: int
    channel: int


@dataclass(frozen=True, slots=True)
class DropSnapshot:
    """Give the spill back that was kept for the checkpoint."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class FinishRecovery:
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
