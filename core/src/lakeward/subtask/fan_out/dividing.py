"""Divides records among the partitions of a lake table, by array operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakeward.model.tables import BUCKET_COLUMN, CHANGE_COLUMN, Change
from lakeward.subtask.row_errors import naming_exchanged_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.model.tables import TableSpec
    from lakeward.ports import Partitioner

_MOST_RETAINED = 2
"""A slice is copied if what it keeps in memory is more than so many times itself."""
_RUN_ROWS = 4096
"""Rows that follow one another in one partition are not put in order from so many rows a run on, on average; nor are
those of a batch in which each partition comes about once, as in those that were put in order for the exchange."""
_MOST_RUNS = 2
"""How often a partition comes in such a batch, on average, at most."""
_BATCH_ROWS = 4096
"""Batches of fewer rows are divided together: one by one, that takes longer than to join them."""
_SMALL_CODES = 1 << 15
"""Codes below this fit 16 bits, which NumPy sorts by radix."""


class RowDivider:
    """Divides the records of one split, or of one subtask of an exchange."""

    def __init__(
        self, partitioner: Partitioner, table: TableSpec, *, bucket: int | None = None, deletes_old_row: bool = False
    ) -> None:
        """`bucket` is the `__bucket` of all records; None: they have that column already.

        `deletes_old_row`: an update may move a row to another partition: the record before it deletes the old row.
        """
        self.table = table
        """For errors, which name the row."""
        self._partitioner = partitioner
        self._bucket = bucket
        self._deletes_old_row = deletes_old_row

    def prepare(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Add the bucket; make an update's record of the old row a delete of it."""
        if self._bucket is not None:
            column = pa.array(np.full(records.num_rows, self._bucket, dtype=np.int32))
            records = records.append_column(pa.field(BUCKET_COLUMN, pa.int32(), nullable=False), column)
        if not self._deletes_old_row:
            return records
        place = records.schema.get_field_index(CHANGE_COLUMN)
        changes = records.column(place).to_numpy()
        old = changes == Change.UPDATE_BEFORE
        if not old.any():
            return records
        deletes = np.where(old, np.uint8(Change.DELETE), changes)
        return records.set_column(place, records.schema.field(place), pa.array(deletes))

    def divide(self, batches: list[pa.RecordBatch]) -> Iterator[tuple[bytes, pa.RecordBatch, int]]:
        """Yield the rows of each partition, in order, and about how many bytes they have; empty the list.

        A partition may come in several runs. The batches are prepared, and have rows.

        Raises:
            RowError: a value has no partition.
        """
        for records in _joined(batches):
            bytes_per_row = records.nbytes / records.num_rows
            with naming_exchanged_rows(self.table, records):
                groups = list(self._divide(records))
            for partition, rows in groups:
                yield partition, rows, int(rows.num_rows * bytes_per_row)
            del records, groups

    def _divide(self, records: pa.RecordBatch) -> Iterator[tuple[bytes, pa.RecordBatch]]:
        codes, partitions = self._partitioner.partition(records)
        ends = np.append(np.flatnonzero(codes[1:] != codes[:-1]) + 1, len(codes))
        if len(ends) > _MOST_RUNS * len(partitions) and len(codes) < _RUN_ROWS * len(ends):
            if len(partitions) < _SMALL_CODES:
                codes = codes.astype(np.int16)
            order = np.argsort(codes, kind="stable")
            records, codes = records.take(pa.array(order)), codes[order]
            ends = np.append(np.flatnonzero(codes[1:] != codes[:-1]) + 1, len(codes))
        start, empty = 0, records.slice(0, 0)
        for end in ends.tolist():
            rows = records.slice(start, end - start)
            few = _MOST_RETAINED * rows.num_rows < records.num_rows
            yield partitions[codes[start]], _own_memory(rows, empty, copy=few)
            start = end


def _own_memory(rows: pa.RecordBatch, empty: pa.RecordBatch, *, copy: bool) -> pa.RecordBatch:
    """Return rows that do not keep a much larger batch in memory, of which they are a slice.

    With `copy`, they are copied in any case: to ask for the bytes of a slice takes longer than to copy a small one.
    """
    if not copy and rows.get_total_buffer_size() <= _MOST_RETAINED * rows.nbytes:
        return rows
    # With one batch there would be no copy, and `take` of all rows is several times slower than a copy of memory.
    return pa.concat_batches([rows, empty])


def _joined(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in the same order, in batches that are not small if there is another way; empty the list."""
    batches.reverse()
    while batches:
        together = [batches.pop()]
        rows = together[0].num_rows
        while batches and (rows < _BATCH_ROWS or batches[-1].num_rows < _BATCH_ROWS):
            together.append(batches.pop())
            rows += together[-1].num_rows
        yield together[0] if len(together) == 1 else pa.concat_batches(together)
