"""A key of any type: rows are replaced, deleted and compacted by it. One that was widened is the same key."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakeward.errors import RowError
from lakeward.model.results import CommitOutcome
from lakeward.model.tables import Change
from lakeward_paimon_kit.altering import alter
from lakeward_paimon_kit.upkeep import compact
from lakeward_testing.lake_tables import (
    PATH,
    TieringRound,
    head_of,
    incarnation,
    key_table,
    log_split,
    snapshot_split,
    source_batch,
)

if TYPE_CHECKING:
    from lakeward.model.tables import TableSpec
    from lakeward_lake_paimon.lake import PaimonLake
    from lakeward_lake_paimon.options import PaimonOptions
    from lakeward_lake_paimon.plugin import PaimonLakePlugin
    from lakeward_paimon_kit.reader import PythonReader

DAY = dt.date(2026, 1, 1)
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
OLD = dt.datetime(1969, 1, 1, tzinfo=dt.UTC)
KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [False, True]),
    "tinyint": (pa.int8(), [-1, 0, 1]),
    "smallint": (pa.int16(), [-300, 7]),
    "int": (pa.int32(), [-1, 70_000]),
    "bigint": (pa.int64(), [-(2**63), -1, 1 << 40]),
    "decimal": (pa.decimal128(20, 2), [Decimal("-1.25"), Decimal("99999999.99")]),
    "string": (pa.string(), ["", "z", "é", "\uffff", "\U00010000"]),
    "bytes": (pa.binary(), [b"", b"\x7f", b"\xff\x00"]),
    "binary": (pa.binary(2), [b"\x00\x01", b"\xff\xff"]),
    "date": (pa.date32(), [dt.date(1969, 12, 31), DAY]),
    "time": (pa.time32("ms"), [dt.time(0), dt.time(23, 59, 59, 999_000)]),
    "timestamp": (pa.timestamp("us"), [OLD.replace(tzinfo=None), NOON.replace(tzinfo=None)]),
    "timestamp_ltz": (pa.timestamp("us", tz="UTC"), [OLD, NOON]),
}


def tier(plugin: PaimonLakePlugin, lake: PaimonLake, table: TableSpec, number: int, *changes: Any) -> None:  # noqa: ANN401 - pairs
    """Commit changes of bucket 0: pairs of a change and a row."""
    tiering = TieringRound(plugin, lake, table, incarnation(), number)
    rows, kinds = [row for _, row in changes], [kind for kind, _ in changes]
    tiering.write(log_split(table), [source_batch(tiering.table.schema, rows, changes=kinds)])
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED


def rows_of(lake: PaimonLake) -> list[dict[str, Any]]:
    """Return the rows of the head, whose files are what is said of them."""
    snapshot = head_of(lake).snapshot_id or 0
    assert list(lake.check_files(PATH, snapshot, None)) == []
    return [row for batch in lake.read_rows(PATH, snapshot) for row in batch.to_pylist()]


def round_trip(
    plugin: PaimonLakePlugin, lake: PaimonLake, keys: dict[str, tuple[pa.DataType, list[Any]]]
) -> list[dict[str, Any]]:
    """Tier rows of each key in some rounds, change the first, delete the last; return what has to be there."""
    fields = [pa.field(name, kind, nullable=False) for name, (kind, _) in keys.items()]
    schema = pa.schema([*fields, pa.field("value", pa.string())])
    table = key_table(schema, primary_key=tuple(keys), bucket_key=tuple(keys), buckets=1, system_columns=False)
    many = max(len(values) for _, values in keys.values())
    rows = [{name: values[row % len(values)] for name, (_, values) in keys.items()} for row in range(many)]
    for number in range(1, 5):
        tier(
            plugin, lake, table, number, *((Change.INSERT, row | {"value": f"old {number}"}) for row in reversed(rows))
        )
    tier(plugin, lake, table, 5, (Change.UPDATE_AFTER, rows[0] | {"value": "new"}), (Change.DELETE, rows[-1]))
    return [rows[0] | {"value": "new"}, *(row | {"value": "old 4"} for row in rows[1:-1])]


@pytest.mark.parametrize("kind", KEYS)
def test_a_key_of_any_type_is_upserted_and_compacted(
    plugin: PaimonLakePlugin, lake: PaimonLake, options: PaimonOptions, python_reader: PythonReader, kind: str
) -> None:
    expected = round_trip(plugin, lake, {kind: KEYS[kind]})
    assert rows_of(lake) == expected
    assert compact(plugin, lake) == 1
    assert rows_of(lake) == expected
    if kind != "time":  # pypaimon 2.1.0 reads no times
        found = python_reader.rows(options.warehouse, str(PATH)).cast(
            pa.schema(
                [pa.field(kind, pa.binary() if kind == "binary" else KEYS[kind][0]), pa.field("value", pa.string())]
            )
        )
        assert sorted(found.to_pylist(), key=str) == sorted(expected, key=str)


def test_a_key_of_many_columns_is_upserted_and_compacted(plugin: PaimonLakePlugin, lake: PaimonLake) -> None:
    expected = sorted(round_trip(plugin, lake, KEYS), key=str)
    assert sorted(rows_of(lake), key=str) == expected
    compact(plugin, lake)
    assert sorted(rows_of(lake), key=str) == expected


def test_a_key_that_another_engine_widened_is_the_same_key_in_files_of_before(
    plugin: PaimonLakePlugin, lake: PaimonLake, options: PaimonOptions
) -> None:
    schema = pa.schema([pa.field("k", pa.int32(), nullable=False), pa.field("v", pa.string())])
    table = key_table(schema, primary_key=("k",), bucket_key=("k",), buckets=1, system_columns=False)
    ids = range(-3, 3)
    for number in range(1, 6):
        tier(plugin, lake, table, number, *((Change.INSERT, {"k": one, "v": f"old {number}"}) for one in ids))
    compact(plugin, lake)  # a run of its own, whose keys are in the manifest as they were
    folder = Path(options.warehouse) / "shop.db" / "orders"
    alter(folder, lambda fields: [one | {"type": "BIGINT NOT NULL"} if one["name"] == "k" else one for one in fields])
    tier(plugin, lake, table, 6, (Change.UPDATE_AFTER, {"k": -3, "v": "new"}), (Change.DELETE, {"k": 2}))
    expected = [{"k": -3, "v": "new"}, *({"k": one, "v": "old 5"} for one in range(-2, 2))]
    assert rows_of(lake) == expected
    for number in range(7, 11):
        tier(plugin, lake, table, number, (Change.UPDATE_AFTER, {"k": 1, "v": "old 5"}))
    assert compact(plugin, lake)
    assert rows_of(lake) == expected


@pytest.mark.parametrize("snapshot", [True, False], ids=["snapshot", "log"])
@pytest.mark.parametrize("kind", [pa.timestamp("ns"), pa.timestamp("ns", "UTC"), pa.time64("us")], ids=str)
def test_a_row_whose_key_would_lose_digits_is_refused(
    plugin: PaimonLakePlugin, lake: PaimonLake, kind: pa.DataType, *, snapshot: bool
) -> None:
    is_time = pa.types.is_time(kind)
    coarse = pa.time32("ms") if is_time else pa.timestamp("us", kind.tz)
    opened, finer = (
        key_table(
            pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("at", one, nullable=False)]),
            primary_key=("id", "at"),
            bucket_key=("id",),
            buckets=1,
        )
        for one in (coarse, kind)
    )
    tiering = TieringRound(plugin, lake, opened, incarnation())
    tiering.table = replace(opened, schema=finer.schema)
    split = snapshot_split(opened) if snapshot else log_split(opened)
    rows = [{"id": 1, "at": at} for at in (1_000, 1_001)]
    changes = None if snapshot else [Change.INSERT] * 2
    batch = source_batch(tiering.table.schema, rows, changes=changes, snapshot=snapshot)
    with pytest.raises(RowError, match=r"column 'at': expected a value of type "):
        tiering.write(split, [batch])
