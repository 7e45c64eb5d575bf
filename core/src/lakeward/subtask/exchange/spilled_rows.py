"""Restored rows on their way through local disks: filtered and framed on a worker, and read from there in pieces.

A piece is one batch of a segment of a restored channel: a header that says which rows they are, then an Arrow IPC
stream of it. A piece may lie over several segments of the spill, so positions are committed at the ends of pieces
alone.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from lakeward.errors import CorruptFileError
from lakeward.model.exchange import Side
from lakeward.model.partitioning import key_group_range
from lakeward.storage.spill import SEGMENT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from lakeward.model.exchange import ExchangeState, Segment
    from lakeward.storage.spill import SpillWriter
    from lakeward.storage.spill_reader import Chunk, Position

    Ints = np.ndarray[Any, np.dtype[np.int64]]

_HEADER = struct.Struct(">QIQQQ")
"""Bytes of the stream; segment, first row and the one after the last; own rows of the segment before it."""


class RestoredChannel(NamedTuple):
    """Rows of a checkpoint that are in order: of a file that was open, or of a channel's end."""

    producer: int
    """The old number; -1 where a writer had taken the rows."""
    partition: bytes
    """Of the open file, empty for a channel."""
    segments: tuple[Segment, ...]

    @property
    def counted(self) -> bool:
        """Whether a writer had taken the rows, so that they are in its count."""
        return self.producer < 0


def channels_of(states: Sequence[ExchangeState]) -> tuple[RestoredChannel, ...]:
    """Return what a checkpoint holds, in the order in which it is written again.

    Per subtask: what its writer had taken, then what its channels had brought, then what waited to be sent. A row of
    one key is only ever on one such way, in this order.
    """
    states = sorted(states, key=lambda one: one.subtask)
    found = [RestoredChannel(-1, rows.partition, rows.segments) for state in states for rows in state.open_rows]
    for side in (Side.IN, Side.OUT):
        for state in states:
            found += (RestoredChannel(one.producer, b"", (one.segment,)) for one in state.channels if one.side is side)
    return tuple(found)


class RowPlace(NamedTuple):
    """A place among a subtask's own restored rows. Places compare in the order in which rows are drained."""

    channel: int
    segment: int
    """Of the channel, from 0."""
    row: int
    """Of the segment, whoever owns it."""
    before: int
    """How many of the segment's own rows are before this place."""


class SpilledPiece(NamedTuple):
    """A batch that was read from the spill: rows of one segment."""

    channel: int
    records: pa.RecordBatch
    size_bytes: int
    end: Position
    first: RowPlace
    """Where its first row is."""
    after: RowPlace
    """The place after its last row."""


