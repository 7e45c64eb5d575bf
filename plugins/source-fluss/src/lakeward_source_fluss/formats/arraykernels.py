# ruff: noqa: PLR0917, PLR2004 - compiled signatures are positional; widths and bit counts are clearer as numbers
"""The kernels that read arrays and maps inside rows into cells; rules as in `rowkernels`.

Source: fluss.md, "KV snapshots and rows".

No value may lie outside its array, and the values of one array may not be longer together than the array: a hostile
one cannot name the same bytes many times to make its reader allocate without end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lakeward_source_fluss.formats.codes import MAX_NANOS, SLOT_STAMP, SLOT_TEXT, SLOT_VALUE
from lakeward_source_fluss.formats.compiled import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray


@kernel("bytes", "i64", "i32", "flags", "int", "out64")
def count_elements(
    data: NDArray[np.uint8],
    positions: NDArray[np.int64],
    lengths: NDArray[np.int32],
    present: NDArray[np.uint8],
    width: int,
    offsets: NDArray[np.int64],
) -> int:
    """Sum up how many elements the arrays have, and check that each array has room for its slots.

    Args:
        data: the bytes that the arrays lie in.
        positions: where each array begins.
        lengths: its bytes.
        present: 0 where the array is null.
        width: bytes of a slot.
        offsets: out, one more than arrays: the number of the first element of each.

    Returns:
        -1, or the first broken row.
    """
    total = np.int64(0)
    offsets[0] = 0
    for row in range(positions.size):
        if present[row]:
            at = positions[row]
            if lengths[row] < 4:
                return row
            count = (
                np.int64(data[at])
                | (np.int64(data[at + 1]) << 8)
                | (np.int64(data[at + 2]) << 16)
                | (np.int64(data[at + 3]) << 24)
            )
            if 4 + 4 * ((count + 31) >> 5) + count * width > lengths[row]:
                return row
            total += count
        offsets[row + 1] = total
    return -1


@kernel("bytes", "i64", "i32", "i64", "int", "int", "out64", "i32", "flags")
def read_elements(  # noqa: C901 - one kernel: a call per element would cost more than its work
    data: NDArray[np.uint8],
    positions: NDArray[np.int64],
    lengths: NDArray[np.int32],
    offsets: NDArray[np.int64],
    width: int,
    code: int,
    first: NDArray[np.int64],
    second: NDArray[np.int32],
    present: NDArray[np.uint8],
) -> int:
    """Read the elements of arrays that `count_elements` has checked into cells.

    Args:
        data: the bytes that the arrays lie in.
        positions: where each array begins.
        lengths: its bytes.
        offsets: what `count_elements` gave.
        width: bytes of a slot.
        code: what a slot holds.
        first: out, one per element.
        second: out, one per element.
        present: out, one per element.

    Returns:
        -1, or the first broken row.
    """
    for row in range(positions.size):
        count = offsets[row + 1] - offsets[row]
        base = positions[row]
        left = np.int64(lengths[row])
        for number in range(count):
            element = offsets[row] + number
            first[element] = 0
            second[element] = 0
            present[element] = 0
            if (data[base + 4 + (number >> 3)] >> (number & 7)) & 1:
                continue
            present[element] = 1
            at = base + 4 + 4 * ((count + 31) >> 5) + number * width
            slot = np.int64(0)
            for byte in range(width):
                slot |= np.int64(data[at + byte]) << (8 * byte)
            if code == SLOT_VALUE:
                first[element] = (slot << (64 - 8 * width)) >> (64 - 8 * width)
                continue
            if code == SLOT_TEXT and slot < 0:
                length = (slot >> 56) & 127
                if length > 7:
                    return row
                first[element] = at
                second[element] = length
                continue
            offset = slot >> 32
            length = np.int64(8) if code == SLOT_STAMP else slot & 0xFFFFFFFF
            left -= length
            if offset < 0 or left < 0 or offset + length > lengths[row]:
                return row
            if code == SLOT_STAMP:
                millis = np.int64(0)
                for byte in range(8):
                    millis |= np.int64(data[base + offset + byte]) << (8 * byte)
                first[element] = millis
                second[element] = slot & 0xFFFFFFFF
                if (slot & 0xFFFFFFFF) > MAX_NANOS:
                    return row
            else:
                first[element] = base + offset
                second[element] = length
    return -1


@kernel("bytes", "i64", "i32", "flags", "out64", "i32", "out64", "i32")
def split_maps(
    data: NDArray[np.uint8],
    positions: NDArray[np.int64],
    lengths: NDArray[np.int32],
    present: NDArray[np.uint8],
    key_positions: NDArray[np.int64],
    key_lengths: NDArray[np.int32],
    value_positions: NDArray[np.int64],
    value_lengths: NDArray[np.int32],
) -> int:
    """Find the key array and the value array of each map.

    Args:
        data: the bytes that the maps lie in.
        positions: where each map begins.
        lengths: its bytes.
        present: 0 where the map is null.
        key_positions: out.
        key_lengths: out.
        value_positions: out.
        value_lengths: out.

    Returns:
        -1, or the first broken row.
    """
    for row in range(positions.size):
        key_positions[row] = 0
        key_lengths[row] = 0
        value_positions[row] = 0
        value_lengths[row] = 0
        if present[row]:
            at = positions[row]
            if lengths[row] < 4:
                return row
            keys = (
                np.int64(data[at])
                | (np.int64(data[at + 1]) << 8)
                | (np.int64(data[at + 2]) << 16)
                | (np.int64(data[at + 3]) << 24)
            )
            if keys > lengths[row] - 4:
                return row
            key_positions[row] = at + 4
            key_lengths[row] = keys
            value_positions[row] = at + 4 + keys
            value_lengths[row] = lengths[row] - 4 - keys
    return -1
