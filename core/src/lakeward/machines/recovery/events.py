"""The events of the machine `recovery`: what the worker that reads back, the writer and the checkpoints report.

A channel here is one of the restored checkpoint, counted from 0 in the order in which all are drained; a piece is a
batch of its rows that are ours. Rows stay outside: the machine sees channels and bytes.
"""

from __future__ import annotations

from dataclasses import dataclass


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
