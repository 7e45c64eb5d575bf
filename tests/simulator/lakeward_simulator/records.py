"""Records without Arrow: what a batch of the simulator is made of. They say what `SplitWork` asks of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
from msgspec import Struct

from lakeward.model.batches import batch_schema
from lakeward.model.tables import OFFSET_COLUMN, TIMESTAMP_COLUMN, TableBucket
from lakeward.ports import SourceBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


ROUTED = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ("key", "day", "snapshot")])
"""Of a table with a lake partitioning. `snapshot` names the KV snapshot that a row is of, -1 for a row of the log."""
_BATCH = batch_schema(ROUTED)
_TIME_US = 1_000_000
BATCH = 3
"""Rows of a batch."""
ROW_BYTES = 100


class Row(Struct, frozen=True):
    """One record. `offset` is -1 in a row of a KV snapshot, which `snapshot` names."""

    bucket: TableBucket
    offset: int
    key: int
    change: int
    snapshot: int | None = None
    day: int = 0
    """A column of a table with a lake partitioning."""


class Records(Struct, frozen=True):
    """Stands for a `pyarrow.RecordBatch`."""

    rows: tuple[Row, ...]

    @property
    def num_rows(self) -> int:
        """As pyarrow."""
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        """As pyarrow."""
        return len(self.rows) * ROW_BYTES

    def column(self, name: str) -> Offsets | pa.Array:
        """Return the keys, the offsets or the times, the columns that are asked for."""
        if name == TIMESTAMP_COLUMN:
            return pa.array([1000] * max(1, len(self.rows)), _TIME)
        if name == "key":
            return pa.array([row.key for row in self.rows])
        if name != OFFSET_COLUMN:
            raise KeyError(name)
        return Offsets([row.offset for row in self.rows])

    def filter(self, chosen: pa.Array) -> Records:
        """As pyarrow."""
        return Records(tuple(row for row, one in zip(self.rows, chosen.to_pylist(), strict=True) if one))

    def take(self, chosen: pa.Array) -> pa.RecordBatch:
        """As pyarrow, and a real one: dead letters are made of it."""
        return arrow_records([self.rows[one] for one in chosen.to_pylist()])


class Offsets(Struct, frozen=True):
    """Stands for a `pyarrow.Array` of offsets."""

    values: list[int]

    def to_numpy(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """As pyarrow."""
        return np.array(self.values, np.int64)

    def to_pylist(self) -> list[int]:
        """As pyarrow."""
        return self.values


_TIME = pa.timestamp("us")


def arrow_records(rows: Sequence[Row]) -> pa.RecordBatch:
    """Return rows as a source hands them out."""
    columns = (
        pa.array([row.key for row in rows], pa.int64()),
        pa.array([row.day for row in rows], pa.int64()),
        pa.array([-1 if row.snapshot is None else row.snapshot for row in rows], pa.int64()),
        pa.array([row.change for row in rows], pa.uint8()),
        pa.array([row.offset for row in rows], pa.int64()),
        pa.array([_TIME_US] * len(rows), _BATCH.field(5).type),
    )
    return pa.RecordBatch.from_arrays(list(columns), schema=_BATCH)


def records(rows: Sequence[Row]) -> pa.RecordBatch:
    """Return what stands for a batch of rows."""
    return cast("pa.RecordBatch", Records(tuple(rows)))


def batches(
    rows: Sequence[Row], make: Callable[[Sequence[Row]], pa.RecordBatch], end: int, *, log: bool
) -> Iterator[SourceBatch]:
    """Cut rows into batches.

    Args:
        rows: in order.
        make: makes the records of a batch.
        end: what the last batch of a log, and every batch of a snapshot, stands at.
        log: rows of a log, where each batch stands at its own end.
    """
    pieces = [rows[start : start + BATCH] for start in range(0, len(rows), BATCH)]
    for piece in pieces:
        stands = piece[-1].offset + 1 if log else end
        yield SourceBatch(make(piece), stands, empty_offsets=0 if log else None)
    if not pieces:
        yield SourceBatch(make(()), end, empty_offsets=0 if log else None)
