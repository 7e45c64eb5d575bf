"""Rows decoded in plain Python, value by value: what the compiled decoders are compared with.

It shares the schema and the codes of the storage with them, and no code that reads bytes. A function generated for the
schema walks each row once and appends to one list per column. Python's own bounds do not catch everything (a slice is
cut silently, a value may reach into the next row), so the position after the last field is compared with the row's end.
"""

from __future__ import annotations

import struct
from decimal import Context, Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from lakeward.errors import CorruptFileError, RowError
from lakeward_source_fluss.formats import codes
from lakeward_source_fluss.formats.encodings import Encoding, code, slot
from lakeward_source_fluss.formats.target import fit
from lakeward_source_fluss.formats.types import COMPACT_TIMESTAMP, FlussField, FlussType, Kind, time_unit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakeward_source_fluss.formats.rows import Rows
    from lakeward_source_fluss.formats.schema import FlussSchema

Convert: TypeAlias = "Callable[[Any], Any]"
ReadRow: TypeAlias = "Callable[[tuple[FlussField, ...], Encoding, bytes], dict[str, Any]]"
_STAMPS = frozenset({Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ})
_EXACT = Context(prec=40)
_PER_MILLI = {"ms": 1, "us": 1_000, "ns": 1_000_000}
_DAY_MS = 86_400_000
_MAX_DECIMAL_BYTES = 16
_MAX_INLINE = 7
_SLOT_SIGN = 1 << 63


class BrokenValueError(Exception):
    """Bytes do not fit their type; the caller names them."""


def _converter(kind: FlussType, encoding: Encoding, read_row: ReadRow) -> Convert | None:
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
    convert = _converter(element, encoding, read_row)
    return lambda raw: _elements(raw, element, convert)


def _map(kind: FlussType, encoding: Encoding, read_row: ReadRow) -> Convert:
    key, value = (child.type for child in kind.children)
    convert_key, convert_value = (_converter(child, encoding, read_row) for child in (key, value))

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
        return _float_of(raw)
    return int.from_bytes(raw, "little", signed=True)


def _float_of(raw: bytes) -> float:
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


def decode_plainly(rows: Rows, schema: FlussSchema, encoding: Encoding) -> pa.RecordBatch:
    """Decode rows into all columns of their schema.

    Args:
        rows: the rows.
        schema: the schema that they were written under.
        encoding: the row format.

    Returns:
        A batch of `schema.to_arrow()`.

    Raises:
        CorruptFileError: a row does not fit the schema.
        RowError: a timestamp that its Arrow type cannot hold.
    """
    lists: list[list[Any]] = [[] for _ in schema.columns]
    walk = _walker(schema.columns, encoding)
    try:
        walk(rows.data.tobytes(), rows.starts.tolist(), rows.ends.tolist(), lists)
    except (BrokenValueError, IndexError) as broken:
        expected = f"rows of {len(schema.columns)} fields"
        raise CorruptFileError(rows.origin, expected, f"row {len(lists[-1])} does not fit") from broken
    fields = zip(schema.columns, lists, strict=True)
    columns = {field.name: _to_array(values, field, encoding, rows.origin) for field, values in fields}
    return fit(columns, schema.to_arrow(), len(rows), rows.origin)


def _to_array(values: list[Any], field: FlussField, encoding: Encoding, origin: str) -> pa.Array:
    convert = _converter(field.type, encoding, _read_row)
    try:
        if convert is not None:
            values = [None if value is None else convert(value) for value in values]
        return pa.array(values, field.type.to_arrow())
    except (BrokenValueError, IndexError, pa.ArrowInvalid, OverflowError) as broken:
        if field.type.kind in _STAMPS:
            message = f"{origin}: column {field.name!r}: expected times that {field.type.to_arrow()} holds ({broken})"
            raise RowError(message) from broken
        raise CorruptFileError(origin, f"whole values of {field.name!r}", str(broken)) from broken


