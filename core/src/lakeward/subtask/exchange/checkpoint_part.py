"""A subtask's part of one checkpoint of an exchange, from its trigger until it is stored."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import msgspec

from lakeward.errors import LakewardError
from lakeward.model.checkpoints import SubtaskSnapshot
from lakeward.model.exchange import ChannelState, OpenRows, Side
from lakeward.subtask.part_store import CheckpointPart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa

    from lakeward.model.exchange import ExchangeState, Segment
    from lakeward.subtask.exchange.open_rows import Piece
    from lakeward.subtask.exchange.spilled_rows import RecoveredRest, RestoredChannel


@dataclass(slots=True)
class ExchangePart(CheckpointPart):
    """A part with rows: those of open files, those of channels, and what was restored and is not written yet."""

    in_order: ClassVar[bool] = True

    close_files: bool = False
    state: ExchangeState | None = None
    """The writer's, without its segments; None before its snapshot."""
    open_rows: Mapping[bytes, tuple[Piece, ...]] = field(default_factory=dict)
    received: dict[int, list[pa.RecordBatch]] = field(default_factory=dict)
    """By producer: side IN."""
    queued: Mapping[int, list[pa.RecordBatch]] = field(default_factory=dict)
    """By consumer: side OUT."""
    recovered: RecoveredRest | None = None
    """What was restored and is not written yet."""
    restored: tuple[RestoredChannel, ...] = ()
    """The channels of `recovered`."""

    def end(self) -> None:
        """Let go of all rows: a store that hangs must not keep those of every checkpoint that has ended meanwhile."""
        self.ended = True  # before they go: `store` looks at it after it has taken them
        self.open_rows, self.received, self.queued = {}, {}, {}

    def keep(self, producer: int, batches: list[pa.RecordBatch]) -> None:
        """Add batches of a channel that were received and not written."""
        self.received.setdefault(producer, []).extend(batches)

    def store(
        self, subtask: int, task_attempt: int, write: Callable[[Iterator[pa.RecordBatch]], Segment]
    ) -> SubtaskSnapshot:
        """Store all rows, and return what the part of a subtask's attempt holds; `write` writes a segment.

        Raises:
            StorageError: the store refused.
            LakewardError: the checkpoint has ended meanwhile.
        """

        def written(batches: Iterator[pa.RecordBatch]) -> Segment:
            self._check_running()
            return write(batches)

        files, received, queued, state = self.open_rows, self.received, self.queued, self.state
        self._check_running()
        if state is None:
            message = "a part was to be stored before its writer's snapshot"
            raise LakewardError(message)
        open_rows = {
            partition: [piece.stored(written) for piece in pieces] for partition, pieces in sorted(files.items())
        }
        channels = self._name_recovered(subtask, state, open_rows)
        channels += (
            ChannelState(producer, subtask, Side.IN, written(iter(batches)))
            for producer, batches in sorted(received.items())
        )
        channels += (
            ChannelState(subtask, consumer, Side.OUT, written(iter(batches)))
            for consumer, batches in sorted(queued.items())
        )
        state = msgspec.structs.replace(
            state,
            open_rows=tuple(OpenRows(partition, tuple(segments)) for partition, segments in open_rows.items()),
            channels=tuple(channels),
        )
        return SubtaskSnapshot(subtask, task_attempt, self.progress, self.blocked, state)

    def _name_recovered(
        self, subtask: int, state: ExchangeState, open_rows: dict[bytes, list[Segment]]
    ) -> list[ChannelState]:
        """Name what was restored and is not written: behind what is, and before what came later.

        Rows that no writer had taken are a channel's of the new launch, so that they are counted once.
        """
        channels: list[ChannelState] = []
        for number, segment in self.recovered.segments if self.recovered is not None else ():
            channel = self.restored[number]
            if channel.counted:
                open_rows.setdefault(channel.partition, []).append(segment)
            else:
                channels.append(ChannelState(channel.producer % state.subtasks, subtask, Side.IN, segment))
        return channels

    def _check_running(self) -> None:
        if self.ended:
            message = f"checkpoint {self.checkpoint} has ended"
            raise LakewardError(message)
