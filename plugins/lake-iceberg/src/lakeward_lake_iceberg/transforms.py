"""Iceberg's partition transforms over whole columns (spec, "Partition Transforms"), with pyarrow and NumPy alone.

A partition's values are what Iceberg stores of them: dates and times as whole numbers, decimals as the bytes of their
unscaled value, text as text. They are the same for every writer and every process, and sort as Iceberg compares them.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward_lake_iceberg.murmur import hash_bytes, hash_longs

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from lakeward_lake_iceberg.detail import Value

    Longs = npt.NDArray[np.int64]

_MICROS_A_DAY = 86_400_000_000
_MICROS_AN_HOUR = 3_600_000_000
_POSITIVE = np.uint32(0x7FFFFFFF)
_SIGN_BIT = 0x80
_HALF = np.uint64(32)
_NAN = float("nan")


def transform(name: str, argument: int | None, column: pa.Array) -> pa.Array:
    """Return the partition value of each row, as an array of what Iceberg stores.

    That is whole numbers, booleans, doubles, text, bytes or decimals; null where the column is null. `name` is the
    transform, as in `lakeward.model.partitioning`; `void` gives nulls. `argument` is of `bucket` and `truncate`, else
    None. `column` is in the Arrow type of the lake's column.
    """
    if name == "void":
        return pa.nulls(len(column), pa.int32())
    return _TRANSFORMS[name](column, argument or 0)


def values_of(array: pa.Array) -> list[Value]:
    """Return the values of an array that `transform` gave, as they stand in a partition; few ones: this is a loop."""
    if pa.types.is_decimal(array.type):
        return [None if one is None else decimal_bytes(unscaled(one)) for one in array.to_pylist()]
    return list(array.to_pylist())


def unfit_rows(array: pa.Array) -> list[int]:
    """Return the rows of what `transform` gave whose values its type cannot hold.

    Only a decimal that was rounded down may have a digit too many. No file can have such a partition, and Java refuses
    it as well.
    """
    kind = array.type
    if not pa.types.is_decimal(kind):
        return []
    least = pa.scalar(Decimal((1, (9,) * kind.precision, -kind.scale)), kind)
    rows: list[int] = pc.indices_nonzero(pc.less(array, least)).to_pylist()
    return rows


def unscaled(value: Decimal) -> int:
    """Return the digits of a decimal as a whole number, whatever Python's own precision is."""
    sign, digits, _ = value.as_tuple()
    number = int("".join(map(str, digits)))
    return -number if sign else number


