"""The vectorised transforms agree with pyiceberg's own, one value at a time, for every type that they take."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from lakeward_lake_iceberg.schema import _arrow_type
from lakeward_lake_iceberg.transforms import decimal_bytes, transform, unscaled, values_of

INT = (-(2**31), 2**31 - 1)
LONG = (-(2**63), 2**63 - 1)
DATES = (-719162, 2932896)
"""Days of the years 1 to 9999: what Python's own dates, and so pyiceberg's transforms, can say."""
MICROS = (-62135596800000000, 253402300799999999)


def _decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    largest = 10**precision - 1
    borders = [-(2 ** (8 * size - 1)) for size in range(1, 17) if 2 ** (8 * size - 1) <= largest]
    numbers = st.integers(-largest, largest) | st.sampled_from([*borders, 0, largest, -largest])
    return numbers.map(lambda one: Decimal((one < 0, tuple(map(int, str(abs(one)))), -scale)))


VALUES: dict[IcebergType, st.SearchStrategy[Any]] = {
    BooleanType(): st.booleans(),
    IntegerType(): st.integers(*INT) | st.sampled_from((*INT, 0, -1)),
    LongType(): st.integers(*LONG) | st.sampled_from((*LONG, 0, -1)),
    FloatType(): st.floats(width=32),
    DoubleType(): st.floats(),
    DateType(): st.integers(*DATES) | st.sampled_from((*DATES, -1, 0)),
    TimeType(): st.integers(0, 86_400_000_000 - 1),
    TimestampType(): st.integers(*MICROS) | st.sampled_from((*MICROS, -1, 0)),
    TimestamptzType(): st.integers(*MICROS),
    StringType(): st.text(max_size=24),
    BinaryType(): st.binary(max_size=24),
    FixedType(7): st.binary(min_size=7, max_size=7),
    UUIDType(): st.binary(min_size=16, max_size=16),
    DecimalType(1, 0): _decimals(1, 0),
    DecimalType(9, 2): _decimals(9, 2),
    DecimalType(18, 6): _decimals(18, 6),
    DecimalType(38, 0): _decimals(38, 0),
    DecimalType(38, 10): _decimals(38, 10),
}
TRANSFORMS: list[tuple[str, Any]] = [
    ("identity", None),
    ("year", None),
    ("month", None),
    ("day", None),
    ("hour", None),
    *(("bucket", number) for number in (1, 2, 16, 1000003)),
    *(("truncate", number) for number in (1, 3, 10, 2**31 - 1)),
]
_PLAIN: dict[str, Transform[Any, Any]] = {
    "identity": IdentityTransform(),
    "year": YearTransform(),
    "month": MonthTransform(),
    "day": DayTransform(),
    "hour": HourTransform(),
}
_DATES = (DateType, TimestampType, TimestamptzType)
_NUMBERS_AND_TEXTS = (IntegerType, LongType, DecimalType, StringType, BinaryType)
TAKES: dict[str, tuple[type[IcebergType], ...]] = {
    "identity": (PrimitiveType,),
    "year": _DATES,
    "month": _DATES,
    "day": _DATES,
    "hour": (TimestampType, TimestamptzType),
    "bucket": (*_NUMBERS_AND_TEXTS, *_DATES, TimeType, FixedType, UUIDType),
    "truncate": _NUMBERS_AND_TEXTS,
}
"""The types that each transform takes (Iceberg's specification, "Partition Transforms")."""
Pair = tuple[str, int | None, IcebergType]
ALL_PAIRS: list[Pair] = [(name, argument, kind) for name, argument in TRANSFORMS for kind in VALUES]
PAIRS = [(name, argument, kind) for name, argument, kind in ALL_PAIRS if isinstance(kind, TAKES[name])]
EXAMPLES = 40
"""Of each pair: there are 125, and 9 values at most in an example."""


def _theirs(name: str, argument: int | None) -> Transform[Any, Any]:
    if argument is not None:
        return BucketTransform(argument) if name == "bucket" else TruncateTransform(argument)
    return _PLAIN[name]


def _can(name: str, argument: int | None, kind: IcebergType) -> bool:
    return _theirs(name, argument).can_transform(kind)


def _column(kind: IcebergType, values: list[Any]) -> pa.Array:
    arrow = _arrow_type(kind)
    if isinstance(kind, DateType | TimeType | TimestampType | TimestamptzType):
        return pa.array(values, pa.int32() if isinstance(kind, DateType) else pa.int64()).view(arrow)
    return pa.array(values, arrow)


def _stored(value: Any) -> Any:  # noqa: ANN401 - of any type
    """Return a value of pyiceberg's as we keep it."""
    if isinstance(value, Decimal):
        return decimal_bytes(unscaled(value))
    return value


def _wrapped(kind: IcebergType, value: int) -> int:
    bits = 32 if isinstance(kind, IntegerType) else 64
    half = 1 << bits - 1
    return (value + half) % (2 * half) - half


@pytest.mark.parametrize(("name", "argument", "kind"), PAIRS, ids=str)
def test_each_transform_of_each_type_is_pyicebergs_own(name: str, argument: int | None, kind: IcebergType) -> None:
    theirs = _theirs(name, argument).transform(kind)
    compared: list[bool] = []

    @settings(deadline=None, max_examples=EXAMPLES)
    @example(values=[None], skipped=0)
    @given(values=st.lists(st.none() | VALUES[kind], max_size=9), skipped=st.integers(0, 3))
    def compare(values: list[Any], skipped: int) -> None:
        expected = [_stored(theirs(value)) for value in values]
        if name == "truncate" and isinstance(kind, IntegerType | LongType):
            expected = [None if one is None else _wrapped(kind, one) for one in expected]
        column = _column(kind, values)
        for first in (0, min(skipped, len(values))):
            found = values_of(transform(name, argument, column.slice(first)))
            assert [repr(one) for one in found] == [repr(one) for one in expected[first:]]
        compared.extend(value is None for value in values)

    compare()
    assert set(compared) == {True, False}, "expected nulls and values among what was compared"


def test_each_type_has_the_identity_and_what_is_left_out_pyiceberg_refuses_as_well() -> None:
    assert {kind for name, _, kind in PAIRS if name == "identity"} == set(VALUES)
    refused = [(name, argument, kind) for name, argument, kind in ALL_PAIRS if not _can(name, argument, kind)]
    assert [one for one in ALL_PAIRS if one not in PAIRS] == refused


@settings(deadline=None)
@given(days=st.lists(st.integers(*INT) | st.sampled_from(INT)))
def test_years_before_christ_count_on_as_the_calendar_does(days: list[int]) -> None:
    column = pa.array(days, pa.int32()).view(pa.date32())
    years = values_of(transform("year", None, column))
    months = values_of(transform("month", None, column))
    starts = np.array([1970 + one for one in years if isinstance(one, int)], dtype=np.int64)
    # 400 years are 146,097 days whatever the century: move each date into the years that Python knows.
    for day, year, month in zip(days, starts.tolist(), months, strict=True):
        cycles = (day + 719162) // 146097
        moved = date(1, 1, 1) + timedelta(days=(day + 719162) - cycles * 146097)
        assert year == moved.year + 400 * cycles
        assert month == (year - 1970) * 12 + moved.month - 1


@pytest.mark.parametrize("unit", ["year", "month", "day", "hour"])
def test_the_first_and_the_last_microsecond_have_a_partition(unit: str) -> None:
    column = pa.array([*LONG], pa.int64()).view(pa.timestamp("us"))
    first, last = values_of(transform(unit, None, column))
    expected = {
        "day": tuple(one // 86_400_000_000 for one in LONG),
        "hour": tuple((one // 3_600_000_000 + 2**31) % 2**32 - 2**31 for one in LONG),
        "year": (-292278, 292277),
        "month": ((-290308 - 1970) * 12 + 11, (294247 - 1970) * 12),
    }
    assert (first, last) == expected[unit]


def test_hashes_are_those_of_the_specification() -> None:
    """Appendix B of the Iceberg specification: hashes of some values of each type."""
    cases: list[tuple[pa.Array, int]] = [
        (pa.array([34], pa.int32()), 2017239379),
        (pa.array([34], pa.int64()), 2017239379),
        (pa.array([Decimal("14.20")], pa.decimal128(9, 2)), -500754589),
        (pa.array([17486], pa.int32()).view(pa.date32()), -653330422),
        (pa.array([81068000000]).view(pa.time64("us")), -662762989),
        (pa.array([1510871468000000]).view(pa.timestamp("us")), -2047944441),
        (pa.array(["iceberg"]), 1210000089),
        (pa.array([b"\x00\x01\x02\x03"], pa.binary()), -188683207),
        (pa.array([b"\x00\x01\x02\x03"], pa.binary(4)), -188683207),
    ]
    for column, hashed in cases:
        assert values_of(transform("bucket", 2**31 - 1, column)) == [(hashed & (2**31 - 1)) % (2**31 - 1)]


def test_a_long_text_among_short_ones_is_hashed_right() -> None:
    texts = ["", "a", "\u00e9" * 5000, "abcd", "abcdefg" * 999]
    column = pa.array(texts)
    expected = [BucketTransform(97).transform(StringType())(one) for one in texts]
    assert values_of(transform("bucket", 97, column)) == expected
    assert pc.max(transform("bucket", 97, column)).as_py() < 97
