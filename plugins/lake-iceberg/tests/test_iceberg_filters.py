"""Bounds and counts are right: a filter that prunes by them finds what a filter without them finds."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.types import DecimalType, IntegerType, LongType, StringType

from lakeward_lake_iceberg.bounds import lower_bound, range_of, upper_bound
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import PATH, TieringRound, incarnation, log_split, log_table, source_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyiceberg.catalog.sql import SqlCatalog

    from lakeward_lake_iceberg.options import IcebergOptions
    from lakeward_lake_iceberg.plugin import IcebergLakePlugin

UTC = dt.UTC
SCHEMA = pa.schema(
    [
        pa.field("i8", pa.int8()),
        pa.field("i32", pa.int32()),
        pa.field("i64", pa.int64()),
        pa.field("f32", pa.float32()),
        pa.field("f64", pa.float64()),
        pa.field("flag", pa.bool_()),
        pa.field("text", pa.string()),
        pa.field("raw", pa.binary()),
        pa.field("fixed", pa.binary(3)),
        pa.field("small", pa.decimal128(8, 2)),
        pa.field("large", pa.decimal128(30, 4)),
        pa.field("day", pa.date32()),
        pa.field("clock", pa.time32("ms")),
        pa.field("local", pa.timestamp("ms")),
        pa.field("instant", pa.timestamp("us", tz="UTC")),
        pa.field("fine", pa.timestamp("ns")),
    ]
)
LONG = "ä" * 20
MONDAY = dt.datetime(1969, 12, 29, 12, 30, 15, 250_000)  # noqa: DTZ001 - a column without a zone
FILTERS = [
    "i8 = -5",
    "i8 > 6",
    "i32 < -1000000",
    "i64 >= 9000000000",
    "f32 < 0",
    "f64 > 100",
    "flag",
    "text = 'b'",
    f"text >= '{LONG}'",
    "text > 'zz'",
    "raw = '\\xFF\\xFF'::BLOB",
    "fixed = 'xyz'::BLOB",
    "small < -1",
    "small = 12.5",
    "large > 99999999999999999999",
    "large < -5",
    "day < DATE '1970-01-01'",
    "clock > TIME '12:00:00'",
    "local < TIMESTAMP '1970-01-01'",
    "instant = TIMESTAMPTZ '2026-01-02 00:00:00+00'",
    "fine < TIMESTAMP '1970-01-01'",
    "text IS NULL",
    "i64 IS NOT NULL",
    '"__bucket" = 1',
    '"__offset" BETWEEN 2 AND 3',
]
LIBRARY_FILTERS = [
    "i8 == -5",
    "i32 < -1000000",
    "f64 > 100",
    "text == 'b'",
    f"text >= '{LONG}'",
    "small < -1",
    "day < '1970-01-01'",
    "text is null",
    "`__bucket` == 1",
]


def _rows() -> list[list[dict[str, object]]]:
    low = {
        "i8": -5, "i32": -2_000_000, "i64": -1, "f32": -1.5, "f64": -2.5, "flag": False, "text": "a", "raw": b"\x01",
        "fixed": b"abc", "small": decimal.Decimal("-12.50"), "large": decimal.Decimal("-99999999999999999999.5"),
        "day": dt.date(1969, 12, 29), "clock": dt.time(1, 2, 3, 4000), "local": MONDAY,
        "instant": MONDAY.replace(tzinfo=UTC), "fine": MONDAY,
    }  # fmt: skip
    high = {
        "i8": 7, "i32": 2_000_000, "i64": 9_000_000_000, "f32": 1.5, "f64": float("inf"), "flag": True, "text": LONG,
        "raw": b"\xff" * 20, "fixed": b"xyz", "small": decimal.Decimal("12.50"),
        "large": decimal.Decimal(100000000000000000000), "day": dt.date(2026, 1, 2),
        "clock": dt.time(13, 2, 3), "local": dt.datetime(2026, 1, 2),  # noqa: DTZ001 - as above
        "instant": dt.datetime(2026, 1, 2, tzinfo=UTC), "fine": dt.datetime(2026, 1, 2),  # noqa: DTZ001
    }  # fmt: skip
    odd = {"text": "b", "raw": b"\xff\xff", "f64": float("nan"), "f32": float("nan")}
    return [[low, low], [high, {}], [{}, {}], [odd, {"text": LONG + "z", "f64": 1.0}]]


@pytest.fixture
def tiered(plugin: IcebergLakePlugin, options: IcebergOptions) -> Iterator[None]:
    """A table of four files, each with values of its own."""
    lake = plugin.open(options, FakeClock())
    tiering = TieringRound(plugin, lake, log_table(SCHEMA), incarnation())
    for bucket, rows in enumerate(_rows()):
        tiering.write(log_split(tiering.table, bucket % 2), [source_batch(SCHEMA, rows, start=2 * bucket)])
    lake.commit(tiering.request())
    yield
    lake.close()


@pytest.mark.usefixtures("tiered")
def test_duckdb_finds_the_same_rows_with_and_without_pruning(query: Callable[..., pa.Table]) -> None:
    duckdb = pytest.importorskip("duckdb")
    everything = query(PATH)
    for where in FILTERS:
        with duckdb.connect() as connection:
            connection.register("everything", everything)
            expected = connection.execute(f"SELECT __offset FROM everything WHERE {where}").fetchall()  # noqa: S608 - a test's own text
        found = query(PATH, where).column("__offset").to_pylist()
        assert sorted(found) == sorted(row[0] for row in expected), where


@pytest.mark.usefixtures("tiered")
def test_every_filter_of_the_test_finds_something_and_not_everything(query: Callable[..., pa.Table]) -> None:
    counts = {where: query(PATH, where).num_rows for where in FILTERS}
    assert not [where for where, count in counts.items() if not 0 < count < 8]


@pytest.mark.usefixtures("tiered")
def test_pyiceberg_finds_the_same_rows_with_and_without_pruning(
    query: Callable[..., pa.Table], catalog: SqlCatalog
) -> None:
    table = catalog.load_table("shop.orders")
    for where in LIBRARY_FILTERS:
        sql = where.replace("==", "=").replace("`", '"')
        found = table.scan(row_filter=where.replace("`", "")).to_arrow().column("__offset").to_pylist()
        assert sorted(found) == sorted(query(PATH, sql).column("__offset").to_pylist()), where


@pytest.mark.usefixtures("tiered")
def test_times_finer_than_a_microsecond_are_cut_towards_the_past(
    plugin: IcebergLakePlugin, options: IcebergOptions, query: Callable[..., pa.Table]
) -> None:
    lake = plugin.open(options, FakeClock())
    tiering = TieringRound(plugin, lake, log_table(SCHEMA), incarnation(), 2)
    batch = source_batch(SCHEMA, [{}], start=100)
    position = batch.records.schema.get_field_index("fine")
    records = batch.records.set_column(position, "fine", pa.array([-1], pa.timestamp("ns")))
    tiering.write(log_split(tiering.table), [type(batch)(records, 101)])
    lake.commit(tiering.request())
    lake.close()
    rows = query(PATH, '"__offset" = 100')
    assert rows.column("fine").cast(pa.int64()).to_pylist() == [-1]


def test_bounds_are_the_bytes_that_pyiceberg_writes() -> None:
    assert lower_bound("int", -3) == to_bytes(IntegerType(), -3)
    assert upper_bound("long", 2**40) == to_bytes(LongType(), 2**40)
    assert lower_bound("string", b"short") == to_bytes(StringType(), "short")
    for number in (0, 1, -1, 127, 128, -128, -129, 255, 10**20, -(10**20)):
        raw = number.to_bytes(16, "big", signed=True)
        exact = decimal.Decimal(number).scaleb(-2)
        assert from_bytes(DecimalType(38, 2), lower_bound("decimal(38, 2)", raw) or b"") == exact
        assert lower_bound("decimal(38, 2)", raw) == to_bytes(DecimalType(38, 2), exact)


@pytest.mark.parametrize("text", ["a" * 30, "ä" * 17, "\ud7ff" * 20, "a" * 15 + "\U0010ffff" * 3, "z" * 16])
def test_a_cut_text_bound_still_bounds(text: str) -> None:
    raw = text.encode("utf-8")
    lower, upper = lower_bound("string", raw), upper_bound("string", raw)
    assert lower is not None
    assert upper is not None
    assert lower <= raw <= upper
    assert len(upper.decode("utf-8")) <= 16


def test_a_text_that_cannot_be_raised_has_no_upper_bound() -> None:
    assert upper_bound("string", ("\U0010ffff" * 17).encode("utf-8")) is None
    assert upper_bound("binary", b"\xff" * 17) is None


@pytest.mark.parametrize("value", [0, -1, 2**31 - 1, -(2**31)])
def test_a_bound_written_before_a_column_was_widened_still_compares(value: int) -> None:
    bound = lower_bound("int", value)
    assert range_of("long", bound, bound) == (value, value)


@pytest.mark.parametrize("kind", ["int", "date", "long", "time", "timestamp", "timestamptz"])
@pytest.mark.parametrize("width", [1, 3, 5, 7, 9, 16])
def test_a_bound_of_a_wrong_width_is_unknown(kind: str, width: int) -> None:
    assert range_of(kind, bytes(width), bytes(width)) is None
