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
_MARK, _WITHIN = np.uint8(0b1100_0000), np.uint8(0b1000_0000)
"""The first bits of a byte, and what they are within a letter of UTF-8."""
_REFUSALS = (pa.ArrowInvalid, pa.ArrowNotImplementedError)


def check_whole(array: pa.Array) -> None:
    """Validate as `array.validate(full=True)` does; Arrow looks at each text by itself, which takes 25 times longer.

    As binary, everything but the text is checked: offsets, lengths and nulls. Then bytes that are all ASCII are whole,
    and so are texts that are one text together, of which none begins within a letter.

    Raises:
        pa.ArrowInvalid: text that is no UTF-8, a decimal beyond its precision, offsets that do not fit.
    """
    if pa.types.is_string(array.type):
        array.view(pa.binary()).validate(full=True)
        offsets, used = _bytes_of(array)
        if not used.size or used.max() < _ASCII_END or _is_one_text(offsets - offsets[0], used):
            return
    array.validate(full=True)


def is_whole(array: pa.Array) -> bool:
    """Return whether each value is valid for its type."""
    return _passes(check_whole, array)


def broken_rows(array: pa.Array) -> list[int]:
    """Return the rows whose value is invalid for its type, such as text that is no UTF-8."""
    if is_whole(array):
        return []
    if not pa.types.is_string(array.type):
        return _failing(array, is_whole, None)
    suspects = _rows_beyond_ascii(array)
    values = array.view(pa.binary()).take(pa.array(suspects)).to_pylist()
    return [row for row, value in zip(suspects.tolist(), values, strict=True) if not _is_text(value)]


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


def _bytes_of(array: pa.StringArray) -> tuple[np.ndarray, np.ndarray]:
    """Return where each text begins, and the last ends, and the bytes of all of them; the offsets are whole."""
    _, ends, data = array.buffers()
    if not len(array) or data is None:
        return np.zeros(1, dtype=np.int32), np.empty(0, dtype=np.uint8)
    offsets = np.frombuffer(ends, "<i4", len(array) + 1, array.offset * 4)
    return offsets, np.frombuffer(data, "u1")[offsets[0] : offsets[-1]]


def _is_one_text(places: np.ndarray, used: np.ndarray) -> bool:
    """Return whether bytes are UTF-8 as a whole, and none of the texts that begin at these places within a letter."""
    firsts = used[places[:-1][places[:-1] < len(used)]]
    ends = pa.py_buffer(np.array([0, len(used)], dtype=np.int32))
    together = pa.Array.from_buffers(pa.string(), 1, [None, ends, pa.py_buffer(used)])
    return not ((firsts & _MARK) == _WITHIN).any() and _passes(lambda text: text.validate(full=True), together)


def _is_text(value: bytes | None) -> bool:
    try:
        _ = b"" if value is None else value.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _rows_beyond_ascii(array: pa.StringArray) -> np.ndarray:
    """Return the rows with a byte that is not ASCII."""
    offsets, used = _bytes_of(array)
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
