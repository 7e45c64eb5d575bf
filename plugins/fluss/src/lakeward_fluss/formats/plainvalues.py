"""Single values in Python: from what a row holds to what `pyarrow.array` takes. The way without numba."""

from __future__ import annotations

import struct
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

from lakeward_fluss.formats import codes
from lakeward_fluss.formats.encodings import Encoding, slot
from lakeward_fluss.formats.types import COMPACT_TIMESTAMP, FlussField, FlussType, Kind, time_unit

if TYPE_CHECKING:
    from collections.abc import Callable

Convert: TypeAlias = "Callable[[Any], Any]"
ReadRow: TypeAlias = "Callable[[tuple[FlussField, ...], Encoding, bytes], dict[str, Any]]"
_EXACT = Context(prec=40)
_PER_MILLI = {"ms": 1, "us": 1_000, "ns": 1_000_000}
_DAY_MS = 86_400_000
_MAX_DECIMAL_BYTES = 16
_MAX_INLINE = 7
_SLOT_SIGN = 1 << 63


class BrokenValueError(Exception):
    """Bytes do not fit their type; the caller names them."""


def converter(kind: FlussType, encoding: Encoding, read_row: ReadRow) -> Convert | None:
    """Return the function from a raw value to what Arrow takes, None where it is the same.

    Raw values are an int (a timestamp finer than milliseconds: its nanoseconds), a float, or bytes.

    Args:
        kind: the value's type.
        encoding: the row format of rows inside.
        read_row: decodes one nested row.
    """
    make = _CONVERTERS.get(kind.kind)
    return None if make is None else make(kind, encoding, read_row)


def _boolean(_kind: FlussType, _encoding: Encoding, _read_row: ReadRow) -> Convert:
    return bool


def _time(kind: FlussType, _encoding: Encoding, _read_row: ReadRow) -> Convert:
    unit = time_unit(kind.precision)

    def convert(millis: int) -> int:
        if not 0 <= millis < _DAY_MS:
            raise BrokenValueError
        return millis // 1000 if unit == "s" else millis * _PER_MILLI[unit]

    return convert


def _timestamp(kind: FlussType, _encoding: Encoding, _read_row: ReadRow) -> Convert | None:
    unit = kind.to_arrow().unit
    if kind.precision <= COMPACT_TIMESTAMP:
        return (lambda millis: millis // 1000) if unit == "s" else None
    return lambda nanos: nanos // (1_000_000 // _PER_MILLI[unit])


def _decimal(kind: FlussType, _encoding: Encoding, _read_row: ReadRow) -> Convert:
    def convert(raw: int | bytes) -> Decimal:
        if isinstance(raw, bytes):
            if not 0 < len(raw) <= _MAX_DECIMAL_BYTES:
                raise BrokenValueError
            raw = int.from_bytes(raw, "big", signed=True)
        return Decimal(raw).scaleb(-kind.scale, _EXACT)

    return convert


def _char(_kind: FlussType, encoding: Encoding, _read_row: ReadRow) -> Convert | None:
    return (lambda raw: raw.rstrip(b"\0")) if encoding is Encoding.INDEXED else None


def _binary(kind: FlussType, _encoding: Encoding, _read_row: ReadRow) -> Convert:
    def convert(raw: bytes) -> bytes:
        if len(raw) > kind.length:
            raise BrokenValueError
        return raw.ljust(kind.length, b"\0")

    return convert


def _row(kind: FlussType, encoding: Encoding, read_row: ReadRow) -> Convert:
    return lambda raw: read_row(kind.children, encoding, raw)


def _array(kind: FlussType, encoding: Encoding, read_row: ReadRow) -> Convert:
    element = kind.children[0].type
    convert = converter(element, encoding, read_row)
    return lambda raw: _elements(raw, element, convert)


def _map(kind: FlussType, encoding: Encoding, read_row: ReadRow) -> Convert:
    key, value = (child.type for child in kind.children)
    convert_key, convert_value = (converter(child, encoding, read_row) for child in (key, value))

    def convert(raw: bytes) -> list[tuple[Any, Any]]:
        size = _unsigned(raw, 0, 4)
        if size > len(raw) - 4:
            raise BrokenValueError
        keys = _elements(raw[4 : 4 + size], key, convert_key)
        values = _elements(raw[4 + size :], value, convert_value)
        if len(keys) != len(values) or None in keys:
            raise BrokenValueError
        return list(zip(keys, values, strict=True))

    return convert


def _elements(raw: bytes, kind: FlussType, convert: Convert | None) -> list[Any]:
    width, holds = slot(kind)
    count = _unsigned(raw, 0, 4)
    base = 4 + 4 * ((count + 31) >> 5)
    if base + count * width > len(raw):
        raise BrokenValueError
    values: list[Any] = []
    left = len(raw)
    for number in range(count):
        if raw[4 + (number >> 3)] >> (number & 7) & 1:
            values.append(None)
            continue
        value, used = _element(raw, base + number * width, width, holds, kind)
        left -= used
        if left < 0:
            raise BrokenValueError
        values.append(value if convert is None else convert(value))
    return values


def _element(raw: bytes, at: int, width: int, holds: int, kind: FlussType) -> tuple[Any, int]:
    """Return the raw value of one slot, and how many bytes outside of it the value takes."""
    value = _unsigned(raw, at, width)
    if holds == codes.SLOT_VALUE:
        return _plain(raw[at : at + width], kind), 0
    if holds == codes.SLOT_TEXT and value & _SLOT_SIGN:
        length = value >> 56 & 127
        if length > _MAX_INLINE:
            raise BrokenValueError
        return raw[at : at + length], 0
    offset, low = value >> 32, value & 0xFFFFFFFF
    length = 8 if holds == codes.SLOT_STAMP else low
    if offset + length > len(raw) or (holds == codes.SLOT_STAMP and low > codes.MAX_NANOS):
        raise BrokenValueError
    found = raw[offset : offset + length]
    return (
        int.from_bytes(found, "little", signed=True) * 1_000_000 + low if holds == codes.SLOT_STAMP else found
    ), length


def _plain(raw: bytes, kind: FlussType) -> int | float:
    if kind.kind in {Kind.FLOAT, Kind.DOUBLE}:
        return float_of(raw)
    return int.from_bytes(raw, "little", signed=True)


def float_of(raw: bytes) -> float:
    """Return the float of 4 or 8 little-endian bytes.

    Raises:
        BrokenValueError: another number of bytes.
    """
    unpack = _FLOATS.get(len(raw))
    if unpack is None:
        raise BrokenValueError
    value: float = unpack(raw)[0]
    return value


def _unsigned(raw: bytes, at: int, width: int) -> int:
    if at + width > len(raw):
        raise BrokenValueError
    return int.from_bytes(raw[at : at + width], "little")


_FLOATS = {4: struct.Struct("<f").unpack, 8: struct.Struct("<d").unpack}
_CONVERTERS: dict[Kind, Callable[[FlussType, Encoding, ReadRow], Convert | None]] = {
    Kind.BOOLEAN: _boolean,
    Kind.TIME: _time,
    Kind.TIMESTAMP: _timestamp,
    Kind.TIMESTAMP_LTZ: _timestamp,
    Kind.DECIMAL: _decimal,
    Kind.CHAR: _char,
    Kind.BINARY: _binary,
    Kind.ROW: _row,
    Kind.ARRAY: _array,
    Kind.MAP: _map,
}
