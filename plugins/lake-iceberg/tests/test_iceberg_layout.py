"""Lake tables with a partitioning of their own: created, written by partition, committed, read by two other readers."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyiceberg.manifest import ManifestContent

from lakeward.errors import RowError, SchemaMismatchError
from lakeward.model.batches import SourceBatch
from lakeward.model.results import CommitOutcome
from lakeward_iceberg_kit.duck import read_apart
from lakeward_iceberg_kit.partitioned import DAY_US, EVENTS, MEMORY, PartitionedRound, layout, records
from lakeward_lake_iceberg.entries import live_entries
from lakeward_testing.lake_tables import PATH, TieringRound, incarnation, log_split, log_table, source_batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.manifest import DataFile

    from lakeward.ports import Lake
    from lakeward_lake_iceberg.plugin import IcebergLakePlugin


DAY_AND_BUCKET = layout("day(ts)", "bucket(4, id)")


def live(catalog: SqlCatalog, content: ManifestContent) -> list[DataFile]:
    table = catalog.load_table("shop.orders")
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return [entry.data_file for entry in live_entries(snapshot.manifests(table.io), table.io, content)]


def events(count: int, days: int = 3, first: int = 0) -> list[dict[str, object]]:
    return [
        {"id": one, "ts": None if one % 11 == 10 else (one % days - 1) * DAY_US + one, "name": f"n{one}"}
        for one in range(first, first + count)
    ]


def test_a_new_table_has_icebergs_own_names_and_no_order(lake: Lake, catalog: SqlCatalog) -> None:
    wanted = layout("day(ts)", "bucket(16, id)", "truncate(4, name)", "name")
    lake.open_table(log_table(EVENTS, lake_partition=wanted), incarnation())
    table = catalog.load_table("shop.orders")
    assert [field.name for field in table.spec().fields] == ["ts_day", "id_bucket_16", "name_trunc_4", "name"]
    assert [str(field.transform) for field in table.spec().fields] == ["day", "bucket[16]", "truncate[4]", "identity"]
    assert table.sort_order().is_unsorted
    assert table.properties["lakeward.sorted-by-offset"] == "false"
    assert table.properties["lakeward.lake-partition"] == '["day(ts)","bucket(16, id)","truncate(4, name)","name"]'


def test_rows_of_several_buckets_are_read_back_from_their_partitions(
    lake: Lake, plugin: IcebergLakePlugin, catalog: SqlCatalog, query: Callable[..., pa.Table]
) -> None:
    tiering = PartitionedRound(plugin, lake, log_table(EVENTS, lake_partition=DAY_AND_BUCKET), incarnation())
    keys = tiering.fan_out(records(events(100), bucket=0)) + tiering.fan_out(records(events(50, first=100), bucket=1))
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED
    found = query(PATH)
    assert sorted(found.column("id").to_pylist()) == list(range(150))
    assert found.column("__bucket").to_pylist().count(1) == 50
    # Both readers prune by partition: a wrong value would lose rows.
    assert query(PATH, "id = 42").num_rows == 1
    assert query(PATH, "ts >= '1970-01-02'").num_rows == len(
        [one for one in range(150) if one % 3 == 2 and one % 11 != 10]
    )
    table = catalog.load_table("shop.orders")
    assert table.scan(row_filter="id == 42").to_arrow().num_rows == 1
    assert table.scan(row_filter="ts is null").to_arrow().num_rows == 13
    assert len({repr(file.partition) for file in live(catalog, ManifestContent.DATA)}) == len(set(keys))
    (manifest,) = table.inspect.manifests().to_pylist()
    assert [one["contains_null"] for one in manifest["partition_summaries"]] == [True, False]


def test_files_lie_in_directories_of_their_partition_below_the_prefix_of_the_round(
    lake: Lake, plugin: IcebergLakePlugin
) -> None:
    tiering = PartitionedRound(plugin, lake, log_table(EVENTS, lake_partition=DAY_AND_BUCKET), incarnation())
    tiering.fan_out(records(events(100)))
    prefix = lake.file_prefix(PATH, tiering.round_id)
    assert {file.path for file in tiering.files} == set(lake.list_prefix(PATH, prefix))
    directories = {file.path.removeprefix(prefix).split("/")[0] for file in tiering.files}
    assert directories == {"ts_day=1969-12-31", "ts_day=1970-01-01", "ts_day=1970-01-02", "ts_day=null"}


def test_a_partition_of_a_file_is_the_one_of_its_rows(lake: Lake, plugin: IcebergLakePlugin) -> None:
    tiering = PartitionedRound(plugin, lake, log_table(EVENTS, lake_partition=DAY_AND_BUCKET), incarnation())
    keys = tiering.fan_out(records(events(60)))
    partitioner = plugin.partitioner(tiering.task, tiering.table)
    assert [partitioner.partition_of(file) for file in tiering.files] == keys
    again = plugin.partitioner(tiering.task, tiering.table).partition(records(events(60)))
    assert list(again.partitions) == keys


def test_a_value_that_does_not_fit_names_bucket_offset_and_column(lake: Lake, plugin: IcebergLakePlugin) -> None:
    tiering = PartitionedRound(plugin, lake, log_table(EVENTS, lake_partition=layout("id")), incarnation())
    wide = pa.schema([pa.field("id", pa.decimal128(30, 0)), EVENTS.field("ts"), EVENTS.field("name")])
    rows = records([{"id": 1}, {"id": 10**25}], schema=wide, bucket=3, start=70)
    partitioner = plugin.partitioner(tiering.task, tiering.table)
    with pytest.raises(RowError, match=r"bucket 3, offset 71, column 'id'"):
        partitioner.partition(rows)
    writer = plugin.partition_writer(tiering.task, tiering.table, b"\x91\x01", "w", 1, (), MEMORY)
    with pytest.raises(RowError, match=r"bucket 3, offset 71, column 'id'"):
        writer.write(SourceBatch(rows, 1000))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("day(name)", r"'day\(name\)'.*type string"),
        ("gone", "no column 'gone'"),
        ("price", "found double"),
        ("year(ts)", "at most one field of each kind"),
        ("truncate(100, small)", r"a width from 1 to 99, as .*decimal\(2, 0\), found 100"),
    ],
)
def test_a_layout_that_iceberg_cannot_have_is_refused_with_words(lake: Lake, text: str, message: str) -> None:
    schema = EVENTS.append(pa.field("price", pa.float64())).append(pa.field("small", pa.decimal128(2, 0)))
    table = log_table(schema, lake_partition=layout("day(ts)", text))
    with pytest.raises(SchemaMismatchError, match=message) as refused:
        lake.open_table(table, incarnation())
    assert str(refused.value).startswith('tables."shop.orders".lake_partition: expected ')
    assert lake.head(PATH) is None


PRICES = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("price", pa.decimal128(9, 2))])


@pytest.mark.parametrize("least", ["-9999999.51", "-9999999.99"])
def test_a_decimal_that_has_too_many_digits_once_it_is_rounded_down_is_an_error_of_its_row(
    lake: Lake, plugin: IcebergLakePlugin, least: str
) -> None:
    """Iceberg's Java has no file for it either: "Cannot write value as decimal(9,2), too large"."""
    table = log_table(PRICES, lake_partition=layout("truncate(50, price)"))
    tiering = PartitionedRound(plugin, lake, table, incarnation())
    prices = [Decimal("9999999.99"), None, Decimal(least), Decimal(0)]
    rows = records([{"id": 1, "price": one} for one in prices], schema=PRICES, bucket=3, start=70)
    with pytest.raises(RowError) as refused:
        plugin.partitioner(tiering.task, table).partition(rows)
    assert str(refused.value) == (
        "table shop.orders, bucket 3, offset 72, column 'price': expected a value that 'truncate(50, price)' of "
        f"tables.\"shop.orders\".lake_partition rounds down to one of decimal(9, 2), found Decimal('{least}')"
    )


