"""What a snapshot says of its files is compared with the files: readers leave out files by it."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record
from pyiceberg.types import BooleanType

from lakeward.model.results import CommitOutcome
from lakeward.model.tables import Change
from lakeward_iceberg_kit.partitioned import DAY_US, EVENTS, PartitionedRound, layout, records
from lakeward_testing.lake_tables import PATH, head_of, incarnation, key_table, log_split, source_batch

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog

    from lakeward.ports import FileDifference
    from lakeward_lake_iceberg.lake import IcebergLake
    from lakeward_lake_iceberg.plugin import IcebergLakePlugin

LAYOUTS = [
    (),
    ("day(ts)",),
    ("month(ts)", "bucket(3, id)"),
    ("hour(ts)",),
    ("year(ts)",),
    ("name",),
    ("ts",),
    ("truncate(2, name)", "truncate(10, id)", "bucket(2, name)", "bucket(2, ts)"),
]


def tier(plugin: IcebergLakePlugin, lake: IcebergLake, number: int, fields: tuple[str, ...], count: int = 6) -> None:
    table = key_table(EVENTS, bucket_key=(), lake_partition=layout(*fields))
    tiering = PartitionedRound(plugin, lake, table, incarnation(), number)
    rows: list[dict[str, object]] = [
        {"id": one - 3, "ts": None if one == 1 else (one - 3) * DAY_US + 7, "name": None if one == 2 else f"näme{one}"}
        for one in range(count)
    ]
    changes = [Change.UPDATE_AFTER] * len(rows)
    if fields:
        tiering.fan_out(records(rows, schema=EVENTS, changes=changes))
    else:
        tiering.write(log_split(table), [source_batch(EVENTS, rows, changes=changes)])
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED


def found(lake: IcebergLake, most: int | None = None) -> list[FileDifference]:
    return list(lake.check_files(PATH, head_of(lake).snapshot_id or 0, most))


@pytest.mark.parametrize("fields", LAYOUTS, ids=str)
def test_nothing_is_wrong_of_what_lakeward_writes(
    plugin: IcebergLakePlugin, lake: IcebergLake, fields: tuple[str, ...]
) -> None:
    for number in (1, 2):
        tier(plugin, lake, number, fields, 7 - number)
    assert found(lake) == []


def test_a_column_that_is_required_since_is_missing_in_no_file_of_before(
    plugin: IcebergLakePlugin, lake: IcebergLake, catalog: SqlCatalog
) -> None:
    tier(plugin, lake, 1, ("day(ts)",))
    with catalog.load_table(str(PATH)).update_schema(allow_incompatible_changes=True) as change:
        change.add_column("checked", BooleanType(), required=True)
    assert found(lake) == []


@pytest.mark.parametrize(
    "text", ["day(at)", "year(at)", "month(at)", "hour(at)", "at", "truncate(10, n)", "truncate(10, l)"]
)
def test_the_least_and_greatest_values_are_in_the_partitions_that_they_are_said_to_be_in(
    plugin: IcebergLakePlugin, lake: IcebergLake, text: str
) -> None:
    kinds: dict[str, pa.DataType] = {"id": pa.int64(), "at": pa.timestamp("us"), "n": pa.int32(), "l": pa.int64()}
    schema = pa.schema([pa.field(name, kind, nullable=name != "id") for name, kind in kinds.items()])
    table = key_table(schema, bucket_key=(), lake_partition=layout(text))
    tiering = PartitionedRound(plugin, lake, table, incarnation())
    years = (-(10**18), -62135596800000001, -1, 0, 253402300800000000, 10**18)
    rows = [
        {"id": one, "at": at, "n": (-(2**31), 2**31 - 1)[one % 2], "l": (-(2**63), 2**63 - 1)[one % 2]}
        for one, at in enumerate(years)
    ]
    tiering.fan_out(records(rows, schema=schema, changes=[Change.UPDATE_AFTER] * len(rows)))
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED
    assert found(lake) == []


def say(catalog: SqlCatalog, place: int = 0, **other: Any) -> str:  # noqa: ANN401 - arguments of a data file
    """Let the table say something else of one of its files, and return its path."""
    table = catalog.load_table("shop.orders")
    old = sorted((task.file for task in table.scan().plan_files()), key=lambda file: str(file.partition))[place]
    said: dict[str, Any] = {
        "content": DataFileContent.DATA,
        "file_path": old.file_path,
        "file_format": FileFormat.PARQUET,
        "partition": old.partition,
        "record_count": old.record_count,
        "file_size_in_bytes": old.file_size_in_bytes,
        "null_value_counts": old.null_value_counts,
        "lower_bounds": old.lower_bounds,
        "upper_bounds": old.upper_bounds,
    }
    with table.transaction() as change, change.update_snapshot().overwrite() as files:
        files.delete_data_file(old)
    with table.transaction() as change, change.update_snapshot().fast_append() as files:
        files.append_data_file(DataFile.from_args(**said | other))
    return old.file_path


@pytest.mark.parametrize(
    "case",
    [
        ({"record_count": 5}, "row count", "6", "5"),
        ({"file_size_in_bytes": 7}, "size", None, "7"),
        ({"null_value_counts": {2: 0}}, "null count of column ts", "1", "0"),
        ({"value_counts": {1: 7}}, "value count of column id", "6", "7"),
        ({"nan_value_counts": {1: 1}}, "NaN count of column id", "0", "1"),
        ({"lower_bounds": {1: struct.pack("<q", -2)}}, "lower bound of column id", "-3", "-2"),
        ({"upper_bounds": {1: struct.pack("<i", 1)}}, "upper bound of column id", "2", "1"),
        ({"upper_bounds": {3: b"n"}}, "upper bound of column name", "'näme5'", "'n'"),
        ({"sort_order_id": 99}, "sort order", None, "99"),
        ({"partition": Record(1)}, "partition field __bucket", "0", "1"),
    ],
    ids=lambda case: str(case[1]),
)
def test_what_is_said_wrongly_of_a_file_is_named(
    plugin: IcebergLakePlugin, lake: IcebergLake, catalog: SqlCatalog, case: tuple[dict[str, Any], str, str | None, str]
) -> None:
    other, what, expected, said = case
    tier(plugin, lake, 1, ())
    path = say(catalog, **other)
    (one,) = found(lake)
    assert (one.file, one.what, one.found) == (path, what, said)
    assert expected is None or one.expected == expected


@pytest.mark.parametrize("other", [{"lower_bounds": {3: b"\xc3"}}, {"upper_bounds": {1: b"\0"}}, {"lower_bounds": {}}])
def test_a_bound_that_says_nothing_is_not_wrong(
    plugin: IcebergLakePlugin, lake: IcebergLake, catalog: SqlCatalog, other: dict[str, Any]
) -> None:
    tier(plugin, lake, 1, ())
    say(catalog, **other)
    assert found(lake) == []


def test_a_sample_looks_at_as_many_files_as_asked_for(
    plugin: IcebergLakePlugin, lake: IcebergLake, catalog: SqlCatalog
) -> None:
    tier(plugin, lake, 1, ("id",))
    for place in range(6):
        say(catalog, place, record_count=9)
    assert [len(found(lake, most)) for most in (None, 0, 2, 100)] == [6, 0, 2, 6]


def test_swapped_partitions_are_found_in_both_files(
    plugin: IcebergLakePlugin, lake: IcebergLake, catalog: SqlCatalog
) -> None:
    tier(plugin, lake, 1, ("day(ts)",))
    wanted = {say(catalog, 1, partition=Record(2)), say(catalog, 0, partition=Record(-3))}
    differences = found(lake)
    assert {one.what for one in differences} == {"partition field ts_day"}
    assert {one.file for one in differences} == wanted


def test_a_delete_file_with_positions_beyond_its_data_file_is_found(
    plugin: IcebergLakePlugin, lake: IcebergLake, catalog: SqlCatalog
) -> None:
    for number in (1, 2):
        tier(plugin, lake, number, ())
    tasks = [*catalog.load_table("shop.orders").scan().plan_files()]
    (deletes,) = {one.file_path for task in tasks for one in task.delete_files}
    path = deletes.removeprefix("file://")
    rows = pq.read_table(path)
    pq.write_table(rows.set_column(1, rows.field("pos"), pa.array([6] * len(rows), pa.int64())).slice(1), path)
    says = {one.what: (one.expected, one.found) for one in found(lake) if one.file == deletes}
    assert says["positions in a data file of so many rows"] == ("6", "6")
    assert says["row count"] == ("5", "6")
    assert "size" in says
