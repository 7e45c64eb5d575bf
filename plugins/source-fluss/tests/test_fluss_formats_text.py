"""Text in Arrow logs: ASCII is checked quickly, and all is refused that Arrow's full validation refuses."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeward.errors import CorruptFileError
from lakeward_source_fluss.formats.target import checked

_BYTES = st.one_of(st.none(), st.text(max_size=4).map(lambda text: text.encode("utf-8")), st.binary(max_size=3))


def text_of(values: list[bytes | None]) -> pa.Array:
    """Say of any bytes that they are text."""
    return pa.array(values, pa.binary()).view(pa.string())


def text_at(ends: list[int], data: bytes, valid: int = 0b1111, nulls: int = 0) -> pa.Array:
    """Make an array of offsets, validity and a count of nulls as they are said to be."""
    buffers = [pa.py_buffer(bytes([valid])), pa.py_buffer(np.array(ends, "<i4").tobytes()), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(ends) - 1, buffers, nulls)


def is_refused(array: pa.Array) -> bool:
    try:
        checked(array, "s", "a test")
    except CorruptFileError:
        return True
    return False


@settings(deadline=None)
@given(st.lists(_BYTES, max_size=6), st.integers(0, 6), st.integers(0, 6))
def test_text_is_refused_exactly_where_arrow_refuses_it(values: list[bytes | None], start: int, count: int) -> None:
    array = text_of(values).slice(start, count)
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        assert is_refused(array)
    else:
        assert not is_refused(array)


@pytest.mark.parametrize(
    ("array", "what"),
    [
        (text_at([0, 4, 2, 6], b"abcdef"), "offset"),
        (text_at([0, 2, 6], b"abcdef", nulls=1), "null"),
        (text_at([0, 1, 2], "ä".encode()), "UTF8"),
    ],
)
def test_damage_beside_ascii_text_is_refused(array: pa.Array, what: str) -> None:
    with pytest.raises(CorruptFileError, match=f"(?i){what}"):
        checked(array, "s", "a test")


def test_a_part_of_the_text_is_checked_without_what_is_beside_it() -> None:
    array = text_of([b"\xff", b"ab", None, b"\xfe"])
    assert is_refused(array)
    assert not is_refused(array.slice(1, 2))


def test_bytes_of_a_null_are_not_looked_at() -> None:
    assert not is_refused(text_at([0, 2, 3], b"ab\xff", valid=0b01, nulls=1))
    assert is_refused(text_at([0, 2, 3], b"ab\xff"))
