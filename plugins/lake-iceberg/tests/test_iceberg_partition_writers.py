"""Writers of single partitions: values of every type, memory, snapshots before changes, and work gone on from."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeward.model.batches import SourceBatch
from lakeward.model.results import CommitOutcome
from lakeward.model.tables import Change
from lakeward_iceberg_kit.partitioned import DAY_US, EVENTS, MEMORY, PartitionedRound, layout, records
from lakeward_lake_iceberg.partitioner import directory_of, partition_key, partition_values
from lakeward_lake_iceberg.task import LayoutField
from lakeward_lake_iceberg.upserts import UpsertWriter
from lakeward_lake_iceberg.writer import AppendWriter
from lakeward_testing.lake_tables import PATH, incarnation, key_table, log_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyiceberg.catalog.sql import SqlCatalog

    from lakeward.ports import Lake
    from lakeward_lake_iceberg.plugin import IcebergLakePlugin


def _times(kind: pa.DataType, *numbers: int | None) -> pa.Array:
    return pa.array(numbers, pa.int32() if pa.types.is_date(kind) else pa.int64()).view(kind)


COLUMNS: dict[str, pa.Array] = {
    "bool": pa.array([True, False, None]),
    "int": pa.array([-(2**31), 2**31 - 1, None], pa.int32()),
    "long": pa.array([-(2**63), 2**63 - 1, None], pa.int64()),
    "float": pa.array([float("nan"), -0.0, None], pa.float32()),
    "date": _times(pa.date32(), -719528, 2932896, None),
    "time": _times(pa.time64("us"), 0, 86_399_999_999, None),
    "timestamp": _times(pa.timestamp("us"), -62135596800000000, 1, None),
    "timestamptz": _times(pa.timestamp("us", tz="UTC"), -1, 253402300799999999, None),
    "text": pa.array(["", "\u00e9/=%\U0001f40b", None]),
    "binary": pa.array([b"", b"\x00\xff", None], pa.binary()),
    "decimal": pa.array([Decimal("-1.28"), Decimal("99999999999999999999.99"), None], pa.decimal128(22, 2)),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_partition_of_each_value_of_every_type_is_read_back(
    lake: Lake, plugin: IcebergLakePlugin, catalog: SqlCatalog, query: Callable[..., pa.Table], name: str
) -> None:
    values = COLUMNS[name]
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", values.type)])
    for number, texts in enumerate((("v",), ("bucket(3, id)", "v")), 1):
        table = log_table(schema, lake_partition=layout(*texts))
        tiering = PartitionedRound(plugin, lake, table, incarnation(), number)
        made = records([{"id": one} for one in range(3)], schema=schema)
        made = made.set_column(1, schema.field("v"), values)
        assert len(tiering.fan_out(made)) == 3
        assert lake.commit(tiering.request()) is CommitOutcome.LANDED
    expected = [repr(one) for one in [*values.to_pylist(), *values.to_pylist()]] if name != "date" else None
    for found in (query(PATH), catalog.load_table("shop.orders").scan().to_arrow()):
        assert sorted(found["id"].to_pylist()) == [0, 0, 1, 1, 2, 2]
        assert found["v"].null_count == 2
        if expected is not None:
            assert sorted(map(repr, found["v"].cast(values.type).to_pylist())) == sorted(expected)


@pytest.mark.parametrize("name", COLUMNS)
def test_a_key_is_found_again_in_a_partition_of_every_type(
    lake: Lake, plugin: IcebergLakePlugin, query: Callable[..., pa.Table], name: str
) -> None:
    """The driver names the files of a partition by what it read in a manifest, the worker by the rows."""
    values = COLUMNS[name]
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", values.type)])
    table = key_table(schema, lake_partition=layout("v"))
    kinds: list[str] = []
    for number, kind in enumerate((Change.INSERT, Change.UPDATE_AFTER), 1):
        tiering = PartitionedRound(plugin, lake, table, incarnation(), number)
        made = records([{"id": one} for one in range(3)], schema=schema, changes=[kind] * 3, start=number)
        tiering.fan_out(made.set_column(1, schema.field("v"), values))
        lake.commit(tiering.request())
        kinds += [file.kind for file in tiering.files]
    assert sorted(query(PATH)["id"].to_pylist()) == [0, 1, 2]
    assert sorted(kinds) == ["data"] * 6 + ["deletes"] * 3


def test_directories_say_values_as_people_read_them() -> None:
    fields = {
        ("year", "date"): (-2014, "-044"),
        ("month", "timestamp"): (-1, "1969-12"),
        ("day", "timestamp"): (19723, "2024-01-01"),
        ("hour", "timestamp"): (19723 * 24 + 5, "2024-01-01-05"),
        ("identity", "decimal(9, 2)"): (b"\x80", "-1.28"),
        ("identity", "binary"): (b"\x01\xff", "01ff"),
        ("identity", "string"): ("a/b=c" + "x" * 99, "a_b_c" + "x" * 35),
    }
    for (transform, kind), (value, text) in fields.items():
        field = LayoutField("p", transform, None, "c", kind)
        found = directory_of((field,), (value,))
        assert found.startswith("p=")
        assert found.endswith(f"{text}/")


def test_a_key_is_the_values_and_nothing_else() -> None:
    values: tuple[Any, ...] = (None, True, -1, 0.5, "a", b"a")
    assert partition_values(partition_key(values)) == values
    assert partition_key((1,)) == b"\x91\x01"


def test_partitions_of_more_combinations_than_fit_32_bits_are_told_apart(lake: Lake, plugin: IcebergLakePlugin) -> None:
    count = 47_000  # of two columns; 46,341 * 46,341 is 2 ** 31
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64())])
    tiering = PartitionedRound(plugin, lake, log_table(schema, lake_partition=layout("id", "v")), incarnation())
    rows = records([{"id": one, "v": -one * 5000} for one in range(count)], schema=schema)

    codes, partitions = plugin.partitioner(tiering.task, tiering.table).partition(rows)

    found = [partition_values(partitions[code]) for code in codes.tolist()]
    assert found == [(one, -one * 5000) for one in range(count)]


def test_a_slice_of_a_large_batch_does_not_keep_it_in_memory(lake: Lake, plugin: IcebergLakePlugin) -> None:
    rows = [{"id": one, "ts": 0, "name": "n" * 100} for one in range(20_000)]
    for table in (
        log_table(EVENTS, lake_partition=layout("day(ts)")),
        key_table(EVENTS, table_id=8, lake_partition=layout("day(ts)")),
    ):
        tiering = PartitionedRound(plugin, lake, table, incarnation())
        (key,) = plugin.partitioner(tiering.task, table).partition(records(rows[:1])).partitions
        writer = plugin.partition_writer(tiering.task, table, key, "w", 1, (), MEMORY)
        assert isinstance(writer, AppendWriter | UpsertWriter)
        before = pa.total_allocated_bytes()
        for number in range(10):
            writer.write(SourceBatch(records(rows, start=number * 20_000).slice(7, 3), 1))
        assert pa.total_allocated_bytes() - before < 1 << 20
        writer.abort()


def test_a_writer_holds_no_more_rows_than_its_memory(lake: Lake, plugin: IcebergLakePlugin) -> None:
    memory = 1 << 20
    for table_id, make in ((7, log_table), (8, key_table)):
        table = make(EVENTS, table_id=table_id, lake_partition=layout("day(ts)"))
        tiering = PartitionedRound(plugin, lake, table, incarnation())
        writer = plugin.partition_writer(tiering.task, table, partition_key((0,)), "w", 1, (), memory)
        held = []
        before = pa.total_allocated_bytes()
        for number in range(60):
            rows = [{"id": number * 2000 + one, "ts": 1, "name": "n" * 50} for one in range(2000)]
            changes = [Change.UPDATE_AFTER if table.has_primary_key else Change.APPEND] * len(rows)
            writer.write(SourceBatch(records(rows, changes=changes, start=number * 2000), 1))
            held.append(pa.total_allocated_bytes() - before)
        # The last batch itself, and what Parquet has encoded but not written, come to it.
        assert max(held) < 4 * memory
        files = writer.close()
        assert sum(file.rows for file in files if file.kind == "data") == 120_000


def _upserts(*keys: int, start: int, name: str) -> pa.RecordBatch:
    rows = [{"id": key, "ts": 0, "name": name} for key in keys]
    return records(rows, changes=[Change.UPDATE_AFTER] * len(keys), start=start)


def test_changes_after_rows_of_a_snapshot_replace_them(
    lake: Lake, plugin: IcebergLakePlugin, query: Callable[..., pa.Table]
) -> None:
    """Rows of a snapshot are not looked up, until a change may be one of them."""
    tiering = PartitionedRound(plugin, lake, key_table(EVENTS, lake_partition=layout("day(ts)")), incarnation())
    writer = plugin.partition_writer(tiering.task, tiering.table, partition_key((0,)), "w", 1, (), MEMORY)
    base = [{"id": one, "ts": 0, "name": "base"} for one in range(6)]
    writer.write(SourceBatch(records(base[:3], snapshot=True), 1))
    writer.write(SourceBatch(records(base[3:], snapshot=True, bucket=1), 1))
    tiering.files += writer.roll()
    writer.write(SourceBatch(_upserts(1, 4, start=0, name="new"), 1))
    writer.write(SourceBatch(records([{"id": 9, "ts": 0, "name": "late"}], snapshot=True, bucket=2), 1))
    writer.write(SourceBatch(_upserts(9, start=5, name="newer"), 1))
    tiering.files = list(writer.close())
    lake.commit(tiering.request())
    names = dict(zip(*(query(PATH)[column].to_pylist() for column in ("id", "name")), strict=True))
    assert names == {0: "base", 1: "new", 2: "base", 3: "base", 4: "new", 5: "base", 9: "newer"}
    assert query(PATH).num_rows == 7


def test_another_writer_of_a_partition_knows_the_keys_of_the_files_before(
    lake: Lake, plugin: IcebergLakePlugin, query: Callable[..., pa.Table]
) -> None:
    tiering = PartitionedRound(plugin, lake, key_table(EVENTS, lake_partition=layout("day(ts)")), incarnation())
    files: tuple[Any, ...] = ()
    for number in range(4):
        writer = plugin.partition_writer(tiering.task, tiering.table, partition_key((0,)), "w", 1, files, MEMORY)
        writer.write(SourceBatch(_upserts(1, 10 + number, start=10 * number, name=f"n{number}"), 1))
        files = writer.close()
    assert len({file.path for file in files}) == len(files)
    tiering.files = list(files)
    lake.commit(tiering.request())
    assert sorted(query(PATH)["id"].to_pylist()) == [1, 10, 11, 12, 13]
    assert query(PATH, "id = 1")["name"].to_pylist() == ["n3"]
    assert query(PATH, f"ts < make_timestamp({DAY_US})").num_rows == 5


def test_the_partitions_of_a_round_share_the_choice_of_a_dictionary(lake: Lake, plugin: IcebergLakePlugin) -> None:
    for table in (
        log_table(EVENTS, lake_partition=layout("day(ts)")),
        key_table(EVENTS, table_id=8, lake_partition=layout("day(ts)")),
    ):
        for number, first in enumerate(("same", None), 1):
            tiering = PartitionedRound(plugin, lake, table, incarnation(), number)
            for day in range(2):
                rows = [{"id": one, "ts": day * DAY_US, "name": (day == 0 and first) or f"n{one}"} for one in range(99)]
                tiering.fan_out(records(rows, changes=[Change.INSERT] * len(rows)))
            for file in tiering.files:
                group = pq.read_metadata(file.path.removeprefix("file://")).row_group(0)
                chunks = {group.column(one).path_in_schema: group.column(one) for one in range(group.num_columns)}
                assert chunks["name"].has_dictionary_page is (first is not None)
