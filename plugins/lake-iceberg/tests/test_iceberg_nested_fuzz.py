"""Random nested tables: what is written, and merged, is what `lakeward verify` reads, to the bit, without false alarms.

`LAKEWARD_FUZZ_TABLES` says how many tables are tried.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest

from lakeward.model.tables import Change, TablePath, TableSpec
from lakeward_iceberg_kit.compacting import compact
from lakeward_ops.verify.values import cast_plain, plain_type, same_values
from lakeward_testing.lake_tables import TieringRound, head_of, incarnation, key_table, log_split, source_batch
from lakeward_testing.shapes import Shapes

if TYPE_CHECKING:
    from lakeward_lake_iceberg.lake import IcebergLake
    from lakeward_lake_iceberg.options import IcebergOptions
    from lakeward_lake_iceberg.plugin import IcebergLakePlugin

TABLES = int(os.environ.get("LAKEWARD_FUZZ_TABLES", "20"))


@pytest.fixture
def options(options: IcebergOptions) -> IcebergOptions:
    """A fresh warehouse, in which two files are merged at once."""
    return msgspec.structs.replace(options, compaction_files=2, compaction_quiet_s=0)


@pytest.mark.parametrize("seed", range(TABLES))
def test_a_random_nested_table_is_read_as_it_was_written_before_and_after_a_compaction(
    plugin: IcebergLakePlugin, lake: IcebergLake, seed: int
) -> None:
    shapes = Shapes(seed)
    schema, make = shapes.columns()
    table = key_table(schema, bucket_key=(), path=TablePath("shop", "orders"))
    expected: dict[int, dict[str, Any]] = {}
    for number in (1, 2):
        tiering = TieringRound(plugin, lake, table, incarnation(), number)
        keys = shapes.random.sample(range(30), 15)
        rows = [make(key) for key in keys]
        tiering.write(log_split(table), [source_batch(schema, rows, changes=[Change.UPDATE_AFTER] * len(rows))])
        lake.commit(tiering.request())
        expected |= {row["id"]: row for row in rows}
    check(lake, table, expected)
    assert compact(lake) == 1
    check(lake, table, expected)


def check(lake: IcebergLake, table: TableSpec, expected: dict[int, dict[str, Any]]) -> None:
    """Assert that the lake has these rows, by key, and says nothing wrong of its files."""
    schema = table.schema
    snapshot = head_of(lake).snapshot_id or 0
    assert list(lake.check_files(table.path, snapshot, None)) == []
    batches = list(lake.read_rows(table.path, snapshot))
    ids = [key for batch in batches for key in batch["id"].to_pylist()]
    assert sorted(ids) == sorted(expected)
    for name, kind in zip(schema.names[1:], schema.types[1:], strict=True):
        plain = plain_type(batches[0].schema.field(name).type)
        found = pa.concat_arrays([cast_plain(batch[name], plain) for batch in batches])
        source = cast_plain(pa.array([expected[key][name] for key in ids], kind), plain)
        assert same_values(source, found).all(), (name, kind)
