"""Which columns are written with a dictionary."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lakeward_lake_iceberg.datafile import Encodings, repeats

ROWS = 200_000
NUMBERS = np.random.default_rng(7)


def texts(distinct: int, length: int, rows: int = ROWS) -> pa.ChunkedArray:
    values = pa.array([f"{number:0{length}d}" for number in range(distinct)])
    return pa.chunked_array([values.take(pa.array(NUMBERS.integers(0, distinct, rows)))])


@pytest.mark.parametrize("distinct", [1, 20, 3_000, 10_000])
def test_text_that_repeats_is_written_with_a_dictionary(distinct: int) -> None:
    assert repeats(texts(distinct, 60))


def test_text_of_few_rows_is_written_with_a_dictionary_where_each_comes_thrice() -> None:
    assert repeats(texts(10_000, 24, 30_000))
    assert not repeats(texts(20_000, 24, 30_000))


def test_text_whose_dictionary_would_be_given_up_is_written_without_one() -> None:
    assert not repeats(texts(10_000, 200))


UNWORTHY = {
    "numbers that grow": pa.array(np.arange(ROWS)),
    "numbers at random": pa.array(NUMBERS.random(ROWS)),
    "booleans": pa.array([True, False] * 10),
    "nulls": pa.nulls(10),
    "nothing": pa.array([], pa.int64()),
}


@pytest.mark.parametrize("column", UNWORTHY.values(), ids=UNWORTHY)
def test_what_does_not_repeat_or_needs_no_dictionary_is_written_without_one(column: pa.Array) -> None:
    assert not repeats(pa.chunked_array([column]))


def test_a_short_column_of_one_value_is_written_with_a_dictionary() -> None:
    assert repeats(pa.chunked_array([pa.array(["same"] * 3)]))


def _sample(rows: int, distinct: int) -> pa.Table:
    return pa.table({"v": texts(distinct, 10, rows)})


def test_writers_that_share_encodings_have_those_of_the_first_rows() -> None:
    encodings = Encodings()
    assert encodings.repeated(_sample(30_000, 20)) == {"v"}
    assert encodings.repeated(_sample(30_000, 30_000)) == {"v"}


def test_a_few_rows_do_not_choose_the_encodings_of_many() -> None:
    encodings = Encodings()
    assert encodings.repeated(_sample(3, 1)) == {"v"}
    assert encodings.repeated(_sample(30_000, 30_000)) == frozenset()
    assert encodings.repeated(_sample(3, 1)) == frozenset()
