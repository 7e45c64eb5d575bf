"""From the columns that were decoded to the columns that are wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from lakeward.errors import CorruptFileError, SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Mapping

Columns: TypeAlias = "Mapping[str, pa.Array]"
_ASCII_END = 0x80
"""Bytes below are ASCII, which is UTF-8 wherever it is cut."""


def fit(columns: Columns, target: pa.Schema, rows: int, origin: str) -> pa.RecordBatch:
    """Make a batch of decoded columns, by name, in the target's order and types, and check that its values are whole.

    A column of the target that is not among them is null. `origin` is what was decoded, for errors.

    Raises:
        CorruptFileError: text that is no UTF-8, a decimal beyond its precision, offsets that do not fit.
        SchemaMismatchError: a column's type cannot become the target's.
    """
    arrays = [_column(columns.get(field.name), field, rows, origin) for field in target]
    return pa.RecordBatch.from_arrays(arrays, schema=target)


def _column(array: pa.Array | None, field: pa.Field, rows: int, origin: str) -> pa.Array:
    if array is None:
        return pa.nulls(rows, field.type)
    checked(array, field.name, origin)
    return array if array.type.equals(field.type) else _cast(array, field, origin)


def checked(array: pa.Array, name: str, origin: str) -> pa.Array:
    """Return an array whose values are whole: a column and its name. `origin` is what was decoded, for errors.

    Raises:
        CorruptFileError: text that is no UTF-8, a decimal beyond its precision, offsets that do not fit.
    """
    try:
        _validate(array)
    except pa.ArrowInvalid as broken:
        raise CorruptFileError(origin, f"whole values of {name!r}", str(broken)) from broken
    return array


def _validate(array: pa.Array) -> None:
    """Validate as `array.validate(full=True)` does; Arrow looks at each text by itself, which takes 25 times longer.

    As binary, everything but the text is checked: offsets, lengths and nulls. Then bytes that are all ASCII are whole.
    """
    if pa.types.is_string(array.type):
        array.view(pa.binary()).validate(full=True)
        if _is_ascii(array):
            return
    array.validate(full=True)


def _is_ascii(array: pa.StringArray) -> bool:
    """Return whether the bytes of all values are ASCII; the array's offsets have been checked."""
    _, ends, data = array.buffers()
    if not len(array) or data is None:
        return True
    offsets = np.frombuffer(ends, "<i4", len(array) + 1, array.offset * 4)
    used = np.frombuffer(data, "u1")[offsets[0] : offsets[-1]]
    return not len(used) or bool(used.max() < _ASCII_END)


def _cast(array: pa.Array, field: pa.Field, origin: str) -> pa.Array:
    try:
        return array.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as unfit:
        message = f"{origin}: column {field.name!r}: expected {field.type}, found {array.type} ({unfit})"
        raise SchemaMismatchError(message) from unfit
