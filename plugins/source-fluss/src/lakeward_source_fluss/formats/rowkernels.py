# ruff: noqa: PLR0917, PLR2004 - compiled signatures are positional; widths and bit counts are clearer as numbers
"""The kernels that find and read the fields of rows (fluss.md, "KV snapshots and rows"), for any schema.

Each value ends in a cell of two numbers and a flag. `first` is the value itself (an integer, or the bits of a float),
the milliseconds of a timestamp, or the position of a value of variable length; `second` is that value's length, or the
nanoseconds of the millisecond. `present` is 0 for null.

Rules: a kernel returns -1, or the number of the first row that is broken; nothing is read outside the row, and nothing
is allocated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lakeward_source_fluss.formats.codes import (
    FIXED_1,
    FIXED_2,
    FIXED_4,
    FIXED_8,
    LISTED,
    MAX_NANOS,
    PADDED,
    PREFIXED,
    VARINT_STAMP,
)
from lakeward_source_fluss.formats.compiled import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray


@kernel("bytes", "i64", "i64", "codes", "i32", "flags", "int", "i64x2", "i32x2", "flags2")
def read_rows(  # noqa: C901, PLR0911, PLR0912, PLR0915 - one kernel: a call per field would cost more than its work
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    codes: NDArray[np.int8],
    widths: NDArray[np.int32],
    nullable: NDArray[np.uint8],
    lengths: int,
    first: NDArray[np.int64],
    second: NDArray[np.int32],
    present: NDArray[np.uint8],
) -> int:
    """Read all fields of all rows into cells.

    Args:
        data: the bytes that the rows lie in.
        starts: where each row begins; -1 = the whole row is null.
        ends: where each row ends, exactly.
        codes: how each field is stored.
        widths: bytes of a field with code PADDED.
        nullable: 0 where a field's null bit must be ignored.
        lengths: how many slots the length area has (0 for compacted rows).
        first: out, (fields, rows).
        second: out, (fields, rows).
        present: out, (fields, rows).

    Returns:
        -1, or the first broken row.
    """
    fields = codes.size
    for row in range(starts.size):
        start = starts[row]
        if start < 0:
            for field in range(fields):
                first[field, row] = 0
                second[field, row] = 0
                present[field, row] = 0
            continue
        end = ends[row]
        slot = start + ((fields + 7) >> 3)
        at = slot + 4 * lengths
        if end > data.size or at > end:
            return row
        for field in range(fields):
            if nullable[field] and (data[start + (field >> 3)] >> (field & 7)) & 1:
                first[field, row] = 0
                second[field, row] = 0
                present[field, row] = 0
                continue
            code = codes[field]
            value = np.int64(0)
            extra = np.int64(0)
            if code <= FIXED_8:
                if at + code > end:
                    return row
                if code == FIXED_1:
                    value = (np.int64(data[at]) << 56) >> 56
                elif code == FIXED_2:
                    value = ((np.int64(data[at]) | (np.int64(data[at + 1]) << 8)) << 48) >> 48
                else:
                    value = (
                        np.int64(data[at])
                        | (np.int64(data[at + 1]) << 8)
                        | (np.int64(data[at + 2]) << 16)
                        | (np.int64(data[at + 3]) << 24)
                    )
                    if code == FIXED_4:
                        value = (value << 32) >> 32
                    else:
                        value |= (
                            (np.int64(data[at + 4]) << 32)
                            | (np.int64(data[at + 5]) << 40)
                            | (np.int64(data[at + 6]) << 48)
                            | (np.int64(data[at + 7]) << 56)
                        )
                at += code
            elif code <= VARINT_STAMP:
                limit = 35 if code % 2 == 0 else 70
                shift = 0
                byte = np.int64(128)
                while byte >= 128:
                    if at >= end or shift >= limit:
                        return row
                    byte = np.int64(data[at])
                    at += 1
                    value |= (byte & 127) << shift
                    shift += 7
                if limit == 35:
                    value = (value << 32) >> 32
                if code == PREFIXED:
                    extra = value
                    value = at
                    if extra < 0 or extra > end - at:
                        return row
                    at += extra
                elif code == VARINT_STAMP:
                    shift = 0
                    byte = np.int64(128)
                    while byte >= 128:
                        if at >= end or shift >= 35:
                            return row
                        byte = np.int64(data[at])
                        at += 1
                        extra |= (byte & 127) << shift
                        shift += 7
                    if extra > MAX_NANOS:
                        return row
            elif code == LISTED:
                if slot + 4 > start + ((fields + 7) >> 3) + 4 * lengths:
                    return row
                extra = (
                    np.int64(data[slot])
                    | (np.int64(data[slot + 1]) << 8)
                    | (np.int64(data[slot + 2]) << 16)
                    | (np.int64(data[slot + 3]) << 24)
                )
                slot += 4
                if extra > end - at:
                    return row
                value = at
                at += extra
            elif code == PADDED:
                extra = np.int64(widths[field])
                if extra > end - at:
                    return row
                value = at
                at += extra
            else:
                if at + 12 > end:
                    return row
                for byte_of in range(8):
                    value |= np.int64(data[at + byte_of]) << (8 * byte_of)
                for byte_of in range(4):
                    extra |= np.int64(data[at + 8 + byte_of]) << (8 * byte_of)
                if extra > MAX_NANOS:
                    return row
                at += 12
            first[field, row] = value
            second[field, row] = extra
            present[field, row] = 1
        if at != end:
            return row
    return -1


@kernel("bytes", "i64", "i32", "flags", "i32", "flags")
def gather(
    data: NDArray[np.uint8],
    positions: NDArray[np.int64],
    lengths: NDArray[np.int32],
    present: NDArray[np.uint8],
    offsets: NDArray[np.int32],
    out: NDArray[np.uint8],
) -> int:
    """Copy values of variable length side by side; `offsets` says where each goes. Cells were checked when read."""
    for row in range(positions.size):
        if present[row]:
            # Unsigned indexes: numba would test signed ones for being below zero, byte by byte.
            source = np.uint64(positions[row])
            target = np.uint64(offsets[row])
            for byte in range(np.uint64(lengths[row])):
                out[target + byte] = data[source + byte]
    return -1


@kernel("bytes", "i64", "i32", "flags", "int", "flags")
def gather_padded(
    data: NDArray[np.uint8],
    positions: NDArray[np.int64],
    lengths: NDArray[np.int32],
    present: NDArray[np.uint8],
    width: int,
    out: NDArray[np.uint8],
) -> int:
    """Copy values into slots of `width` bytes that were zero before; a longer value is a broken row."""
    for row in range(positions.size):
        if present[row]:
            if lengths[row] > width:
                return row
            source = positions[row]
            for byte in range(lengths[row]):
                out[row * width + byte] = data[source + byte]
    return -1


@kernel("bytes", "i64", "i32", "flags", "flags")
def read_decimals(
    data: NDArray[np.uint8],
    positions: NDArray[np.int64],
    lengths: NDArray[np.int32],
    present: NDArray[np.uint8],
    out: NDArray[np.uint8],
) -> int:
    """Turn big-endian two's complement of 1 to 16 bytes into 16 little-endian bytes; `out` was zero before."""
    for row in range(positions.size):
        if present[row]:
            length = lengths[row]
            if length < 1 or length > 16:
                return row
            source = positions[row]
            fill = 255 if data[source] >= 128 else 0
            for byte in range(length):
                out[row * 16 + byte] = data[source + length - 1 - byte]
            for byte in range(length, 16):
                out[row * 16 + byte] = fill
    return -1


@kernel("bytes", "i64", "i32", "flags")
def strip_padding(
    data: NDArray[np.uint8], positions: NDArray[np.int64], lengths: NDArray[np.int32], present: NDArray[np.uint8]
) -> int:
    """Shorten values by their zero bytes at the end (CHAR in indexed rows)."""
    for row in range(positions.size):
        if present[row]:
            length = lengths[row]
            while length > 0 and data[positions[row] + length - 1] == 0:
                length -= 1
            lengths[row] = length
    return -1
