"""A mirrored table may have any key: its lake table is partitioned by the source's bucket, whatever that hashes."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakeward.model.results import CommitOutcome
from lakeward.model.tables import Change
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import PATH, TieringRound, incarnation, key_table, log_split, source_batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyiceberg.catalog.sql import SqlCatalog

    from lakeward_lake_iceberg.options import IcebergOptions
    from lakeward_lake_iceberg.plugin import IcebergLakePlugin

DAY = dt.date(2026, 1, 1)
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [False, True]),
    "tinyint": (pa.int8(), [-1, 0, 1]),
    "smallint": (pa.int16(), [-300, 7]),
    "int": (pa.int32(), [-1, 70_000]),
    "bigint": (pa.int64(), [-1, 1 << 40]),
    "decimal": (pa.decimal128(20, 2), [Decimal("-1.25"), Decimal("99999999.99")]),
    "string": (pa.string(), ["", "é", "z"]),
    "bytes": (pa.binary(), [b"", b"\xff\x00"]),
    "binary": (pa.binary(2), [b"\x00\x01", b"\xff\xff"]),
    "date": (pa.date32(), [DAY, dt.date(1969, 12, 31)]),
    "time": (pa.time64("us"), [dt.time(0), dt.time(23, 59, 59, 999_999)]),
    "timestamp": (pa.timestamp("us"), [NOON.replace(tzinfo=None), dt.datetime(1969, 1, 1)]),  # noqa: DTZ001 - without a zone
    "timestamp_ltz": (pa.timestamp("us", tz="UTC"), [NOON, dt.datetime(1969, 1, 1, tzinfo=dt.UTC)]),
}


def round_trip(
    plugin: IcebergLakePlugin, options: IcebergOptions, keys: dict[str, tuple[pa.DataType, list[Any]]]
) -> list[dict[str, Any]]:
    """Tier rows of each key, change the first, delete the last in a round of its own; return what has to be there."""
    fields = [pa.field(name, kind, nullable=False) for name, (kind, _) in keys.items()]
    schema = pa.schema([*fields, pa.field("value", pa.string())])
    table = key_table(schema, primary_key=tuple(keys), bucket_key=(), buckets=3)
    lake = plugin.open(options, FakeClock())
    many = max(len(values) for _, values in keys.values())
    rows = [{name: values[row % len(values)] for name, (_, values) in keys.items()} for row in range(many)]
    steps = [
        source_batch(schema, [row | {"value": "old"} for row in rows], changes=[Change.INSERT] * many),
        source_batch(
            schema,
            [rows[0] | {"value": "new"}, rows[-1]],
            changes=[Change.UPDATE_AFTER, Change.DELETE],
            start=many,
        ),
    ]
    for number, batch in enumerate(steps, start=1):
        tiering = TieringRound(plugin, lake, table, incarnation(), number)
        tiering.write(log_split(table, bucket=2), [batch])
        assert lake.commit(tiering.request()) is CommitOutcome.LANDED
    lake.close()
    return [rows[0] | {"value": "new"}, *(row | {"value": "old"} for row in rows[1:-1])]


@pytest.mark.parametrize("kind", KEYS)
def test_a_key_of_any_type_is_upserted(
    plugin: IcebergLakePlugin, options: IcebergOptions, read_table: Callable[..., pa.Table], kind: str
) -> None:
    expected = round_trip(plugin, options, {kind: KEYS[kind]})
    found = read_table(PATH).select([kind, "value"]).to_pylist()
    assert sorted(found, key=str) == sorted(expected, key=str)


def test_a_key_of_many_columns_is_upserted_and_partitioned_by_the_sources_bucket(
    plugin: IcebergLakePlugin, options: IcebergOptions, read_table: Callable[..., pa.Table], catalog: SqlCatalog
) -> None:
    expected = round_trip(plugin, options, KEYS)
    found = read_table(PATH).select([*KEYS, "value"]).to_pylist()
    assert sorted(found, key=str) == sorted(expected, key=str)
    table = catalog.load_table((PATH.database, PATH.table))
    assert [(field.name, str(field.transform)) for field in table.spec().fields] == [("__bucket", "identity")]
