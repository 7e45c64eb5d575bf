"""Lake tables without `__bucket`, `__offset` and `__timestamp`, which Fluss makes since 1.0 (FIP-27)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import AddSortOrderUpdate, SetDefaultSortOrderUpdate
from pyiceberg.types import IntegerType

from lakeward.errors import SchemaMismatchError
from lakeward.model.results import CommitOutcome
from lakeward.model.tables import Change
from lakeward_iceberg_kit.clean import DAILY, create_as_fluss
from lakeward_iceberg_kit.partitioned import EVENTS, World, layout
from lakeward_lake_iceberg.layout import SORTED
from lakeward_testing.lake_tables import (
    COLUMNS,
    PATH,
    TieringRound,
    head_of,
    incarnation,
    key_table,
    log_split,
    log_table,
    snapshot_split,
    source_batch,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyiceberg.catalog.sql import SqlCatalog

    from lakeward.model.tables import TableSpec
    from lakeward.ports import Lake
    from lakeward_lake_iceberg.lake import IcebergLake
    from lakeward_lake_iceberg.plugin import IcebergLakePlugin

SYSTEM = ("__bucket", "__offset", "__timestamp")
DAILY_LOG = log_table(DAILY, partition_keys=("day",), union_read=True)
DAILY_KEYED = key_table(DAILY, primary_key=("id", "day"), partition_keys=("day",), union_read=True)
KINDS = {
    "log": replace(log_table(), union_read=True),
    "log by key": log_table(bucket_key=("id",), union_read=True),
    "log by day": DAILY_LOG,
    "log by day and key": replace(DAILY_LOG, bucket_key=("id",)),
    "keyed": key_table(union_read=True),
    "keyed by day": DAILY_KEYED,
}
DIVIDED = {
    "log": [],
    "log by key": ["id_bucket"],
    "log by day": ["day"],
    "log by day and key": ["day", "id_bucket"],
    "keyed": ["id_bucket"],
    "keyed by day": ["day", "id_bucket"],
}


@pytest.fixture
def tier(plugin: IcebergLakePlugin, lake: Lake) -> Callable[..., TieringRound]:
    """Commit one round: `{bucket: {id: name}}`, where a name of None deletes a key."""

    def run(table: TableSpec, number: int, rows: dict[int, dict[int, str | None]]) -> TieringRound:
        tiering = TieringRound(plugin, lake, table, incarnation(), number)
        for bucket, named in rows.items():
            for day in ("mon", "tue") if table.partition_keys else ("",):
                split = log_split(table, bucket, (day,) if day else (), number)
                found = [{"id": one, "name": name, "day": day} for one, name in named.items()]
                changes = [Change.DELETE if name is None else Change.UPDATE_AFTER for name in named.values()]
                given = changes if table.has_primary_key else None
                tiering.write(split, [source_batch(table.schema, found, changes=given, start=100 * number)])
        assert lake.commit(tiering.request()) is CommitOutcome.LANDED
        return tiering

    return run


def named(table: pa.Table) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in table.select(["id", "name"]).to_pylist())


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_as_fluss_makes_it_is_tiered_and_stays_as_it_is(
    kind: str,
    tier: Callable[..., TieringRound],
    catalog: SqlCatalog,
    query: Callable[..., pa.Table],
    lake: IcebergLake,
) -> None:
    table = KINDS[kind]
    create_as_fluss(catalog, table)
    before = catalog.load_table("shop.orders")
    tier(table, 1, {0: {1: "a", 2: "b"}, 1: {3: "c"}})  # by Iceberg's hash, 3 and 5 are in bucket 1 of 2
    tier(table, 2, {0: {1: "new"}, 1: {3: None} if table.has_primary_key else {5: "d"}})
    days = 2 if table.partition_keys else 1
    expected = [(1, "a"), (1, "new"), (2, "b"), (3, "c"), (5, "d")]
    if table.has_primary_key:
        expected = [(1, "new"), (2, "b")]
    after = catalog.load_table("shop.orders")
    assert named(query(PATH)) == named(after.scan().to_arrow()) == sorted(expected * days)
    assert (after.schema(), after.spec(), after.sort_order()) == (before.schema(), before.spec(), before.sort_order())
    assert query(PATH).column_names == table.schema.names
    assert [field.name for field in after.spec().fields] == DIVIDED[kind]
    snapshot = head_of(lake).snapshot_id
    assert snapshot is not None
    assert list(lake.check_files(PATH, snapshot, None)) == []
    if table.partition_keys:
        assert named(query(PATH, "day = 'mon'")) == expected


def test_a_mirror_without_system_columns_is_made_so_and_keeps_its_kind(
    tier: Callable[..., TieringRound], catalog: SqlCatalog, query: Callable[..., pa.Table]
) -> None:
    table = log_table(system_columns=False)
    tier(table, 1, {0: {1: "a"}, 1: {2: "b"}})
    tier(replace(table, system_columns=None), 2, {1: {3: "c"}})  # the key was taken out of the file
    made = catalog.load_table("shop.orders")
    assert made.spec().is_unpartitioned()
    assert made.sort_order().is_unsorted
    assert query(PATH).column_names == ["id", "name"]
    assert named(query(PATH)) == [(1, "a"), (2, "b"), (3, "c")]


@pytest.mark.parametrize("made", [True, False])
def test_a_table_of_the_other_kind_than_the_configuration_asks_for_is_refused(lake: Lake, *, made: bool) -> None:
    lake.open_table(log_table(system_columns=made), incarnation())
    words = rf'tables."shop.orders".system_columns: expected {str(made).lower()} or no such key.* set this one aside'
    with pytest.raises(SchemaMismatchError, match=words):
        lake.open_table(log_table(system_columns=not made), incarnation())
    lake.open_table(log_table(), incarnation())


def test_a_key_table_without_bucket_in_the_lake_has_each_key_once(
    tier: Callable[..., TieringRound], query: Callable[..., pa.Table], lake: IcebergLake
) -> None:
    """The rows of all buckets lie in one partition; the writers of two buckets delete rows of one file."""
    table = replace(key_table(), bucket_key=(), system_columns=False)
    tier(table, 1, {0: dict.fromkeys(range(0, 20, 2), "old"), 1: dict.fromkeys(range(1, 20, 2), "old")})
    tier(table, 2, {0: {0: "new", 2: None}, 1: {1: "new", 3: None}})
    tier(table, 3, {0: {0: "newer"}, 1: {3: "back"}})
    expected = {0: "newer", 1: "new", 3: "back"} | dict.fromkeys(range(4, 20), "old")
    assert named(query(PATH)) == sorted(expected.items())
    snapshot = head_of(lake).snapshot_id
    assert snapshot is not None
    assert list(lake.check_files(PATH, snapshot, None)) == []


def test_the_log_after_a_kv_snapshot_replaces_its_rows(
    plugin: IcebergLakePlugin, lake: Lake, catalog: SqlCatalog, query: Callable[..., pa.Table]
) -> None:
    """No offset of a lake row says that it came from a snapshot; its key is all that is needed."""
    table = KINDS["keyed"]
    create_as_fluss(catalog, table)
    tiering = TieringRound(plugin, lake, table, incarnation(), 1)
    rows = [{"id": number, "name": "s"} for number in range(5)]
    tiering.write(snapshot_split(table), [source_batch(COLUMNS, rows, snapshot=True, start=7)])
    lake.commit(tiering.request())
    second = TieringRound(plugin, lake, table, incarnation(), 2)
    changes = [Change.DELETE, Change.UPDATE_AFTER]
    batch = source_batch(COLUMNS, [{"id": 0}, {"id": 1, "name": "l"}], changes=changes, start=100)
    second.write(log_split(table), [batch])
    lake.commit(second.request())
    assert named(query(PATH)) == [(1, "l"), (2, "s"), (3, "s"), (4, "s")]


def test_a_new_column_comes_last(tier: Callable[..., TieringRound], catalog: SqlCatalog) -> None:
    table = KINDS["log"]
    create_as_fluss(catalog, table)
    tier(replace(table, schema=COLUMNS.append(pa.field("more", pa.int32()))), 1, {0: {1: "a"}})
    assert [field.name for field in catalog.load_table("shop.orders").schema().fields] == ["id", "name", "more"]


def test_a_table_whose_system_columns_somebody_dropped_is_not_one_that_never_had_them(
    tier: Callable[..., TieringRound], lake: Lake, catalog: SqlCatalog
) -> None:
    table = log_table(bucket_key=("id",))
    tier(table, 1, {0: {1: "a"}})
    made = catalog.load_table("shop.orders")
    unsorted = SetDefaultSortOrderUpdate.model_validate({"sort-order-id": 0})
    catalog.commit_table(made, (), (AddSortOrderUpdate.model_validate({"sort-order": UNSORTED_SORT_ORDER}), unsorted))
    with catalog.load_table("shop.orders").update_schema(allow_incompatible_changes=True) as update:
        for name in SYSTEM:
            update.delete_column(name)
    with pytest.raises(SchemaMismatchError, match="expected column '__bucket', found field 3 dropped by somebody else"):
        lake.open_table(table, incarnation())


def test_a_table_with_some_of_the_system_columns_is_of_neither_kind(lake: Lake, catalog: SqlCatalog) -> None:
    create_as_fluss(catalog, KINDS["log"])
    with catalog.load_table("shop.orders").update_schema() as update:
        update.add_column("__bucket", IntegerType())
    words = "expected the columns __bucket, __offset, __timestamp or none of them, found no __offset, __timestamp"
    with pytest.raises(SchemaMismatchError, match=words):
        lake.open_table(KINDS["log"], incarnation())


def test_a_layout_of_its_own_changes_and_goes_without_system_columns_as_well(
    plugin: IcebergLakePlugin, lake: Lake, catalog: SqlCatalog, query: Callable[..., pa.Table]
) -> None:
    world = World(plugin, lake, bucket_key=(), system_columns=False)
    for number, wanted in enumerate((layout("day(ts)"), layout("bucket(4, id)"), layout(), layout("day(ts)"))):
        world.tier([(one, (one, one * 3_600_000_000, f"r{number}")) for one in range(number, 40, 3)], wanted)
        made = catalog.load_table("shop.orders")
        world.check(query(PATH), made.scan().to_arrow())
        assert made.sort_order().is_unsorted
        assert made.properties[SORTED] == "false"
        assert [field.name for field in made.schema().fields] == EVENTS.names
