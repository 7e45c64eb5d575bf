"""The commands of the machine `recovery`: what the subtask does, in the order in which they are returned."""

from __future__ import annotations

from dataclasses import dataclass


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