def decimal_bytes(number: int) -> bytes:
    """Return an unscaled decimal in the fewest bytes, big-endian, two's complement."""
    magnitude = number if number >= 0 else ~number
    return number.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def _identity(column: pa.Array, _: int) -> pa.Array:
    if pa.types.is_floating(column.type):
        # One kind of NaN: those of other bits are the same value, and a partition's key is made of bytes.
        doubles = column.cast(pa.float64())
        return pc.if_else(pc.is_nan(doubles), pa.scalar(_NAN), doubles)
    if pa.types.is_temporal(column.type):
        return column.view(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
    return column.cast(pa.binary()) if pa.types.is_fixed_size_binary(column.type) else column


def _year(column: pa.Array, _: int) -> pa.Array:
    return _number(column, _days(column).astype("datetime64[D]").astype("datetime64[Y]").astype(np.int64))


def _month(column: pa.Array, _: int) -> pa.Array:
    return _number(column, _days(column).astype("datetime64[D]").astype("datetime64[M]").astype(np.int64))


def _day(column: pa.Array, _: int) -> pa.Array:
    return _number(column, _days(column))


def _hour(column: pa.Array, _: int) -> pa.Array:
    return _number(column, _longs(column) // _MICROS_AN_HOUR)


def _bucket(column: pa.Array, buckets: int) -> pa.Array:
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        hashed = hash_longs(_longs(column))
    elif pa.types.is_decimal(kind):
        hashed = _hash_decimals(column)
    else:
        hashed = _hash_binary(column.cast(pa.large_binary()))
    hashed &= _POSITIVE
    if buckets & (buckets - 1):
        hashed %= np.uint32(buckets)
    else:  # a power of two: the same, in a tenth of the time
        hashed &= np.uint32(buckets - 1)
    return _number(column, hashed)


def _truncate(column: pa.Array, width: int) -> pa.Array:
    kind = column.type
    if pa.types.is_integer(kind):
        # As Java does, the smallest numbers wrap around to the largest ones. A query such as `n < 0` does not find
        # them, in any reader, and pyiceberg finds them by no equality either (iceberg.md, "Partitions").
        numbers = _longs(column).astype(kind.to_pandas_dtype())
        with np.errstate(over="ignore"):
            return _masked(column, pa.array((numbers - _longs(column) % width).astype(numbers.dtype)))
    if pa.types.is_decimal(kind):
        return _truncate_decimals(column, width)
    if pa.types.is_string(kind):
        return pc.utf8_slice_codeunits(column, 0, width)
    return pc.binary_slice(column.cast(pa.binary()), 0, width)


_TRANSFORMS: dict[str, Callable[[pa.Array, int], pa.Array]] = {
    "identity": _identity,
    "year": _year,
    "month": _month,
    "day": _day,
    "hour": _hour,
    "bucket": _bucket,
    "truncate": _truncate,
}


def _longs(column: pa.Array) -> Longs:
    """Return whole numbers, dates and times as numbers; a null is any number."""
    kind = column.type
    if pa.types.is_temporal(kind):
        column = column.view(pa.int32() if kind.bit_width == pa.int32().bit_width else pa.int64())
    offset, (_, data) = column.offset, column.buffers()
    numbers = np.frombuffer(data, dtype=column.type.to_pandas_dtype(), count=offset + len(column))[offset:]
    return numbers.astype(np.int64, copy=False)


def _days(column: pa.Array) -> Longs:
    numbers = _longs(column)
    return numbers if pa.types.is_date32(column.type) else numbers // _MICROS_A_DAY


def _number(column: pa.Array, numbers: npt.NDArray[Any]) -> pa.Array:
    return _masked(column, pa.array(numbers.astype(np.int32)))


def _masked(column: pa.Array, result: pa.Array) -> pa.Array:
    """Set null where the column is null."""
    return pc.if_else(column.is_valid(), result, pa.scalar(None, result.type)) if column.null_count else result


def _halves(column: pa.Array) -> tuple[npt.NDArray[np.uint64], Longs]:
    """Return the low and the high 64 bits of each unscaled decimal."""
    data = column.buffers()[1]
    both = np.frombuffer(data, dtype="<u8", count=2 * (column.offset + len(column)))[2 * column.offset :]
    return both[0::2].astype(np.uint64), both[1::2].astype(np.uint64).view(np.int64)


def _hash_decimals(column: pa.Array) -> npt.NDArray[np.uint32]:
    low, high = _halves(column)
    # Big-endian, and then only as many bytes as the sign needs.
    matrix = np.stack([high.view(np.uint64), low], axis=1).astype(">u8").view(np.uint8).reshape(-1, 16)
    sign = np.where(high < 0, np.uint8(0xFF), np.uint8(0))
    differs = matrix != sign[:, None]
    first = np.where(differs.any(axis=1), differs.argmax(axis=1), 15)
    # A byte that only says the sign is needed where the next one would say another.
    first -= (first > 0) & ((matrix[np.arange(len(first)), first] ^ sign) >= _SIGN_BIT)
    starts = np.arange(len(first), dtype=np.int64) * 16 + first
    return hash_bytes(matrix.reshape(-1), starts, 16 - first)


def _hash_binary(column: pa.Array) -> npt.NDArray[np.uint32]:
    _, places, data = column.buffers()
    ends = np.frombuffer(places, dtype=np.int64, count=column.offset + len(column) + 1)[column.offset :]
    lengths = np.diff(ends)
    if column.null_count:
        lengths = np.where(np.asarray(column.is_valid()), lengths, 0)
    # One byte at least: a column of empty texts may have no buffer.
    content = np.zeros(1, dtype=np.uint8) if data is None or not data.size else np.frombuffer(data, dtype=np.uint8)
    return hash_bytes(content, ends[:-1], lengths)


def _truncate_decimals(column: pa.Array, width: int) -> pa.Array:
    low, high = _halves(column)
    divisor = np.uint64(width)
    # (high * 2^64 + low) mod width, in steps that stay below 2^64: the width is below 2^31, as in Java.
    rest = (high % np.int64(width)).astype(np.uint64)
    for part in (low >> _HALF, low & np.uint64(0xFFFFFFFF)):
        rest = ((rest << _HALF) | part) % divisor
    borrow = low < rest
    both = np.empty(2 * len(low), dtype=np.uint64)
    both[0::2] = low - rest
    both[1::2] = (high - borrow).view(np.uint64)
    buffers = [None, pa.py_buffer(both.astype("<u8"))]
    return _masked(column, pa.Array.from_buffers(column.type, len(column), buffers))
