"""Records without Arrow: what a batch of the simulator is made of. They say what `SplitWork` asks of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from lakeward.model.tables import OFFSET_COLUMN
from lakeward.ports import SourceBatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakeward.model.tables import TableBucket

BATCH = 3
"""Rows of a batch."""
ROW_BYTES = 100
_TIMES = pa.array([1000], pa.int64())


@dataclass(frozen=True, slots=True)
class Row:
    """One record. `offset` is -1 in a row of a KV snapshot, which `snapshot` names."""

    bucket: TableBucket
    offset: int
    key: int
    change: int
    snapshot: int | None = None


@dataclass(frozen=True, slots=True)
class Records:
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

    def column(self, name: str) -> pa.Array:
        """Return the times or the offsets, the two columns that are asked for."""
        return pa.array([row.offset for row in self.rows], pa.int64()) if name == OFFSET_COLUMN else _TIMES


def batches(rows: Sequence[Row], end: int, *, log: bool) -> Iterator[SourceBatch]:
    """Cut rows into batches.

    Args:
        rows: in order.
        end: what the last batch of a log, and every batch of a snapshot, stands at.
        log: rows of a log, where each batch stands at its own end.
    """
    pieces = [rows[start : start + BATCH] for start in range(0, len(rows), BATCH)]
    for piece in pieces:
        stands = piece[-1].offset + 1 if log else end
        yield SourceBatch(cast("pa.RecordBatch", Records(tuple(piece))), stands, empty_offsets=0 if log else None)
    if not pieces:
        yield SourceBatch(cast("pa.RecordBatch", Records(())), end, empty_offsets=0 if log else None)
