"""Decode rows in Python, by a function generated for the schema: the way without numba, ten times slower.

The generated function walks each row once and appends to one list per column; for a plain field it calls nothing.
Python's own bounds do not catch everything (a slice is cut silently, a value may reach into the next row), so the
position after the last field is compared with the row's end.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakeward.errors import CorruptFileError, RowError
from lakeward_fluss.formats import codes
from lakeward_fluss.formats.encodings import Encoding, code
from lakeward_fluss.formats.plainvalues import BrokenValueError, converter, float_of
from lakeward_fluss.formats.types import FlussField, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakeward_fluss.formats.rows import Rows
    from lakeward_fluss.formats.schema import FlussSchema
    from lakeward_fluss.formats.target import Columns

_STAMPS = frozenset({Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ})


def read_columns(rows: Rows, schema: FlussSchema, wanted: frozenset[str], encoding: Encoding) -> Columns:
    """Decode rows into columns by name.

    Args:
        rows: the rows.
        schema: the schema that they were written under.
        wanted: names of the columns to build.
        encoding: the row format.

    Returns:
        An array per wanted column that the schema has.

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
    return {
        field.name: _to_array(values, field, encoding, rows.origin) for field, values in fields if field.name in wanted
    }


def raw_values(row: bytes, schema: FlussSchema, encoding: Encoding) -> dict[str, object] | None:
    """Return what a row holds in each column, before it is made a value of the column's type.

    Args:
        row: the row.
        schema: the schema that it was written under.
        encoding: the row format.

    Returns:
        Integers, floats and bytes by column; None where not even the columns' bytes can be told apart.
    """
    lists: list[list[Any]] = [[] for _ in schema.columns]
    try:
        _walker(schema.columns, encoding)(row, [0], [len(row)], lists)
    except (BrokenValueError, IndexError):
        return None
    return {field.name: values[0] for field, values in zip(schema.columns, lists, strict=True)}


def _to_array(values: list[Any], field: FlussField, encoding: Encoding, origin: str) -> pa.Array:
    convert = converter(field.type, encoding, _read_row)
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
        convert = converter(field.type, encoding, _read_row)
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
    scope: dict[str, Any] = {"Broken": BrokenValueError, "float_of": float_of, "int_of": int.from_bytes}
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
        f"    if shift >= {35 if bits == 32 else 70}: raise Broken",  # noqa: PLR2004 - 5 or 10 bytes of 7 bits
        "    byte = data[at]",
        "    at += 1",
        f"    {name} |= (byte & 127) << shift",
        "    if byte < 128: break",
        "    shift += 7",
        f"  {name} = (({name} & {(1 << bits) - 1}) ^ {1 << (bits - 1)}) - {1 << (bits - 1)}",
    ]
