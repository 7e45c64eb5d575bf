"""Warehouses at odd paths, tables of very many columns, tables that others renamed, expired or altered."""

from __future__ import annotations

import re
import sqlite3
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pytest
from pyiceberg.types import LongType

from lakeward.errors import ConfigError, LakewardError
from lakeward.model.results import CommitOutcome
from lakeward.model.tables import Change
from lakeward_lake_iceberg.lake import IcebergLake
from lakeward_lake_iceberg.options import IcebergOptions
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import (
    COLUMNS,
    PATH,
    TieringRound,
    head_of,
    incarnation,
    key_table,
    log_split,
    source_batch,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pyiceberg.catalog.sql import SqlCatalog

    from lakeward_lake_iceberg.plugin import IcebergLakePlugin

pytestmark = pytest.mark.slow


def tier(plugin: IcebergLakePlugin, lake: IcebergLake, number: int, schema: pa.Schema = COLUMNS) -> None:
    """Commit a round that writes key 0 and one of its own."""
    table = key_table(schema, bucket_key=())
    tiering = TieringRound(plugin, lake, table, incarnation(), number)
    rows = [dict.fromkeys(schema.names, f"{number}") | {"id": key} for key in (0, number)]
    batch = source_batch(schema, rows, changes=[Change.UPDATE_AFTER] * 2, start=number * 10)
    tiering.write(log_split(table), [batch])
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED


def names(lake: IcebergLake, column: str = "name") -> dict[int, str | None]:
    """Read the rows, and check what is said of their files."""
    snapshot = head_of(lake).snapshot_id or 0
    assert list(lake.check_files(PATH, snapshot, None)) == []
    return {row["id"]: row[column] for batch in lake.read_rows(PATH, snapshot) for row in batch.to_pylist()}


@pytest.mark.parametrize(
    "folder", ["a b", "100%", "%20", "[x]", "a+b", "é", "l" * 200, "a:b", "a&b=c;d", "'q\"", "tail "]
)
def test_a_warehouse_may_lie_at_any_path(plugin: IcebergLakePlugin, tmp_path: Path, folder: str) -> None:
    lake = plugin.open(IcebergOptions(warehouse=str(tmp_path / folder / "w")), FakeClock())
    assert isinstance(lake, IcebergLake)
    for number in (1, 2, 3):
        tier(plugin, lake, number)
    assert names(lake) == {0: "3", 1: "1", 2: "2", 3: "3"}
    lake.expire(PATH, frozenset())
    lake.close()
    assert {path.name for path in tmp_path.iterdir()} == {folder}
    assert [*(tmp_path / folder / "w").rglob("*.parquet")]


@pytest.mark.parametrize("folder", ["#1", "a?b"])
def test_a_warehouse_at_a_path_that_no_uri_can_name_is_refused(
    plugin: IcebergLakePlugin, tmp_path: Path, folder: str
) -> None:
    with pytest.raises(ConfigError, match=rf"lake\.warehouse: expected a path without .*{re.escape(folder)}"):
        plugin.open(IcebergOptions(warehouse=str(tmp_path / folder)), FakeClock())
    assert [*tmp_path.iterdir()] == []


def test_a_table_of_1500_columns_keeps_its_rows_over_rounds_with_deletes(
    plugin: IcebergLakePlugin, lake: IcebergLake
) -> None:
    wide = pa.schema([pa.field("id", pa.int64(), nullable=False), *((f"c{one}", pa.string()) for one in range(1500))])
    for number in (1, 2, 3):
        tier(plugin, lake, number, wide)
    assert names(lake, "c1499") == {0: "3", 1: "1", 2: "2", 3: "3"}


def test_rows_outlive_an_expiry_of_all_other_snapshots_between_two_rounds(
    plugin: IcebergLakePlugin, lake: IcebergLake, catalog: SqlCatalog
) -> None:
    for number in (1, 2, 3):
        tier(plugin, lake, number)
        table = catalog.load_table("shop.orders")
        now = table.metadata.current_snapshot_id
        old = [one.snapshot_id for one in table.snapshots() if one.snapshot_id != now]
        table.maintenance.expire_snapshots().by_ids(old).commit()
    assert names(lake) == {0: "3", 1: "1", 2: "2", 3: "3"}


def test_a_key_and_a_column_that_are_widened_between_rounds_are_updated_once(
    plugin: IcebergLakePlugin, lake: IcebergLake, catalog: SqlCatalog
) -> None:
    narrow = pa.schema([pa.field("id", pa.int32(), nullable=False), COLUMNS.field("name")])
    tier(plugin, lake, 1, narrow)
    tier(plugin, lake, 2, COLUMNS)
    tier(plugin, lake, 3, COLUMNS)
    assert catalog.load_table("shop.orders").schema().find_type("id") == LongType()
    assert names(lake) == {0: "3", 1: "1", 2: "2", 3: "3"}


def test_a_column_that_another_dropped_and_added_again_goes_on(
    plugin: IcebergLakePlugin, lake: IcebergLake, catalog: SqlCatalog
) -> None:
    tier(plugin, lake, 1)
    with catalog.load_table("shop.orders").update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("name")
    with catalog.load_table("shop.orders").update_schema() as update:
        kind = catalog.load_table("shop.orders").schemas()[0].find_type("name")
        update.add_column("name", kind)
    tier(plugin, lake, 2)
    assert names(lake) == {0: "2", 1: None, 2: "2"}


def test_a_table_that_was_renamed_and_back_again_goes_on(
    plugin: IcebergLakePlugin, lake: IcebergLake, catalog: SqlCatalog
) -> None:
    tier(plugin, lake, 1)
    catalog.rename_table("shop.orders", "shop.moved")
    assert lake.head(PATH) is None
    catalog.rename_table("shop.moved", "shop.orders")
    tier(plugin, lake, 2)
    assert names(lake) == {0: "2", 1: "1", 2: "2"}


def test_a_catalog_that_another_process_locks_is_waited_for(
    plugin: IcebergLakePlugin, lake: IcebergLake, options: IcebergOptions
) -> None:
    tier(plugin, lake, 1)
    with closing(sqlite3.connect(f"{options.warehouse}/catalog.db", check_same_thread=False)) as other:
        other.execute("BEGIN EXCLUSIVE")
        released = threading.Timer(2.0, other.rollback)
        released.start()
        tier(plugin, lake, 2)
        released.join()
    assert names(lake) == {0: "2", 1: "1", 2: "2"}


def test_a_catalog_that_stays_locked_is_an_error_with_words_and_the_next_round_goes_on(
    plugin: IcebergLakePlugin, options: IcebergOptions
) -> None:
    lake = plugin.open(msgspec.structs.replace(options, commit_timeout_s=0.5), FakeClock())
    assert isinstance(lake, IcebergLake)
    tier(plugin, lake, 1)
    with closing(sqlite3.connect(f"{options.warehouse}/catalog.db")) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(LakewardError, match="database is locked"):
            tier(plugin, lake, 2)
        other.rollback()
    tier(plugin, lake, 2)
    assert names(lake) == {0: "2", 1: "1", 2: "2"}
    lake.close()


@pytest.mark.parametrize("lock", ["IMMEDIATE", "EXCLUSIVE"])
def test_a_round_outlives_a_lock_that_lasts_longer_than_all_tries_of_its_commit(
    plugin: IcebergLakePlugin, options: IcebergOptions, lock: str
) -> None:
    """An immediate lock lets readers in: the swap fails, after manifests and metadata were written."""
    lake = plugin.open(msgspec.structs.replace(options, commit_timeout_s=0.05), FakeClock())
    assert isinstance(lake, IcebergLake)
    tier(plugin, lake, 1)
    tiering = TieringRound(plugin, lake, key_table(bucket_key=()), incarnation(), 2)
    rows = [{"id": key, "name": "2"} for key in (0, 2)]
    batch = source_batch(COLUMNS, rows, changes=[Change.UPDATE_AFTER] * 2, start=20)
    tiering.write(log_split(tiering.table), [batch])
    request = tiering.request()
    with closing(sqlite3.connect(f"{options.warehouse}/catalog.db")) as other:
        other.execute(f"BEGIN {lock}")
        for _ in range(5):
            with pytest.raises(LakewardError, match="database is locked"):
                lake.commit(request)
        other.rollback()
    assert lake.find(PATH, request.round_id, request.step) is None
    assert lake.commit(request) is CommitOutcome.LANDED
    assert names(lake) == {0: "2", 1: "1", 2: "2"}
    lake.close()
