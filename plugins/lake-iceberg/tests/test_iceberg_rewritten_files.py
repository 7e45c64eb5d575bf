"""Data files that another engine rewrote: columns are found by field id, whatever their names are in the file."""

from __future__ import annotations

import struct
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

from lakeward.errors import SchemaMismatchError
from lakeward.model.results import CommitOutcome
from lakeward.model.tables import Change
from lakeward_iceberg_kit.partitioned import PartitionedRound, layout, records
from lakeward_iceberg_kit.rewriting import rewrite_each_file
from lakeward_lake_iceberg.entries import named_data_file
from lakeward_lake_iceberg.parquet_fields import columns_by_id, top_columns
from lakeward_testing.lake_tables import PATH, TieringRound, head_of, incarnation, key_table, log_split, source_batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyiceberg.catalog.sql import SqlCatalog

    from lakeward_lake_iceberg.lake import IcebergLake
    from lakeward_lake_iceberg.plugin import IcebergLakePlugin

    Bounds = tuple[str | int, bytes | None, bytes | None]


# pyiceberg says that it writes no deletes, although these overwrites need none.
pytestmark = [pytest.mark.filterwarnings("ignore:Merge on read is not yet supported:UserWarning"), pytest.mark.slow]


def rewrite(catalog: SqlCatalog) -> None:
    """Read all rows and write them to new files, as a compaction does."""
    table = catalog.load_table("shop.orders")
    table.overwrite(table.scan().to_arrow())


@pytest.mark.parametrize("name", ["order-id", "1st", "a b", "a.b", "é", "%", "id", "x/y", "order_x2Did"])
def test_a_key_column_of_any_name_is_found_in_files_that_pyiceberg_rewrote(
    plugin: IcebergLakePlugin, lake: IcebergLake, catalog: SqlCatalog, read_table: Callable[..., pa.Table], name: str
) -> None:
    schema = pa.schema([pa.field("text", pa.string()), pa.field(name, pa.int64(), nullable=False)])
    table = key_table(schema, primary_key=(name,), bucket_key=())
    for number, change in enumerate((Change.INSERT, Change.UPDATE_AFTER, Change.UPDATE_AFTER), start=1):
        tiering = TieringRound(plugin, lake, table, incarnation(), number)
        rows = [{name: key, "text": f"round {number}"} for key in (1, 2)]
        tiering.write(log_split(table), [source_batch(schema, rows, changes=[change] * 2, start=number * 10)])
        assert lake.commit(tiering.request()) is CommitOutcome.LANDED
        rewrite(catalog)
    found = read_table(PATH)
    assert sorted(zip(found[name].to_pylist(), found["text"].to_pylist(), strict=True)) == [
        (1, "round 3"),
        (2, "round 3"),
    ]


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        (pa.bool_(), True),
        (pa.int8(), -1),
        (pa.decimal128(10, 2), Decimal("-2.25")),
        (pa.decimal128(38, 2), Decimal("1e30")),
        (pa.string(), "é"),
        (pa.binary(), b"\xff"),
        (pa.date32(), date(1900, 1, 1)),
        (pa.time32("ms"), datetime(1900, 1, 1, 1, 2, 3).time()),  # noqa: DTZ001 - a type without a zone
        (pa.timestamp("us"), datetime(1900, 1, 1)),  # noqa: DTZ001 - as above
        (pa.timestamp("us", tz="UTC"), datetime(1900, 1, 1)),  # noqa: DTZ001 - as above
    ],
    ids=str,
)
def test_a_key_of_any_type_is_found_in_files_that_pyiceberg_rewrote(
    plugin: IcebergLakePlugin, lake: IcebergLake, catalog: SqlCatalog, kind: pa.DataType, key: object
) -> None:
    names = ("order-id", "2nd")
    schema = pa.schema([pa.field(names[0], kind, nullable=False), pa.field(names[1], pa.int32(), nullable=False)])
    table = key_table(schema, primary_key=names[::-1], bucket_key=())
    for number in (1, 2):
        tiering = TieringRound(plugin, lake, table, incarnation(), number)
        rows = [{names[0]: key, names[1]: one} for one in (number, 7)]
        tiering.write(log_split(table), [source_batch(schema, rows, changes=[Change.UPDATE_AFTER] * 2)])
        assert lake.commit(tiering.request()) is CommitOutcome.LANDED
        rewrite(catalog)
    assert sorted(catalog.load_table("shop.orders").scan().to_arrow()[names[1]].to_pylist()) == [1, 2, 7]


@pytest.mark.parametrize(
    "fields",
    [
        ("order-day",),
        ("order-name",),
        ("order-time",),
        ("bucket(3, order-id)", "day(order-time)"),
        ("truncate(2, order-name)", "month(order-day)"),
        ("hour(order-time)", "bucket(2, order-name)"),
        ("year(order-time)", "truncate(10, order-id)"),
    ],
    ids=str,
)
def test_a_partitioned_table_goes_on_after_pyiceberg_rewrote_its_files(
    plugin: IcebergLakePlugin,
    lake: IcebergLake,
    catalog: SqlCatalog,
    read_table: Callable[..., pa.Table],
    fields: tuple[str, ...],
) -> None:
    kinds: dict[str, Any] = {"id": pa.int64(), "day": pa.date32(), "name": pa.string(), "time": pa.timestamp("us")}
    schema = pa.schema([pa.field(f"order-{name}", kind, nullable=name != "id") for name, kind in kinds.items()])
    table = key_table(schema, primary_key=("order-id",), bucket_key=(), lake_partition=layout(*fields))
    day = datetime(2026, 1, 1)  # noqa: DTZ001 - as above
    for number in (1, 2):
        tiering = PartitionedRound(plugin, lake, table, incarnation(), number)
        values = [(one, day.date(), "name", day) for one in (number, 7)]
        rows = [dict(zip(schema.names, one, strict=True)) for one in values]
        tiering.fan_out(records(rows, schema=schema, changes=[Change.UPDATE_AFTER] * 2))
        assert lake.commit(tiering.request()) is CommitOutcome.LANDED
        if any("(" in one for one in fields):
            rewrite_each_file(catalog.load_table("shop.orders"))  # pyiceberg needs a further library to overwrite it
        else:
            rewrite(catalog)
        assert list(lake.check_files(PATH, head_of(lake).snapshot_id or 0, None)) == []
    assert sorted(read_table(PATH)["order-id"].to_pylist()) == [1, 2, 7]


