"""Batches of records on their way from a source to a lake: their columns, and how parts are gathered into them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakeward.errors import LogGapError, RowCountError
from lakeward.model.tables import CHANGE_COLUMN, NO_OFFSET, NO_TIME_MS, OFFSET_COLUMN, TIMESTAMP_COLUMN, Change

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

SYSTEM_FIELDS = (
    pa.field(CHANGE_COLUMN, pa.uint8(), nullable=False),
    pa.field(OFFSET_COLUMN, pa.int64(), nullable=False),
    pa.field(TIMESTAMP_COLUMN, pa.timestamp("us", tz="UTC"), nullable=False),
)
"""The columns that every batch of a source has after the user's; `SourceBatch` says what they hold."""

ROWS_LEAST = 65_536
"""Small parts are concatenated up to so many rows: below that the work per batch costs more than the copy."""
ROWS_MOST = 262_144
"""Large parts are split, without a copy, into so many rows: that bounds what a writer holds."""
BYTES_LEAST = 32 << 20
"""Small parts are concatenated up to so many bytes, however few rows they have."""
BYTES_MOST = 64 << 20
"""No batch of several rows has more bytes: far below the 2 GiB that Arrow's 32-bit offsets of text can count."""


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """Some records of one bucket, in offset order.

    `records` has the user's columns in the order of the table's schema, then `__change` (uint8, see `Change`),
    `__offset` (int64) and `__timestamp` (timestamp[us, UTC], commit time). Rows of a KV snapshot have change
    INSERT, offset -1 and timestamp -1 ms; so is the timestamp of a record whose source has no write times. A batch
    without rows still moves `next_offset`.

    `next_offset` is the first log offset not yet read; for a snapshot split the split's `log_offset`, or a later one
    if the snapshot is live. `decode_s` is the share of the time of reading it that its decoding took, where the source
    tells them apart.

    `empty_offsets` counts the log offsets since the batch before that hold no record, by the source's own word: so
    each offset is a record or is explained, and a hole is noticed. None where the source cannot say.
    """

    records: pa.RecordBatch
    next_offset: int
    decode_s: float = 0.0
    empty_offsets: int | None = None


def batch_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of a table's batches: the user's columns, then `SYSTEM_FIELDS`."""
    return pa.schema([*schema, *SYSTEM_FIELDS])


def log_records(
    schema: pa.Schema, rows: pa.RecordBatch, changes: object, first_offset: int, timestamp_ms: int
) -> pa.RecordBatch:
    """Add the system columns to rows of a log; `schema` is the table's `batch_schema`.

    `changes` is a `Change` for each row (an array of uint8), or one for all of them. `first_offset` is that of the
    first row; the others follow without a hole. `timestamp_ms` is their commit time, in ms since 1970, or `NO_TIME_MS`.
    """
    offsets = np.arange(first_offset, first_offset + len(rows), dtype=np.int64)
    return _with_system_columns(schema, rows, changes, offsets, timestamp_ms)


def snapshot_records(schema: pa.Schema, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Add the system columns to rows of a KV snapshot. Arguments as of `log_records`."""
    return _with_system_columns(schema, rows, Change.INSERT, np.full(len(rows), NO_OFFSET, dtype=np.int64), NO_TIME_MS)


