"""Values of columns as they are compared with what manifests say of them, for `lakeward verify`.

A value is a bool, a number, a `Decimal`, or bytes for text; dates are days, times ms, timestamps ns. What the writers
encode rows with is not used.
"""

from __future__ import annotations

import math
import re
import struct
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward_lake_paimon.kinds import Kind

Value = Any
_COMPACT = {"DECIMAL": 18, "TIMESTAMP": 3, "TIMESTAMP_LTZ": 3}
"""Digits up to which a value lies in its slot."""
_LAYOUTS = {
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
_NS_IN = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_NS_IN_MS = 10**6
_ZEROS = re.compile(r"\.?0*$")


class NoRowError(ValueError):
    """Bytes that are no row of so many columns."""


def read_row(data: bytes, kinds: Sequence[Kind]) -> list[Value]:
    """Return the values of a row that a manifest holds.

    Raises:
        NoRowError: it has another number of columns, or ends before its values do.
    """
    try:
        (count,) = struct.unpack_from(">i", data)
        if count != len(kinds):
            message = f"a row of {count} columns"
            raise NoRowError(message)
        row = data[4:]
        # A byte says the kind of the row, then each column has a bit; slots begin at the next multiple of 8 bytes.
        slots = (8 + count + 63) // 64 * 8
        nulls = int.from_bytes(row[1:slots], "little")
        return [None if nulls >> place & 1 else _slot(row, slots + 8 * place, kind) for place, kind in enumerate(kinds)]
    except (struct.error, IndexError) as cut:
        message = f"{len(data)} bytes that are no row"
        raise NoRowError(message) from cut


def _slot(row: bytes, at: int, kind: Kind) -> Value:
    if kind.root in _LAYOUTS:
        return struct.unpack_from(_LAYOUTS[kind.root], row, at)[0]
    low, high = struct.unpack_from("<II", row, at)
    if kind.is_timestamp:
        # In the slot its milliseconds; or where they are, and the nanoseconds beside them.
        place, nanos = (at, 0) if kind.digits <= _COMPACT[kind.root] else (high, low)
        return struct.unpack_from("<q", row, place)[0] * _NS_IN_MS + nanos
    if kind.root == "DECIMAL":
        compact = kind.digits <= _COMPACT["DECIMAL"]
        number = (
            struct.unpack_from("<q", row, at)[0]
            if compact
            else int.from_bytes(_part(row, high, low), "big", signed=True)
        )
        return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -kind.scale))
    short = row[at + 7]
    return _part(row, at, short & 0x7F) if short & 0x80 else _part(row, high, low)


def _part(row: bytes, start: int, length: int) -> bytes:
    found = row[start : start + length]
    if len(found) < length:
        raise IndexError(start)
    return found


def plain(array: pa.Array, kind: Kind) -> pa.Array:
    """Return a column's values in a type that Arrow orders as Paimon does."""
    if kind.is_timestamp:
        return array.view(pa.int64())
    if kind.root in {"DATE", "TIME"}:
        return array.view(pa.int32())
    return array.cast(pa.binary()) if kind.is_text else array


def value_of(scalar: pa.Scalar, kind: Kind, unit: str) -> Value:
    """Return a value of `plain`; `unit` is that of the column's timestamps."""
    value = scalar.as_py()
    return value * _NS_IN[unit] if kind.is_timestamp and value is not None else value


def unit_of(array: pa.Array) -> str:
    """Return the unit of a column's timestamps, empty of other columns."""
    return str(array.type.unit) if pa.types.is_timestamp(array.type) else ""


def extremes(array: pa.Array, kind: Kind) -> list[Value]:
    """Return the least and the greatest value of a column, none where it has none.

    NaN is the greatest number, and -0.0 less than 0.0.
    """
    values, unit = plain(array, kind), unit_of(array)
    nan = False
    if pa.types.is_floating(values.type):
        is_nan = pc.fill_null(pc.is_nan(values), False)
        nan = bool(is_nan.true_count)
        values = values.filter(pc.invert(is_nan))
    both = pc.min_max(values)
    found = [] if not both["min"].is_valid else [value_of(both[end], kind, unit) for end in ("min", "max")]
    if pa.types.is_floating(values.type) and 0.0 in found:
        negative = np.signbit(values.filter(pc.equal(values, 0.0)).to_numpy(zero_copy_only=False))
        zeros = -0.0 if negative.any() else 0.0, -0.0 if negative.all() else 0.0
        found = [zero if one == 0.0 else one for one, zero in zip(found, zeros, strict=True)]
    if nan:
        found = [found[0], math.nan] if found else [math.nan] * 2
    return found


def ordered(value: Value) -> Any:  # noqa: ANN401 - of any type
    """Return what a value is compared by, as Java does."""
    return (math.isnan(value), value, math.copysign(1.0, value)) if isinstance(value, float) else value


def same(one: Value, other: Value) -> bool:
    """Return whether two values are one; null is one too."""
    if one is None or other is None:
        return one is other
    return bool(ordered(one) == ordered(other)) or (one != one and other != other)  # noqa: PLR0124 - NaN


def shown(value: Value) -> object:
    """Return a value as it is shown: text as text."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def path_text(scalar: pa.Scalar, kind: Kind) -> str:
    """Return a partition value as paths have it, without zeros at the end of a fraction (`plain_path_text`)."""
    if not scalar.is_valid:
        return ""
    if kind.root == "DECIMAL":
        return format(scalar.as_py(), "f")
    if kind.is_bytes:
        return str(scalar.as_py().decode("utf-8", "replace"))
    text = str(scalar.cast(pa.string()).as_py())
    return plain_path_text(text.removesuffix("Z"), kind)


def plain_path_text(text: str, kind: Kind) -> str:
    """Return the text of a partition value without zeros at the end of a second's fraction."""
    timed = (kind.is_timestamp or kind.root == "TIME") and "." in text
    return _ZEROS.sub("", text) if timed else text
