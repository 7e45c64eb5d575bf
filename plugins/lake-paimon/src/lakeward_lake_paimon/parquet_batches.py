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


def read_batches(
    source: pa.NativeFile, fine: Collection[str], rows: int, buffer_bytes: int = 0
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, at most so many in a batch. The columns `fine` have nanoseconds, the others none.

    Of each column `buffer_bytes` are read at once; 0: all of a row group.
    """
    coarse = _batches(source, "us", rows, buffer_bytes)
    if not fine:
        yield from coarse
        return
    # The same columns and rows twice: the batches end at the same rows.
    for one, other in zip(coarse, _batches(source, "ns", rows, buffer_bytes), strict=True):
        pairs = zip(one.schema.names, one.columns, other.columns, strict=True)
        columns = {name: in_ns if name in fine else in_us for name, in_us, in_ns in pairs}
        yield pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _batches(source: pa.NativeFile, unit: str, rows: int, buffer_bytes: int) -> Iterator[pa.RecordBatch]:
    file = pq.ParquetFile(source, buffer_size=buffer_bytes, coerce_int96_timestamp_unit=unit)
    yield from file.iter_batches(rows)
