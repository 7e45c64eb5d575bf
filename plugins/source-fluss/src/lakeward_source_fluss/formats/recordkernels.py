# ruff: noqa: PLR2004 - widths and bit counts are clearer as numbers
"""The kernels that find records inside a batch; rules as in `rowkernels`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lakeward_source_fluss.formats.compiled import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray


@kernel("bytes", "int", "out64", "out64")
def split_records(data: NDArray[np.uint8], prefix: int, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> int:
    """Find records that follow each other: 4 bytes of length (of what follows), then the record.

    Args:
        data: the records, and nothing else.
        prefix: how many bytes each record has at least.
        starts: out: where each record's content begins, after its length.
        ends: out: where it ends.

    Returns:
        -1, or the first broken record; the number of records where bytes are left over.
    """
    at = 0
    size = data.size
    for record in range(starts.size):
        if size - at < 4:
            return record
        length = int(data[at]) | (int(data[at + 1]) << 8) | (int(data[at + 2]) << 16) | (int(data[at + 3]) << 24)
        at += 4
        if length < prefix or length > size - at:
            return record
        starts[record] = at
        at += length
        ends[record] = at
    if at != size:
        return starts.size
    return -1
