"""Timestamps of nanoseconds are rounded down to microseconds, at every depth and without a database of time zones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakeward.errors import RowError
from lakeward.model.lake_rows import RowConverter, cast_column
from lakeward_lake_iceberg.nanoseconds import to_microseconds
from lakeward_testing.lake_tables import log_table, source_batch

if TYPE_CHECKING:
    from collections.abc import Callable

FINE = [-1_001, -1_000, -999, -1, None, 0, 1, 999, 1_000, -(2**63) + 1, 2**63 - 1]
ROUNDED = [-2, -1, -1, -1, None, 0, 0, 0, 1, -9223372036854776, 9223372036854775]
NESTED: dict[str, tuple[Callable[[pa.DataType], pa.DataType], Callable[[int | None], object]]] = {
    "list": (pa.list_, lambda at: [at, 7_000]),
    "large list": (pa.large_list, lambda at: [at]),
    "fixed list": (lambda kind: pa.list_(kind, 2), lambda at: [at, None]),
    "list of lists": (lambda kind: pa.list_(pa.list_(kind)), lambda at: [[at], None, []]),
    "row": (lambda kind: pa.struct([("a", pa.int32()), ("at", kind)]), lambda at: {"a": 1, "at": at}),
    "row in a row": (lambda kind: pa.struct([("r", pa.struct([("at", kind)]))]), lambda at: {"r": {"at": at}}),
    "value": (lambda kind: pa.map_(pa.int64(), kind), lambda at: [(1, at), (2, None)]),
    "key": (lambda kind: pa.map_(kind, pa.int64()), lambda at: [(at or 0, 1)]),
    "rows in a map": (lambda kind: pa.map_(pa.string(), pa.struct([("at", kind)])), lambda at: [("a", {"at": at})]),
}


@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Kathmandu"])
def test_a_timestamp_is_rounded_towards_the_past(zone: str | None) -> None:
    fine = pa.array(FINE, pa.timestamp("ns", zone))
    assert cast_column(to_microseconds(fine), pa.timestamp("us", zone)).equals(
        pa.array(ROUNDED, pa.timestamp("us", zone))
    )


@pytest.mark.parametrize("start", [0, 4])
@pytest.mark.parametrize("name", NESTED)
def test_a_nested_timestamp_is_rounded_as_one_of_its_own(name: str, start: int) -> None:
    type_of, value_of = NESTED[name]
    fine = pa.array([None, *map(value_of, FINE), None], type_of(pa.timestamp("ns")))
    found = cast_column(to_microseconds(fine.slice(start)), type_of(pa.timestamp("us")))
    found.validate(full=True)
    values = [_rounded(value_of(at)) for at in ROUNDED]
    assert found.equals(pa.array([None, *values, None], type_of(pa.timestamp("us"))).slice(start))


def test_no_time_zone_is_looked_up() -> None:
    fine = pa.array([-1], pa.timestamp("ns", "Nowhere/At_All"))
    assert cast_column(to_microseconds(fine), pa.timestamp("us", "UTC")).equals(
        pa.array([-1], pa.timestamp("us", "UTC"))
    )


def _rounded(value: Any) -> Any:  # noqa: ANN401 - a nested value
    """Return the constant of `list` as it is in microseconds."""
    return [7 if one == 7_000 else one for one in value] if isinstance(value, list) else value


def test_a_time_that_neither_the_lake_nor_python_can_hold_is_named() -> None:
    at = pa.schema([pa.field("at", pa.timestamp("s", "UTC"))])
    batch = source_batch(at, [{"at": 0}, {"at": 2**62}], start=8).records
    converter = RowConverter(
        log_table(at), pa.schema([pa.field("at", pa.timestamp("us", "UTC"))]), None, coarsen=to_microseconds
    )
    batch = batch.append_column("__bucket", pa.array([3, 3]))
    with pytest.raises(RowError, match=r"bucket 3, offset 9, column 'at': expected a value of type timestamp\[us"):
        converter.convert(batch)
