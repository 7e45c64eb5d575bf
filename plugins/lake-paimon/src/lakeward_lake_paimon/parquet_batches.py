"""Reads data files in batches, with timestamps of any year.

Where one column has nanoseconds, files have all timestamps as INT96, and other engines may write them so. Arrow reads
INT96 in one unit: nanoseconds have no years before 1678 and after 2261, and become others; microseconds lose digits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


def read_batches(source: pa.NativeFile, fine: Collection[str], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, at most so many in a batch. The columns `fine` have nanoseconds, the others none."""
    coarse = _batches(source, "us", rows)
    if not fine:
        yield from coarse
        return
    # The same columns and rows twice: the batches end at the same rows.
    for one, other in zip(coarse, _batches(source, "ns", rows), strict=True):
        pairs = zip(one.schema.names, one.columns, other.columns, strict=True)
        columns = {name: in_ns if name in fine else in_us for name, in_us, in_ns in pairs}
        yield pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _batches(source: pa.NativeFile, unit: str, rows: int) -> Iterator[pa.RecordBatch]:
    yield from pq.ParquetFile(source, coerce_int96_timestamp_unit=unit).iter_batches(rows)