def _with_system_columns(
    schema: pa.Schema, rows: pa.RecordBatch, changes: object, offsets: np.ndarray, timestamp_ms: int
) -> pa.RecordBatch:
    if isinstance(changes, int):
        changes = np.full(len(rows), changes, dtype=np.uint8)
    times = pa.array(np.full(len(rows), timestamp_ms * 1000, dtype=np.int64)).view(SYSTEM_FIELDS[2].type)
    columns = [*rows.columns, pa.array(changes, pa.uint8()), pa.array(offsets), times]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class BatchGatherer:
    """Makes batches of a log split's parts: small parts are concatenated, large ones are split, holes are refused.

    A batch has neither more than `ROWS_MOST` rows nor, unless it is one row, more than `BYTES_MOST` bytes.
    """

    def __init__(self, schema: pa.Schema, where: str, start: int) -> None:
        """Gather nothing yet from offset `start` on; `where` is table and bucket in words, for errors."""
        self._where = where
        self._reached = start
        self._returned = start
        self._returned_any = False
        self._pending = _Pending(schema)
        self._empty = 0
        self._decode_s = 0.0

    def add(
        self, records: pa.RecordBatch | None, first: int, next_offset: int, *, empty: int = 0, decode_s: float = 0.0
    ) -> list[SourceBatch]:
        """Take the records of the next part (None where it has none), and return the batches that are ready.

        The part begins at offset `first`; `next_offset` comes after it. So many of its offsets as `empty` says hold no
        record, by the source's own word. `decode_s` is how many seconds decoding it took.

        Raises:
            LogGapError: the part does not begin where the one before ended.
            RowCountError: records and empty offsets are not as many as the part's offsets.
        """
        if first != self._reached:
            raise LogGapError(self._where, self._reached, first)
        rows = 0 if records is None else records.num_rows
        if rows + empty != next_offset - first:
            message = (
                f"{self._where}: expected {next_offset - first - empty} records between offsets {first} and "
                f"{next_offset}, found {rows}"
            )
            raise RowCountError(message)
        ready: list[SourceBatch] = []
        if records is not None and rows:
            if not self._pending.has_room(records):
                ready += self._flush()
            self._pending.add(records)
        self._empty += empty
        self._decode_s += decode_s
        self._reached = next_offset
        if self._pending.is_full:
            ready += self._flush()
        return ready

    def rest(self) -> list[SourceBatch]:
        """Return what is left at the end; a batch without rows where there was no record at all, or none of late."""
        return self._flush() if self._pending.parts or self._reached > self._returned or not self._returned_any else []

    def _flush(self) -> list[SourceBatch]:
        self._returned_any = True
        batches: list[SourceBatch] = []
        empty, decode_s = self._empty, self._decode_s
        pieces = self._pending.take()
        for number, piece in enumerate(pieces, 1):
            last = number == len(pieces)
            end = self._reached if last else piece.column(OFFSET_COLUMN)[-1].as_py() + 1
            gaps = empty if last else end - self._returned - piece.num_rows
            batches.append(SourceBatch(piece, end, decode_s, gaps))
            empty, decode_s = empty - gaps, 0.0
            self._returned = end
        self._empty, self._decode_s = 0, 0.0
        return batches


@dataclass(slots=True)
class _Pending:
    """Parts that wait to be concatenated."""

    schema: pa.Schema
    parts: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    size_bytes: int = 0

    def has_room(self, part: pa.RecordBatch) -> bool:
        """Return whether a part may be concatenated with what is pending: a large one is not worth the copy."""
        small = part.num_rows < ROWS_LEAST and self.size_bytes + part.nbytes <= BYTES_MOST
        return not self.parts or small

    @property
    def is_full(self) -> bool:
        return self.rows >= ROWS_LEAST or self.size_bytes >= BYTES_LEAST

    def add(self, part: pa.RecordBatch) -> None:
        self.parts.append(part)
        self.rows += part.num_rows
        self.size_bytes += part.nbytes

    def take(self) -> list[pa.RecordBatch]:
        """Return what is pending as batches, and hold nothing; where nothing is pending, one empty batch."""
        parts, self.parts, self.rows, self.size_bytes = self.parts, [], 0, 0
        return list(split_batch(concat_batches(parts, self.schema)))


def gather(parts: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Concatenate small parts and split large ones, as `BatchGatherer` does, for rows without offsets.

    Parts come in order; those without rows are left out.
    """
    pending = _Pending(schema)
    for part in parts:
        if not part.num_rows:
            continue
        if not pending.has_room(part):
            yield from pending.take()
        pending.add(part)
        if pending.is_full:
            yield from pending.take()
    if pending.parts:
        yield from pending.take()


def split_batch(records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split records, without a copy, into batches of at most `ROWS_MOST` rows and, down to one row, `BYTES_MOST` bytes.

    Records without rows give one empty batch.
    """
    for start in range(0, max(1, records.num_rows), ROWS_MOST):
        yield from _halves(records.slice(start, ROWS_MOST))


def concat_batches(parts: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Copy parts of one schema into one batch; one part is returned as it is, none give an empty batch.

    Together they are less than 2 GiB in each column.

    Raises:
        pa.ArrowInvalid: they are more than Arrow's 32-bit offsets can count.
    """
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
    return pa.concat_batches(parts)


def find_failing(rows: int, fails: Callable[[int, int], bool]) -> int:
    """Return the first of `rows` rows that fails, by halving; one of them does.

    `fails` says whether any row fails of so many (second) from a row on (first).
    """
    low, high = 0, rows
    while high - low > 1:
        middle = (low + high) // 2
        if fails(low, middle - low):
            high = middle
        else:
            low = middle
    return low


def _halves(records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if records.num_rows <= 1 or records.nbytes <= BYTES_MOST:
        yield records
        return
    middle = records.num_rows // 2
    yield from _halves(records.slice(0, middle))
    yield from _halves(records.slice(middle))