@pytest.mark.parametrize(
    ("field", "least"),
    [
        ("truncate(50, price)", Decimal("-9999999.50")),
        ("truncate(99, price)", Decimal(-99)),
        ("truncate(3, price)", Decimal((1, (9,) * 38, -10))),
    ],
)
def test_the_least_decimal_that_stays_in_its_type_is_read_back(
    lake: Lake, plugin: IcebergLakePlugin, catalog: SqlCatalog, field: str, least: Decimal
) -> None:
    schema = pa.schema([PRICES.field("id"), pa.field("price", pa.scalar(least).type)])
    tiering = PartitionedRound(plugin, lake, log_table(schema, lake_partition=layout(field)), incarnation())
    tiering.fan_out(records([{"id": 1, "price": least}, {"id": 2, "price": least.copy_negate()}], schema=schema))
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED
    table = catalog.load_table("shop.orders")
    prices = [str(least), str(least.copy_negate())]
    assert sorted(read_apart(table.metadata_location, "id, CAST(price AS VARCHAR)")) == [[1, prices[0]], [2, prices[1]]]
    assert table.scan(row_filter=f"price = {least}").to_arrow()["price"].to_pylist() == [least]


def test_a_table_whose_first_round_failed_is_tiered_once_its_partitioning_is_removed(
    lake: Lake, plugin: IcebergLakePlugin, catalog: SqlCatalog, query: Callable[..., pa.Table]
) -> None:
    """No file lies in another partition, so the source's clients find all of them."""
    lake.open_table(log_table(EVENTS, lake_partition=DAY_AND_BUCKET), incarnation())
    lake.stamp(PATH, incarnation())
    table = log_table(EVENTS, union_read=True)
    for number in (1, 2):
        tiering = TieringRound(plugin, lake, table, incarnation(), number)
        tiering.write(log_split(table), [source_batch(EVENTS, events(3), start=3 * number)])
        assert lake.commit(tiering.request()) is CommitOutcome.LANDED
    found = catalog.load_table("shop.orders")
    assert [str(field.transform) for field in found.spec().fields] == ["identity"]
    assert not {"lakeward.lake-partition", "lakeward.sorted-by-offset"} & set(found.properties)
    assert not found.sort_order().is_unsorted
    assert query(PATH).num_rows == 6


def test_a_table_that_lost_all_its_rows_had_a_partitioning_all_the_same(
    lake: Lake, plugin: IcebergLakePlugin, catalog: SqlCatalog
) -> None:
    tiering = PartitionedRound(plugin, lake, log_table(EVENTS, lake_partition=DAY_AND_BUCKET), incarnation())
    tiering.fan_out(records(events(3)))
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED
    catalog.load_table("shop.orders").delete()
    with pytest.raises(SchemaMismatchError, match="has had a partitioning of its own"):
        lake.open_table(log_table(EVENTS, union_read=True), incarnation())
