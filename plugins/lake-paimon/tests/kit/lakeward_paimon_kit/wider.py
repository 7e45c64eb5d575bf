"""A table whose columns have become wider in the source, and its rows of before and after."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakeward.model.results import CommitOutcome
from lakeward_testing.lake_tables import TieringRound, incarnation, key_table, log_split, log_table, source_batch

if TYPE_CHECKING:
    from lakeward.model.tables import TableSpec
    from lakeward.ports import Lake
    from lakeward_lake_paimon.plugin import PaimonLakePlugin

_ID = pa.field("id", pa.int64(), nullable=False)
NARROW = pa.schema(
    [
        _ID,
        ("tiny", pa.int8()),
        ("small", pa.int16()),
        ("whole", pa.int32()),
        ("real", pa.float32()),
        ("price", pa.decimal128(5, 2)),
        ("sum", pa.decimal128(18, 2)),
    ]
)
WIDE = pa.schema(
    [
        _ID,
        ("tiny", pa.int16()),
        ("small", pa.int64()),
        ("whole", pa.int64()),
        ("real", pa.float64()),
        ("price", pa.decimal128(12, 2)),
        ("sum", pa.decimal128(38, 2)),
    ]
)
_MERGED = {"num-sorted-run.compaction-trigger": "2"}
"""A compaction merges the files of two rounds."""
KINDS = ("BIGINT", "SMALLINT", "BIGINT", "BIGINT", "DOUBLE", "DECIMAL(12, 2)", "DECIMAL(38, 2)")
"""The lake's types of `WIDE`."""
OLD: dict[str, Any] = {
    "tiny": -7,
    "small": -300,
    "whole": 70_000,
    "real": 0.5,
    "price": Decimal("-1.25"),
    "sum": Decimal("12345678901234.56"),
}
NEW: dict[str, Any] = {
    "tiny": 300,
    "small": 1 << 40,
    "whole": -(1 << 40),
    "real": 0.1,
    "price": Decimal("1234567890.25"),
    "sum": Decimal("123456789012345678901234.56"),
}


def spec(schema: pa.Schema, *, key: bool) -> TableSpec:
    """Return the source's table with these columns."""
    make = key_table if key else log_table
    return make(schema, buckets=1, system_columns=False, lake_properties=_MERGED)


def tier(plugin: PaimonLakePlugin, lake: Lake, table: TableSpec, number: int, rows: list[dict[str, Any]]) -> None:
    """Write rows as inserts, and commit them."""
    tiering = TieringRound(plugin, lake, table, incarnation(), number)
    tiering.write(log_split(table), [source_batch(table.schema, rows, changes=[1] * len(rows), start=number * 100)])
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED


def widened(plugin: PaimonLakePlugin, lake: Lake, *, key: bool) -> list[dict[str, Any]]:
    """Commit rows before and after the types become wider; return those that are in the table."""
    tier(plugin, lake, spec(NARROW, key=key), 1, [{"id": 1, **OLD}, {"id": 2, **OLD}, {"id": 3}])
    tier(plugin, lake, spec(WIDE, key=key), 2, [{"id": 4, **NEW}, {"id": 5}])
    empty = dict.fromkeys(OLD)
    rows = [{"id": 1, **OLD}, {"id": 2, **OLD}, {"id": 3, **empty}, {"id": 4, **NEW}, {"id": 5, **empty}]
    if key:
        tier(plugin, lake, spec(WIDE, key=key), 3, [{"id": 2, **NEW}])
        rows[1] = {"id": 2, **NEW}
    return rows