class PieceWriter:
    """Puts batches into a spill: small ones are gathered, large ones are divided, as far as rows go."""

    def __init__(self, spill: SpillWriter, piece_bytes: int | None = None) -> None:
        """Start without rows; so many bytes are gathered for the spill, None: as many as a segment holds."""
        self._spill = spill
        self._piece_bytes = SEGMENT_BYTES if piece_bytes is None else piece_bytes
        self._at = (-1, 0)
        """The channel, and the segment in it."""
        self._gathered: list[tuple[Ints, pa.RecordBatch]] = []
        self._bytes = 0
        self.rows: dict[tuple[int, int], int] = {}
        """Rows that were written, by channel and segment."""

    def write(self, channel: int, segment: int, places: Ints, records: pa.RecordBatch) -> None:
        """Take rows of a channel's segment; `places` has for each row its number in the segment.

        Raises:
            StorageError: a disk or the quota is full.
        """
        if (channel, segment) != self._at:
            self.flush()
            self._at = (channel, segment)
        if not records.num_rows:
            return
        self._gathered.append((places, records))
        self._bytes += records.nbytes
        if self._bytes >= self._piece_bytes:
            self.flush()

    def flush(self) -> None:
        """Spill what is gathered; errors as of `write`."""
        if not self._gathered:
            return
        (places, batch), *more = self._gathered
        if more:
            batch = pa.concat_batches([records for _, records in self._gathered])
            places = np.concatenate([found for found, _ in self._gathered])
        rows = max(1, batch.num_rows * self._piece_bytes // max(self._bytes, self._piece_bytes))
        self._gathered, self._bytes = [], 0
        for start in range(0, batch.num_rows, rows):
            piece = batch.slice(start, rows)
            before = self.rows.get(self._at, 0)
            last = start + piece.num_rows - 1
            header = (self._at[1], int(places[start]), int(places[last]) + 1, before)
            self._spill.write(self._at[0], _framed(piece, header))
            self.rows[self._at] = before + piece.num_rows


def pieces(read: Callable[[int], Chunk | None]) -> Generator[SpilledPiece, None, None]:
    """Yield the pieces of a spill, from the end of one on.

    `read` returns the next bytes, at most so many; None at the end.

    Raises:
        CorruptFileError: a file is damaged, or the last piece is not whole.
        StorageError: the disk refused.
    """
    while (chunk := read(_HEADER.size)) is not None:
        channel = chunk.channel
        header, end = _exactly(read, chunk, _HEADER.size)
        size, segment, first, after, before = _HEADER.unpack(header)
        body, end = _exactly(read, read(size), size)
        with pa.ipc.open_stream(body) as stream:
            records = stream.read_next_batch()
        yield SpilledPiece(
            channel,
            records,
            size,
            end,
            RowPlace(channel, segment, first, before),
            RowPlace(channel, segment, after, before + records.num_rows),
        )


class OwnSegments:
    """Which restored rows are a subtask's own, by channel and segment, so that a checkpoint can name what is left."""

    def __init__(self, subtask: int, subtasks: int, channels: Sequence[RestoredChannel]) -> None:
        """Keep what was restored, of which some rows are others'; `subtasks` is how many there are now."""
        self._groups = key_group_range(subtask, subtasks)
        self._channels = channels
        self.rows: dict[tuple[int, int], int] = {}
        """Own rows, by channel and segment: filled while they are spilled."""

    def segments(self) -> Iterator[tuple[int, int, Segment]]:
        """Yield the segments that may have own rows, with the number of the channel, and theirs in it."""
        for channel, restored in enumerate(self._channels):
            for number, segment in enumerate(restored.segments):
                kept = segment.keep(*self._groups)
                if kept.first_group < kept.end_group:
                    yield channel, number, segment

    def left(self, start: RowPlace) -> Iterator[tuple[int, Segment]]:
        """Yield what is left from a place on, as segments of the checkpoint that was restored, by channel."""
        for (channel, number), rows in sorted(self.rows.items()):
            if (channel, number) < start[:2]:
                continue
            segment = self._channels[channel].segments[number]
            kept = segment.keep(*self._groups)
            first, before = kept.first_row, 0
            if (channel, number) == start[:2]:
                first, before = max(first, start.row), start.before
            if before < rows:
                kept = msgspec.structs.replace(kept, first_row=first, rows=rows - before)
                yield channel, msgspec.structs.replace(segment, kept=kept)


class RecoveredRest:
    """What a checkpoint holds of a recovery: what its writer had not taken, named and not copied.

    The rows are in segments of the checkpoint that was restored, which stay as long as one names them.
    """

    def __init__(self, segments: Iterable[tuple[int, Segment]], spill_bytes: int) -> None:
        """Keep both: what is left of each segment, by channel, in order, and how much of it is in the spill (bytes)."""
        self.segments = tuple(segments)
        self.spill_bytes = spill_bytes


def _framed(batch: pa.RecordBatch, place: tuple[int, int, int, int]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    body = sink.getvalue()
    return b"".join((_HEADER.pack(body.size, *place), memoryview(body)))


def _exactly(read: Callable[[int], Chunk | None], first: Chunk | None, size: int) -> tuple[bytes, Position]:
    """Read so many bytes, which may lie over several segments; return them, and the place after them."""
    found, chunk = bytearray(), first
    while chunk is not None:
        found += chunk.data
        if len(found) == size:
            return bytes(found), chunk.end
        chunk = read(size - len(found))
    message = "spill files"
    raise CorruptFileError(message, f"a piece of {size} bytes", f"{len(found)} bytes")
