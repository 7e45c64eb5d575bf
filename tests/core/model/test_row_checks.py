"""Rows that do not fit are found among those that do, whatever is wrong with them and however many they are."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakeward.errors import RowError
from lakeward.model.lake_rows import RowConverter
from lakeward.model.tables import TableBucket
from lakeward_testing.lake_tables import log_table, source_batch

ROWS = 3_000
BAD = [0, 1, 7, 1_500, 2_998, 2_999]
BUCKET = TableBucket(7, None, 3)


def text_of(values: list[bytes]) -> pa.Array:
    return pa.array(values, pa.binary()).view(pa.string())


def some(bad: Any, good: Any) -> list[Any]:  # noqa: ANN401 - values of any column
    return [bad if row in BAD else good for row in range(ROWS)]


CASES: dict[str, tuple[pa.Array, pa.Field]] = {
    "bytes that are no text": (text_of(some(b"\xff\xfe", "gr\u00fcn".encode())), pa.field("v", pa.string())),
    "a cut letter among ASCII": (text_of(some(b"\xc3", b"plain")), pa.field("v", pa.string())),
    "a time beyond the lake's": (
        pa.array(some(2**62, 5), pa.timestamp("s", "UTC")),
        pa.field("v", pa.timestamp("us", "UTC")),
    ),
    "a number beyond the lake's": (pa.array(some(2**40, None), pa.int64()), pa.field("v", pa.int32())),
    "a null where none may be": (pa.array(some(None, 4), pa.int64()), pa.field("v", pa.int64(), nullable=False)),
    "digits beyond the lake's": (
        pa.array(some(Decimal("12345.67"), Decimal("1.50")), pa.decimal128(12, 2)),
        pa.field("v", pa.decimal128(4, 2)),
    ),
    "no text in a list": (
        pa.ListArray.from_arrays(list(range(ROWS + 1)), text_of(some(b"\xff", b"a"))),
        pa.field("v", pa.list_(pa.string())),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_exactly_the_rows_that_do_not_fit_are_named_with_their_offsets(case: str) -> None:
    array, target = CASES[case]
    schema = pa.schema([pa.field("v", array.type)])
    records = source_batch(schema, [{"v": None}] * ROWS, start=100).records.set_column(0, schema.field(0), array)
    found = RowConverter(log_table(schema), pa.schema([target]), BUCKET).misfits(records)
    assert list(found) == BAD
    assert {type(error) for error in found.values()} == {RowError}
    assert str(found[7]).startswith(f"table shop.orders, bucket {BUCKET}, offset 107, column 'v': expected a value")
    assert RowConverter(log_table(schema), pa.schema([target]), BUCKET).misfits(records.slice(8, 1_000)) == {}


def test_a_row_with_two_values_that_do_not_fit_is_named_once() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    target = pa.schema([("a", pa.int8()), ("b", pa.int8())])
    records = source_batch(schema, [{"a": 1, "b": 500}, {"a": 500, "b": 500}]).records
    found = RowConverter(log_table(schema), target, BUCKET).misfits(records)
    assert ["'b'" in str(found[0]), "'a'" in str(found[1]), len(found)] == [True, True, 2]