def _read_row(fields: tuple[FlussField, ...], encoding: Encoding, raw: bytes) -> dict[str, Any]:
    lists: list[list[Any]] = [[] for _ in fields]
    _walker(fields, encoding)(raw, [0], [len(raw)], lists)
    values = {}
    for field, (value,) in zip(fields, lists, strict=True):
        convert = _converter(field.type, encoding, _read_row)
        values[field.name] = value if value is None or convert is None else convert(value)
    return values


# A cache of functions made from immutable values: at most 64 schemas are of use at a time.
@lru_cache(maxsize=64)
def _walker(
    fields: tuple[FlussField, ...], encoding: Encoding
) -> Callable[[bytes, Sequence[int], Sequence[int], list[list[Any]]], None]:
    """Generate the function that walks rows: `walk(data, starts, ends, lists)`."""
    found = [code(field.type, encoding) for field in fields]
    area = (len(fields) + 7) // 8
    lines = ["def walk(data, starts, ends, lists):"]
    lines += [f"  add{number} = lists[{number}].append" for number in range(len(fields))]
    lines += ["  for at, end in zip(starts, ends):", "    bits = slot = at"]
    lines += [f"    slot = at + {area}", f"    at = slot + {4 * found.count(codes.LISTED)}"]
    lines += ["    if at > end: raise Broken"]
    for number, (field, how) in enumerate(zip(fields, found, strict=True)):
        body = [*_field_lines(field, how), f"add{number}(v)"]
        if field.type.nullable:
            lines.append(f"    if data[bits + {number >> 3}] & {1 << (number & 7)}: add{number}(None)")
            lines.append("    else:")
            lines += [f"      {line}" for line in body]
        else:
            lines += [f"    {line}" for line in body]
    lines.append("    if at != end: raise Broken")
    scope: dict[str, Any] = {"Broken": BrokenValueError, "float_of": _float_of, "int_of": int.from_bytes}
    exec("\n".join(lines), scope)  # noqa: S102 - the text holds numbers alone, nothing from outside
    walk: Callable[[bytes, Sequence[int], Sequence[int], list[list[Any]]], None] = scope["walk"]
    return walk


def _field_lines(field: FlussField, how: int) -> list[str]:  # noqa: PLR0911 - a return per way to store a field
    if how <= codes.FIXED_8:
        real = field.type.kind in {Kind.FLOAT, Kind.DOUBLE}
        raw = f"data[at:at + {how}]"
        return [f"v = float_of({raw})" if real else f"v = int_of({raw}, 'little', signed=True)", f"at += {how}"]
    match how:
        case codes.VARINT_32:
            return _varint_lines("v", 32)
        case codes.VARINT_64:
            return _varint_lines("v", 64)
        case codes.PREFIXED:
            take = ["if n < 0 or n > end - at: raise Broken", "v = data[at:at + n]", "at += n"]
            return [*_varint_lines("n", 32), *take]
        case codes.VARINT_STAMP:
            return [*_varint_lines("v", 64), *_varint_lines("n", 32), *_STAMP_LINES]
        case codes.LISTED:
            return ["n = int_of(data[slot:slot + 4], 'little')", "slot += 4", "v = data[at:at + n]", "at += n"]
        case codes.PADDED:
            return [f"v = data[at:at + {field.type.length}]", f"at += {field.type.length}"]
        case _:
            read = ["v = int_of(data[at:at + 8], 'little', signed=True)", "n = int_of(data[at + 8:at + 12], 'little')"]
            return [*read, "at += 12", *_STAMP_LINES]


_STAMP_LINES = [f"if not 0 <= n <= {codes.MAX_NANOS}: raise Broken", "v = v * 1000000 + n"]


def _varint_lines(name: str, bits: int) -> list[str]:
    return [
        f"{name} = data[at]",
        "at += 1",
        f"if {name} > 127:",
        f"  {name} &= 127",
        "  shift = 7",
        "  while True:",
        f"    if shift >= {35 if bits == 32 else 70}: raise Broken",
        "    byte = data[at]",
        "    at += 1",
        f"    {name} |= (byte & 127) << shift",
        "    if byte < 128: break",
        "    shift += 7",
        f"  {name} = (({name} & {(1 << bits) - 1}) ^ {1 << (bits - 1)}) - {1 << (bits - 1)}",
    ]
