"""What travels beside the data of an exchange, and what a checkpoint holds of it (exchange.md)."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from lakeward.model.results import LakeFile

if TYPE_CHECKING:
    from collections.abc import Iterable


class Barrier(msgspec.Struct, frozen=True, tag=True):
    """Where a checkpoint cuts one channel.

    `first_after` is the sequence of the first batch after it. `age_s` are the seconds since the checkpoint was
    triggered: receivers count on with their own clocks.
    """

    checkpoint: int
    first_after: int
    age_s: float


class Overtaken(msgspec.Struct, frozen=True, tag=True):
    """The producer keeps the batches from `first` up to its barrier for the checkpoint: the consumer need not."""

    checkpoint: int
    first: int


class EndOfChannel(msgspec.Struct, frozen=True, tag=True):
    """Nothing comes after the batch before `first_after`."""

    first_after: int


class BarrierCancelled(msgspec.Struct, frozen=True, tag=True):
    """The checkpoint was aborted."""

    checkpoint: int


ChannelMark = Barrier | Overtaken | EndOfChannel | BarrierCancelled
"""What is sent past the data of a channel."""


class Side(Enum):
    """Which end of a channel has kept a batch for a checkpoint."""

    IN = "in"
    """The consumer: it had received the batch, or received it before the barrier."""
    OUT = "out"
    """The producer: the barrier overtook the batch in its queue."""


class KeptRows(msgspec.Struct, frozen=True):
    """Which rows of a segment a checkpoint holds: those from `first_row` on whose key groups are in a range.

    Checkpoints that are taken during a recovery name segments of the checkpoint that was restored in this way. Each row
    of a segment is in at most one of the ranges that a checkpoint names, since each key group has one owner.
    """

    first_group: int
    end_group: int
    """The one after the last."""
    first_row: int
    """Counted over all rows of the segment."""
    rows: int
    """How many rows that is."""


class Segment(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file of Arrow batches beside a checkpoint. `name` is relative to the store's root; `crc` is of the bytes."""

    name: str
    rows: int
    """Of the file."""
    size_bytes: int
    crc: int
    kept: KeptRows | None = None
    """What a checkpoint holds of it; None: everything."""

    @property
    def held_rows(self) -> int:
        """How many of its rows a checkpoint holds."""
        return self.rows if self.kept is None else self.kept.rows

    @property
    def held_bytes(self) -> int:
        """Bytes of these, in proportion to the file's."""
        return self.size_bytes * self.held_rows // max(1, self.rows)

    def keep(self, first_group: int, end_group: int) -> KeptRows:
        """Return what a range of key groups has of what is held; the number of rows is not known yet.

        `end_group` is the one after the last.
        """
        if self.kept is None:
            return KeptRows(first_group, end_group, 0, 0)
        kept = self.kept
        return KeptRows(max(first_group, kept.first_group), min(end_group, kept.end_group), kept.first_row, 0)


class ChannelState(msgspec.Struct, frozen=True):
    """The batches of one channel that a checkpoint holds, in order, from one of its ends."""

    producer: int
    consumer: int
    side: Side
    segment: Segment


class OpenRows(msgspec.Struct, frozen=True):
    """The rows of one file that was open at a checkpoint, in the order in which they were taken."""

    partition: bytes
    """The lake's key of the partition (`Partitioner`)."""
    segments: tuple[Segment, ...]


class ExchangeState(msgspec.Struct, frozen=True, kw_only=True):
    """What one subtask of an exchange holds in a checkpoint, besides its splits.

    `files` are closed: all since the round began. `rows` is the number of records that its writer had taken (all
    attempts before included), `left_out` how many of them became no row of a data file and are in no open file.
    """

    subtask: int
    subtasks: int
    files: tuple[LakeFile, ...] = ()
    rows: int = 0
    left_out: int = 0
    open_rows: tuple[OpenRows, ...] = ()
    channels: tuple[ChannelState, ...] = ()
    unaligned: bool = False
    blocked_s: float = 0.0
    """Seconds for which channels were blocked by the alignment."""

    def segments(self) -> tuple[Segment, ...]:
        """Return every segment that the state refers to."""
        return (
            *(segment for rows in self.open_rows for segment in rows.segments),
            *(channel.segment for channel in self.channels),
        )


RECOVERY_PHASES = ("not_ready", "draining", "none", "stopped")
"""Of a subtask that spills what was restored, in their order."""


class ExchangeFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What one subtask has moved since it was deployed; for people, nothing depends on it."""

    sent_bytes: int = 0
    """Into all its channels, the one to itself too."""
    received_bytes: int = 0
    credit_wait_s: float = 0.0
    """Seconds in which its reader stood still because its channels were full."""
    queued_bytes: int = 0
    """In its queues now, waiting for credit."""
    recovery: str = ""
    """How far it is with what was restored: one of `RECOVERY_PHASES`; empty where nothing is spilled."""
    recovery_bytes: int = 0
    """Of spilled rows to be written in all; 0 while they are read back."""
    recovered_bytes: int = 0
    """Of those, what is written."""
    spill_bytes: int = 0
    """On its disks now."""
    kept_spill_bytes: int = 0
    """Of the spill, what checkpoints hold by reference, each counted anew."""
    markers_missing: int = 0
    """Checkpoints that failed for a missing marker: never to be seen."""
    timings_s: dict[str, float] = {}
    """Seconds of its writer by phase: partition, encode, upload."""


def complete(states: Iterable[ExchangeState]) -> bool:
    """Return whether every row before the cut is in a closed file: only then may a commit be made of it.

    `states` are those of all subtasks of one checkpoint.
    """
    return not any(state.open_rows or state.channels for state in states)
