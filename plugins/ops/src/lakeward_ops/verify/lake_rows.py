"""The rows that a lake table has, restricted to those that the source can still be asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.model.tables import BUCKET_COLUMN, OFFSET_COLUMN
from lakeward_ops.verify.row_keys import row_numbers
from lakeward_ops.verify.source_rows import bucket_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    Mask = npt.NDArray[np.bool_]


class AllRows:
    """Takes each lake row, where rows have no offset: which ones can be compared is seen when they are."""

    left_out = 0

    @staticmethod
    def of(rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return all rows."""
        return rows


@dataclass(slots=True)
class ComparableRows:
    """Says which lake rows can be compared. `left_out` counts the others.

    `first` is as of `Readable`; rows of a bucket that it does not name are compared, for they should not be there,
    unless `dropped` says that the source has dropped partitions. A row without a partition, bucket or offset is always
    compared: the source never had such a row, and so has not dropped it either.
    """

    partition_keys: Sequence[str]
    first: Mapping[tuple[str, ...], int | None]
    dropped: bool
    left_out: int = 0

    def of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return those rows that can be compared."""
        if not rows.num_rows:
            return rows
        offsets = pc.fill_null(rows.column(OFFSET_COLUMN), np.iinfo(np.int64).max)
        mask = np.asarray(offsets) >= self._first_offsets(rows)
        self.left_out += int((~mask).sum())
        return rows if mask.all() else rows.filter(pa.array(mask))

    def _first_offsets(self, rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """Return for each row the first offset of its bucket that can be compared."""
        columns = [rows.column(name) for name in (*self.partition_keys, BUCKET_COLUMN)]
        (numbers,) = row_numbers([columns])
        _, places = np.unique(numbers, return_index=True)
        limits = [self._limit([column[int(place)].as_py() for column in columns]) for place in places]
        return np.asarray(limits, dtype=np.int64)[numbers]

    def _limit(self, values: list[object]) -> int:
        if None in values:
            return np.iinfo(np.int64).min
        *partition, bucket = values
        found = self.first.get(bucket_name([str(value) for value in partition], int(str(bucket))), self._unknown)
        if found is None:
            return np.iinfo(np.int64).max
        return found or np.iinfo(np.int64).min  # rows of KV snapshots have offset -1

    @property
    def _unknown(self) -> int | None:
        return None if self.dropped else 0
