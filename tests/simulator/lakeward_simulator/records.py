"""Records without Arrow: what a batch of the simulator is made of. They say what `SplitWork` asks of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
from msgspec import Struct, msgpack

from lakeward.model.tables import OFFSET_COLUMN, TIMESTAMP_COLUMN, TableBucket
from lakeward.ports import SourceBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


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

    @property
    def schema(self) -> Records:
        """As pyarrow: what can be serialized; there is nothing to say of columns."""
        return Records(())

    def serialize(self) -> pa.Buffer:
        """As pyarrow, of at most one row."""
        return pa.py_buffer(b"".join(map(msgpack.encode, self.rows)))

    def slice(self, first: int, count: int) -> Records:
        """As pyarrow."""
        return Records(self.rows[first : first + count])

    def filter(self, chosen: pa.Array) -> Records:
        """As pyarrow."""
        return Records(tuple(row for row, one in zip(self.rows, chosen.to_pylist(), strict=True) if one))

    def to_pylist(self) -> list[dict[str, int]]:
        """As pyarrow."""
        return [{"key": row.key} for row in self.rows]


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
