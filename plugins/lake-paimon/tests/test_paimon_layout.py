"""Partitionings of the lake's own: their columns, what is refused, and what Java sees of them."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakeward.errors import SchemaMismatchError
from lakeward.model.partitioning import PartitionField
from lakeward.model.results import CommitOutcome
from lakeward_lake_paimon.kinds import Kind
from lakeward_lake_paimon.layout import transformed
from lakeward_paimon_kit.java import java_reader
from lakeward_testing.lake_partitions import PARTITIONED, partitioned, rows_with_bucket, some_rows
from lakeward_testing.lake_tables import TieringRound, incarnation, key_table, log_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.model.tables import TableSpec
    from lakeward.ports import Lake
    from lakeward_lake_paimon.options import PaimonOptions
    from lakeward_lake_paimon.plugin import PaimonLakePlugin
    from lakeward_paimon_kit.java import JavaReader


@pytest.fixture(scope="module")
def java() -> Iterator[JavaReader]:
    """Paimon's own reader."""
    with java_reader() as reader:
        yield reader


def tier(plugin: PaimonLakePlugin, lake: Lake, table: TableSpec, number: int, batch: Any) -> None:  # noqa: ANN401 - a batch
    """Write a batch, each partition by a writer of its own, and commit."""
    tiering = TieringRound(plugin, lake, table, incarnation(), number)
    codes, partitions = plugin.partitioner(tiering.task, table).partition(batch.records)
    for code, partition in enumerate(partitions):
        writer = plugin.partition_writer(tiering.task, table, partition, f"w{code}", 1, (), 1 << 20)
        writer.write(type(batch)(batch.records.filter(pa.array(codes == code)), batch.next_offset))
        tiering.files += writer.close()
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED


@pytest.mark.spark
def test_java_reads_a_partitioned_mirror_and_leaves_partitions_out(
    plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions, java: JavaReader
) -> None:
    table = log_table(**partitioned("day(at)", "bucket(4, id)", "region"))
    tier(plugin, lake, table, 1, rows_with_bucket(some_rows(40)))
    read = java.table(options.warehouse, "shop.orders")
    assert sorted(int(one[0]) for one in java.rows(read, "id")) == list(range(40))
    found = java.rows(read, "id", "at_day", "region", where=lambda build, names: build.isNull(names.index("at_day")))
    assert sorted(int(one[0]) for one in found) == [6, 13, 20, 27, 34]
    assert {one[1] for one in found} == {None}
    by_day = {one[0]: one[1] for one in java.rows(read, "id", "at_day")}
    assert (by_day["0"], by_day["5"]) == ("1970-01-01", "1970-01-02")


@pytest.mark.spark
def test_java_reads_a_key_that_moved_between_partitions_once(
    plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions, java: JavaReader
) -> None:
    table = key_table(**partitioned("region"))
    tier(
        plugin,
        lake,
        table,
        1,
        rows_with_bucket([{"id": 1, "region": "north"}, {"id": 2, "region": ""}], changes=[1, 1]),
    )
    moved = [{"id": 1, "region": "north"}, {"id": 1, "region": "south"}]
    tier(plugin, lake, table, 2, rows_with_bucket(moved, start=2, changes=[4, 3]))
    found = java.rows(java.table(options.warehouse, "shop.orders"), "id", "region")
    assert sorted(found) == [("1", "south"), ("2", "")]


@pytest.mark.parametrize("other", [("region",), ("bucket(8, id)",), ()], ids=str)
def test_another_partitioning_of_a_table_is_refused(lake: Lake, other: tuple[str, ...]) -> None:
    lake.open_table(log_table(**partitioned("bucket(4, id)")), incarnation())
    with pytest.raises(SchemaMismatchError, match="id_bucket"):
        lake.open_table(log_table(**partitioned(*other)), incarnation())


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (("hour(on)",), "lake_partition hour"),
        (("day(region)",), "expected a column of dates or timestamps, found STRING"),
        (("truncate(3, at)",), "expected a column of whole numbers"),
        (("bucket(2, missing)",), "found missing"),
        (("day(at)",), "the name 'at_day' is free"),
    ],
)
def test_a_transform_that_does_not_fit_is_refused(lake: Lake, fields: tuple[str, ...], said: str) -> None:
    schema = PARTITIONED.append(pa.field("on", pa.date32())).append(pa.field("at_day", pa.date32()))
    table = log_table(schema, **{key: value for key, value in partitioned(*fields).items() if key != "schema"})
    with pytest.raises(SchemaMismatchError, match=said):
        lake.open_table(table, incarnation())


def test_a_primary_key_that_is_all_of_the_partitioning_is_refused(lake: Lake) -> None:
    with pytest.raises(SchemaMismatchError, match="a column of the primary key outside it"):
        lake.open_table(key_table(**partitioned("id")), incarnation())


@pytest.mark.parametrize(
    ("text", "values", "kind", "expected"),
    [
        ("truncate(10, x)", pa.array([7, -7, 10, None], pa.int32()), Kind("INT"), [0, -10, 10, None]),
        ("truncate(2, x)", pa.array(["grün", "a", None]), Kind("STRING"), ["gr", "a", None]),
        ("truncate(2, x)", pa.array([b"abc", None]), Kind("BYTES"), [b"ab", None]),
        (
            "month(x)",
            pa.array([0, -1, None], pa.timestamp("ms")),
            Kind("TIMESTAMP", digits=3),
            ["1970-01", "1969-12", None],
        ),
        (
            "hour(x)",
            pa.array([3_600_000, -1], pa.timestamp("ms", "UTC")),
            Kind("TIMESTAMP_LTZ", digits=3),
            ["1970-01-01-01", "1969-12-31-23"],
        ),
        ("year(x)", pa.array([-1, 400], pa.date32()), Kind("DATE"), [1969, 1971]),
    ],
)
def test_a_value_has_its_place(text: str, values: pa.Array, kind: Kind, expected: list[object]) -> None:
    one = PartitionField.parse(text)
    target = kind if one.transform == "truncate" else Kind({"year": "INT"}.get(one.transform, "STRING"))
    assert transformed(one, values, kind, target).to_pylist() == expected


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (Kind("TINYINT"), pa.array([-128, -121, 127], pa.int8())),
        (Kind("SMALLINT"), pa.array([-(2**15), 2**15 - 1], pa.int16())),
        (Kind("INT"), pa.array([-(2**31), 2**31 - 1], pa.int32())),
        (Kind("BIGINT"), pa.array([-(2**63), 2**63 - 1], pa.int64())),
        (Kind("DECIMAL", digits=38), pa.array([Decimal(1 - 10**38), Decimal(10**38 - 1)], pa.decimal128(38, 0))),
    ],
    ids=str,
)
def test_the_least_numbers_of_a_type_are_truncated_to_the_least_one(kind: Kind, values: pa.Array) -> None:
    found = transformed(PartitionField.parse("truncate(7, x)"), values, kind, kind).to_pylist()
    least, greatest = int(values[0].as_py()), int(values[-1].as_py())
    assert (int(found[0]), int(found[-1])) == (least, greatest - greatest % 7)
    assert found == sorted(found)


def test_decimals_are_truncated_by_their_whole_numbers() -> None:
    kind = Kind("DECIMAL", digits=9, scale=2)
    values = pa.array(["12.34", "-0.01", None]).cast(pa.decimal128(9, 2))
    found = transformed(PartitionField.parse("truncate(50, x)"), values, kind, kind)
    assert [None if one is None else str(one) for one in found.to_pylist()] == ["12.00", "-0.50", None]
