"""A key that is finer than the lake's microseconds is refused on every path: two keys never become one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakeward.errors import RowError, SchemaMismatchError
from lakeward.model.tables import PRECISION, Change
from lakeward_testing.lake_tables import (
    TieringRound,
    incarnation,
    key_table,
    log_split,
    snapshot_split,
    source_batch,
)

if TYPE_CHECKING:
    from lakeward.model.tables import TableSpec
    from lakeward_lake_iceberg.lake import IcebergLake
    from lakeward_lake_iceberg.plugin import IcebergLakePlugin

FINE = {
    "timestamp": pa.field("at", pa.timestamp("ns")),
    "timestamp_ltz": pa.field("at", pa.timestamp("ns", "UTC")),
    "time": pa.field("at", pa.time64("ns")),
    "cut by the source": pa.field("at", pa.timestamp("us"), metadata={PRECISION: b"9"}),
    "dictionary": pa.field("at", pa.dictionary(pa.int32(), pa.timestamp("ns"))),
}


def keyed_by(field: pa.Field) -> TableSpec:
    """Return a table with a key of two columns."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), field.with_nullable(False)])
    return key_table(schema, primary_key=("id", "at"), bucket_key=("id",))


@pytest.mark.parametrize("name", FINE)
def test_a_table_with_a_key_finer_than_a_microsecond_is_refused(lake: IcebergLake, name: str) -> None:
    table = keyed_by(FINE[name])
    for refuse in (lambda: lake.check_schema(table), lambda: lake.open_table(table, incarnation())):
        with pytest.raises(
            SchemaMismatchError, match=r"shop\.orders: key column 'at': expected .* 6 digits.* 9 digits"
        ):
            refuse()
    assert lake.head(table.path) is None


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_a_key_that_the_lake_holds_whole_is_allowed(lake: IcebergLake, unit: str) -> None:
    lake.check_schema(keyed_by(pa.field("at", pa.timestamp(unit))))


@pytest.mark.parametrize("snapshot", [True, False], ids=["snapshot", "log"])
@pytest.mark.parametrize("kind", [pa.timestamp("ns"), pa.timestamp("ns", "UTC"), pa.time64("ns")], ids=str)
def test_a_row_whose_key_would_lose_digits_is_refused(
    plugin: IcebergLakePlugin, lake: IcebergLake, kind: pa.DataType, *, snapshot: bool
) -> None:
    micros = pa.time64("us") if pa.types.is_time(kind) else pa.timestamp("us", kind.tz)
    opened = keyed_by(pa.field("at", micros))
    tiering = TieringRound(plugin, lake, opened, incarnation())
    tiering.table = replace(opened, schema=keyed_by(pa.field("at", kind)).schema)
    split = snapshot_split(opened) if snapshot else log_split(opened)
    rows = [{"id": 1, "at": at} for at in (1_000, 1_001)]
    changes = None if snapshot else [Change.INSERT] * 2
    batch = source_batch(tiering.table.schema, rows, changes=changes, snapshot=snapshot)
    with pytest.raises(RowError, match=r"column 'at': expected a value of type .*, found '1001 nanoseconds'"):
        tiering.write(split, [batch])
