"""Values of source and lake in one form: times are rounded down at every depth, and equal is equal to the bit."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakeward_ops.verify.values import cast_plain, plain_type, same_values

if TYPE_CHECKING:
    from collections.abc import Callable

FINE = [-1_001, -1_000, -1, None, 999, -(2**63) + 1]
ROUNDED = [-2, -1, -1, None, 0, -9223372036854776]
NESTED: dict[str, tuple[Callable[[pa.DataType], pa.DataType], Callable[[int | None], object]]] = {
    "alone": (lambda kind: kind, lambda at: at),
    "list": (pa.list_, lambda at: [at, at]),
    "large list": (pa.large_list, lambda at: [at]),
    "fixed list": (lambda kind: pa.list_(kind, 2), lambda at: [at, None]),
    "list of lists": (lambda kind: pa.list_(pa.list_(kind)), lambda at: [[at], None, []]),
    "row": (lambda kind: pa.struct([("a", pa.int32()), ("at", kind)]), lambda at: {"a": 1, "at": at}),
    "value": (lambda kind: pa.map_(pa.int64(), kind), lambda at: [(1, at), (2, None)]),
    "key": (lambda kind: pa.map_(kind, pa.int64()), lambda at: [(at or 0, 1)]),
    "rows in a map": (lambda kind: pa.map_(pa.string(), pa.struct([("at", kind)])), lambda at: [("a", {"at": at})]),
}


@pytest.mark.parametrize("start", [0, 3])
@pytest.mark.parametrize("name", NESTED)
def test_a_time_stays_as_it_is_where_the_lake_has_nanoseconds(name: str, start: int) -> None:
    type_of, value_of = NESTED[name]
    plain = plain_type(type_of(pa.timestamp("ns", "Nowhere/At_All")))
    fine = pa.array([None, *map(value_of, FINE), None], type_of(pa.timestamp("ns", "Nowhere/At_All")))
    found = cast_plain(fine.slice(start), plain)
    found.validate(full=True)
    numbers = pa.array([None, *map(value_of, FINE), None], type_of(pa.int64()))
    assert found.cast(plain_type(type_of(pa.int64()))).to_pylist() == numbers.slice(start).to_pylist()


def test_times_of_both_units_in_one_row_keep_theirs() -> None:
    lake = pa.struct([("fine", pa.timestamp("ns", "UTC")), ("coarse", pa.timestamp("us", "UTC"))])
    source = pa.array([{"fine": -1, "coarse": -1}], pa.struct([(one.name, pa.int64()) for one in lake]))
    kinds = pa.struct([(one.name, pa.timestamp("ns", "UTC")) for one in lake])
    found = cast_plain(source.cast(kinds), plain_type(lake))
    assert [found.field(place).cast(pa.int64()).to_pylist() for place in range(2)] == [[-1], [-1]]
    assert str(found.type) == "struct<fine: timestamp[ns], coarse: timestamp[us]>"


@pytest.mark.parametrize("start", [0, 3])
@pytest.mark.parametrize("name", NESTED)
def test_a_time_of_the_source_is_rounded_towards_the_past_at_every_depth(name: str, start: int) -> None:
    type_of, value_of = NESTED[name]
    plain = plain_type(type_of(pa.timestamp("us", "Nowhere/At_All")))
    fine = pa.array([None, *map(value_of, FINE), None], type_of(pa.timestamp("ns", "Nowhere/At_All")))
    found = cast_plain(fine.slice(start), plain)
    found.validate(full=True)
    assert found.equals(pa.array([None, *map(value_of, ROUNDED), None], plain).slice(start))


def test_a_key_that_is_finer_than_the_lake_is_not_rounded() -> None:
    fine = pa.array([1_000, 1_001], pa.timestamp("ns"))
    with pytest.raises(pa.ArrowInvalid, match="would lose data"):
        cast_plain(fine, pa.timestamp("us"), exact=True)
    assert cast_plain(fine[:1], pa.timestamp("us"), exact=True).cast(pa.int64()).to_pylist() == [1]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
@pytest.mark.parametrize(
    ("type_of", "value_of"),
    [
        (pa.large_list, lambda number: [number]),
        (lambda kind: pa.struct([("a", kind)]), lambda number: {"a": number}),
        (lambda kind: pa.map_(pa.int8(), kind), lambda number: [(1, number)]),
        (lambda kind: pa.map_(kind, pa.int8()), lambda number: [(number, 1)]),
        (lambda kind: kind, lambda number: number),
    ],
    ids=["list", "row", "value", "key", "alone"],
)
def test_zero_is_not_minus_zero_at_any_depth_and_nan_is_nan(
    kind: pa.DataType, type_of: Callable[[pa.DataType], pa.DataType], value_of: Callable[[float], object]
) -> None:
    one, other = ([0.0, -0.0, 0.0, float("nan")], [0.0, -0.0, -0.0, float("nan")])
    columns = [pa.array(map(value_of, numbers), type_of(kind)) for numbers in (one, other)]
    assert same_values(*columns).tolist() == [True, True, False, True]


def test_no_database_of_time_zones_is_needed() -> None:
    code = """
import sys
sys.modules["tzdata"] = None
import pyarrow as pa
from lakeward_ops.verify.values import cast_plain, plain_type, same_values, shown
for of in (lambda kind: kind, pa.list_, lambda kind: pa.struct([("a", kind)])):
    lake, source = (of(pa.timestamp(unit, tz="UTC")) for unit in ("us", "ns"))
    value = {"list": [1], "struct": {"a": 1}}.get(str(lake).partition("<")[0], 1)
    other = pa.array([value], of(pa.int64())).cast(lake)
    columns = [cast_plain(one, plain_type(lake)) for one in (other, pa.array([value], of(pa.int64())).cast(source))]
    assert not same_values(*columns)[0]
    assert "1970" in shown(columns[0][0])
"""
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONTZPATH": ""}, check=True, timeout=60)