def test_a_start_lists_the_order_of_files_without_one_that_spark_asks_for(
    lake: IcebergLake, catalog: SqlCatalog
) -> None:
    lake.open_table(key_table(), incarnation())
    table = catalog.load_table("shop.orders")
    assert [*table.sort_orders()] == [1]
    for started in (1000, 2000):
        lake.stamp(PATH, incarnation(started))
    table.refresh()
    assert [*table.sort_orders()] == [1, 0]
    assert table.sort_order().order_id == 1


def test_a_file_without_the_key_columns_field_id_is_named(
    plugin: IcebergLakePlugin, lake: IcebergLake, catalog: SqlCatalog
) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
    table = key_table(schema, bucket_key=())
    batch = source_batch(schema, [{"id": 1, "name": "n"}], changes=[Change.UPDATE_AFTER])
    first = TieringRound(plugin, lake, table, incarnation(), 1)
    (file,) = first.write(log_split(table), [batch])
    lake.commit(first.request())
    path = file.path.removeprefix("file://")
    pq.write_table(pq.read_table(path).drop_columns(["id"]), path)
    second = TieringRound(plugin, lake, table, incarnation(), 2)
    with pytest.raises(SchemaMismatchError, match=rf"{file.path}: expected key column 'id' with field id 1"):
        second.write(log_split(table), [batch])


def test_a_file_without_any_field_id_is_read_by_name() -> None:
    inner = pa.struct([pa.field("id", pa.int32())])
    schema = pa.schema([pa.field("r", inner), pa.field("m", pa.map_(pa.int8(), inner)), pa.field("id", pa.int64())])
    assert columns_by_id(schema) == {}
    assert top_columns(schema, {"id": 9, "r": 1, "new": 2}) == {"id": 3}


def with_bounds(catalog: SqlCatalog, lower: bytes | None, upper: bytes | None) -> None:
    """Give the table's only data file other bounds of its first column, as another writer might have."""
    table = catalog.load_table("shop.orders")
    (old,) = (task.file for task in table.scan().plan_files())
    new = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=old.file_path,
        file_format=FileFormat.PARQUET,
        partition=old.partition,
        record_count=old.record_count,
        file_size_in_bytes=old.file_size_in_bytes,
        null_value_counts=old.null_value_counts,
        lower_bounds=None if lower is None else {1: lower},
        upper_bounds=None if upper is None else {1: upper},
    )
    with table.transaction() as change, change.update_snapshot().overwrite() as files:
        files.delete_data_file(old)
    with table.transaction() as change, change.update_snapshot().fast_append() as files:
        files.append_data_file(new)


@pytest.mark.parametrize("partitioned", [False, True], ids=["the source's layout", "a layout that changes"])
@pytest.mark.parametrize(
    "bounds",
    [
        ("ä" * 9, ("ä" * 9).encode()[:17], ("ä" * 9).encode()[:17] + b"\xff"),
        ("b", b"c", b"a"),
        ("b", b"a", None),
        ("b", None, b"c"),
        (5, struct.pack("<i", 5), struct.pack("<i", 5)),
        (5, struct.pack("<q", 6), struct.pack("<q", 4)),
        (5, b"\0", b"\0"),
        (5, b"\0" * 9, b"\0" * 9),
    ],
    ids=["cut", "inverted", "no upper", "no lower", "of an int", "inverted numbers", "short", "long"],
)
def test_bounds_of_another_writer_that_say_nothing_hide_no_row(
    plugin: IcebergLakePlugin, lake: IcebergLake, catalog: SqlCatalog, bounds: Bounds, *, partitioned: bool
) -> None:
    key, lower, upper = bounds
    kind = pa.int64() if isinstance(key, int) else pa.string()
    schema = pa.schema([pa.field("id", kind, nullable=False), pa.field("name", pa.string())])
    for number in (1, 2):
        wanted = layout("truncate(1, id)") if partitioned and number == 2 else ()
        table = key_table(schema, bucket_key=(), lake_partition=wanted)
        tiering = PartitionedRound(plugin, lake, table, incarnation(), number)
        rows, changes = [{"id": key, "name": f"round {number}"}], [Change.UPDATE_AFTER]
        if wanted:
            tiering.fan_out(records(rows, schema=schema, changes=changes))
        else:
            tiering.write(log_split(table), [source_batch(schema, rows, changes=changes)])
        assert lake.commit(tiering.request()) is CommitOutcome.LANDED
        if number == 1:
            with_bounds(catalog, lower, upper)
    snapshot = head_of(lake).snapshot_id or 0
    found = [row["name"] for batch in lake.read_rows(PATH, snapshot) for row in batch.to_pylist()]
    assert found == ["round 2"]


def test_a_delete_file_whose_bound_another_writer_cut_may_be_about_any_data_file() -> None:
    cut = {2147483546: "file:///lake/ä".encode()[:-1]}
    assert named_data_file(DataFile.from_args(lower_bounds=cut, upper_bounds=cut)) is None
