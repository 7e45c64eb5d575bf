"""Finds the values of a column that do not fit; the column is looked at as a whole first, which costs little."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable

_ASCII_END = 0x80
"""Bytes below are ASCII, which is UTF-8 wherever it is cut."""
_REFUSALS = (pa.ArrowInvalid, pa.ArrowNotImplementedError)


def check_whole(array: pa.Array) -> None:
    """Validate as `array.validate(full=True)` does; Arrow looks at each text by itself, which takes 25 times longer.

    As binary, everything but the text is checked: offsets, lengths and nulls. Then bytes that are all ASCII are whole.

    Raises:
        pa.ArrowInvalid: text that is no UTF-8, a decimal beyond its precision, offsets that do not fit.
    """
    if pa.types.is_string(array.type):
        array.view(pa.binary()).validate(full=True)
        if not _rows_beyond_ascii(array, any_row=True).size:
            return
    array.validate(full=True)


def is_whole(array: pa.Array) -> bool:
    """Return whether each value is valid for its type."""
    return _passes(check_whole, array)


def broken_rows(array: pa.Array) -> list[int]:
    """Return the rows whose value is invalid for its type, such as text that is no UTF-8."""
    if is_whole(array):
        return []
    return _failing(array, is_whole, _rows_beyond_ascii(array) if pa.types.is_string(array.type) else None)


def uncastable_rows(array: pa.Array, target: pa.DataType, cast: Callable[[pa.Array], object]) -> list[int]:
    """Return the rows whose value `cast` refuses, which casts to `target`."""

    def fits(values: pa.Array) -> bool:
        return _passes(cast, values)

    return [] if fits(array) else _failing(array, fits, _changed_by(array, target))


def _failing(array: pa.Array, fits: Callable[[pa.Array], bool], suspects: np.ndarray | None) -> list[int]:
    """Return the rows that do not fit. Suspects are looked at one by one, all others at once; None: halves are."""
    if suspects is not None:
        others = np.ones(len(array), dtype=np.bool_)
        others[suspects] = False
        if fits(array.filter(pa.array(others))):
            return [row for row in suspects.tolist() if not fits(_part(array, row, 1))]
    return _halved(array, fits, 0)


def _halved(array: pa.Array, fits: Callable[[pa.Array], bool], first: int) -> list[int]:
    if fits(array):
        return []
    half = len(array) // 2
    if not half:
        return [first]
    return [*_halved(_part(array, 0, half), fits, first), *_halved(_part(array, half), fits, first + half)]


def _part(array: pa.Array, first: int, count: int | None = None) -> pa.Array:
    """Return a slice; of a nested array a copy, for what is checked of a slice's children are those of all rows."""
    part = array.slice(first, count)
    return part.take(pa.array(range(len(part)))) if pa.types.is_nested(array.type) else part


def _passes(check: Callable[[pa.Array], object], array: pa.Array) -> bool:
    try:
        check(array)
    except _REFUSALS:
        return False
    return True


def _rows_beyond_ascii(array: pa.StringArray, *, any_row: bool = False) -> np.ndarray:
    """Return the rows with a byte that is not ASCII, or with `any_row` something if there is one; offsets are whole."""
    _, ends, data = array.buffers()
    if not len(array) or data is None:
        return np.empty(0, dtype=np.int64)
    offsets = np.frombuffer(ends, "<i4", len(array) + 1, array.offset * 4)
    used = np.frombuffer(data, "u1")[offsets[0] : offsets[-1]]
    if not len(used) or used.max() < _ASCII_END:
        return np.empty(0, dtype=np.int64)
    if any_row:
        return offsets[:1]
    places = np.flatnonzero(used >= _ASCII_END) + offsets[0]
    return np.unique(np.searchsorted(offsets, places, side="right") - 1)


def _changed_by(array: pa.Array, target: pa.DataType) -> np.ndarray | None:
    """Return the rows that an unchecked cast there and back changes; None where there is no such cast."""
    try:
        back = pc.cast(pc.cast(array, target, safe=False), array.type, safe=False)
        changed = pc.fill_null(pc.not_equal(back, array), False)
    except _REFUSALS:
        return None
    return np.flatnonzero(changed.to_numpy(zero_copy_only=False))
