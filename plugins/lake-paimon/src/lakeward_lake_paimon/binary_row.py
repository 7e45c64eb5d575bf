"""Paimon's `BinaryRow`: the bytes of partitions, keys and statistics in manifests.

A row is a byte of its kind and a bit for each null, padded to 8 bytes; 8 bytes a field; then the values that do not fit
there. In a manifest the number of fields comes first, as 4 bytes, big endian (`SerializationUtils`).
"""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakeward_lake_paimon.kinds import arrow_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward_lake_paimon.kinds import Kind

Value = Any
"""A value as Paimon stores it: None, bool, int (dates as days, times as ms, decimals unscaled), float, bytes for text.

A timestamp is a pair: milliseconds since 1970, and nanoseconds within the millisecond.
"""
_INLINE = 7
_COMPACT_DECIMAL = 18
_COMPACT_TIME = 3
_DECIMAL_BYTES = 16
_HEADER_BITS = 8
_NS_IN_MS = 1_000_000
_FIXED = {
    "BOOLEAN": "<?",
    "TINYINT": "<b",
    "SMALLINT": "<h",
    "INT": "<i",
    "BIGINT": "<q",
    "FLOAT": "<f",
    "DOUBLE": "<d",
    "DATE": "<i",
    "TIME": "<i",
}
_NS_IN = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


def encode_row(values: Sequence[Value], kinds: Sequence[Kind]) -> bytes:
    """Return a row of atomic values as a manifest holds it."""
    bits = _null_bytes(len(kinds))
    fixed = bytearray(bits + 8 * len(kinds))
    variable = bytearray()
    for number, (value, kind) in enumerate(zip(values, kinds, strict=True)):
        place = bits + 8 * number
        if value is None:
            bit = number + _HEADER_BITS
            fixed[bit // 8] |= 1 << (bit % 8)
        elif kind.root in _FIXED:
            struct.pack_into(_FIXED[kind.root], fixed, place, value)
        else:
            _put(fixed, variable, place, value, kind)
    return struct.pack(">i", len(kinds)) + bytes(fixed) + bytes(variable)


def _put(fixed: bytearray, variable: bytearray, place: int, value: Value, kind: Kind) -> None:
    if kind.is_timestamp:
        millis, nanos = value
        if kind.digits <= _COMPACT_TIME:
            struct.pack_into("<q", fixed, place, millis)
        else:
            struct.pack_into("<q", fixed, place, (len(fixed) + len(variable)) << 32 | nanos)
            variable += struct.pack("<q", millis)
        return
    if kind.root == "DECIMAL":
        if kind.digits <= _COMPACT_DECIMAL:
            struct.pack_into("<q", fixed, place, value)
            return
        # As Java's `BigInteger.toByteArray`: as few bytes as hold the number and its sign.
        raw = value.to_bytes(((value if value >= 0 else ~value).bit_length() + 8) // 8, "big", signed=True)
        padded = _DECIMAL_BYTES
    else:
        raw = value
        if len(raw) <= _INLINE:
            fixed[place : place + len(raw)] = raw
            fixed[place + 7] = 0x80 | len(raw)
            return
        padded = -(-len(raw) // 8) * 8
    struct.pack_into("<q", fixed, place, (len(fixed) + len(variable)) << 32 | len(raw))
    variable += raw.ljust(padded, b"\0")


def decode_row(data: bytes, kinds: Sequence[Kind]) -> tuple[Value, ...]:
    """Return the values of a row that a manifest holds."""
    row = data[4:]
    bits = _null_bytes(len(kinds))
    return tuple(_value(row, bits, number, kind) for number, kind in enumerate(kinds))


def _value(row: bytes, bits: int, number: int, kind: Kind) -> Value:
    bit = number + _HEADER_BITS
    if row[bit // 8] & 1 << (bit % 8):
        return None
    place = bits + 8 * number
    if kind.root in _FIXED:
        return struct.unpack_from(_FIXED[kind.root], row, place)[0]
    (slot,) = struct.unpack_from("<q", row, place)
    offset, length = slot >> 32, slot & 0xFFFFFFFF
    if kind.is_timestamp:
        compact = kind.digits <= _COMPACT_TIME
        return (slot, 0) if compact else (struct.unpack_from("<q", row, offset)[0], length)
    if kind.root == "DECIMAL":
        compact = kind.digits <= _COMPACT_DECIMAL
        return slot if compact else int.from_bytes(row[offset : offset + length], "big", signed=True)
    mark = row[place + 7]
    return row[place : place + (mark & 0x7F)] if mark & 0x80 else row[offset : offset + length]


def _null_bytes(fields: int) -> int:
    return (fields + 63 + _HEADER_BITS) // 64 * 8


def value_of(scalar: pa.Scalar, kind: Kind) -> Value:
    """Return an Arrow scalar of a data file's column as Paimon stores it in a row."""
    if not scalar.is_valid:
        return None
    if kind.is_timestamp:
        millis, nanos = divmod(scalar.value * _NS_IN[scalar.type.unit], _NS_IN_MS)
        return millis, nanos
    if kind.root in {"DATE", "TIME"}:
        return scalar.value
    value = scalar.as_py()
    if kind.root == "DECIMAL":
        return unscaled(value, kind.scale)
    return value.encode() if kind.is_text else value


def scalar_of(value: Value, kind: Kind) -> pa.Scalar:
    """Return the Arrow scalar of a data file's column of which `value_of` gives this value."""
    target = arrow_type(kind)
    if value is None:
        return pa.scalar(None, target)
    if kind.is_timestamp:
        millis, nanos = value
        ticks = (millis * _NS_IN_MS + nanos) // _NS_IN[target.unit]
        return pa.scalar(ticks, pa.int64()).cast(target)
    if kind.root in {"DATE", "TIME"}:
        return pa.scalar(value, pa.int32()).cast(target)
    if kind.root == "DECIMAL":
        digits = tuple(map(int, str(abs(value))))
        return pa.scalar(Decimal((int(value < 0), digits, -kind.scale)), target)
    return pa.scalar(value.decode() if kind.is_text else value, target)


def unscaled(value: Decimal, scale: int) -> int:
    """Return a decimal as the whole number that a scale makes of it."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)  # noqa: S101 - Arrow has neither infinities nor NaN in decimals
    number = int("".join(map(str, digits)) + "0" * (exponent + scale))
    return -number if sign else number


EMPTY_ROW = encode_row((), ())
