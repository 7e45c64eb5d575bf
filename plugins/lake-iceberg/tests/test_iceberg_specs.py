"""Partition specs that come from elsewhere, that are many, or whose names meet those of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField as SpecField
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table.update import AddPartitionSpecUpdate, SetDefaultSpecUpdate
from pyiceberg.transforms import VoidTransform

from lakeward.errors import SchemaMismatchError, UsageError
from lakeward.model.partitioning import PartitionField as Wanted
from lakeward.model.results import CommitOutcome
from lakeward_iceberg_kit.checks import Shelf, orphans_of
from lakeward_iceberg_kit.partitioned import (
    DAY_US,
    EVENTS,
    PartitionedRound,
    World,
    layout,
    leave_a_void_field,
    records,
)
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import PATH, incarnation, key_table, log_split, log_table, source_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyiceberg.catalog.sql import SqlCatalog

    from lakeward.ports import Lake
    from lakeward_lake_iceberg.options import IcebergOptions
    from lakeward_lake_iceberg.plugin import IcebergLakePlugin

pytestmark = pytest.mark.slow

DAYS = layout("day(ts)")


@pytest.fixture
def lake(plugin: IcebergLakePlugin, options: IcebergOptions) -> Iterator[Lake]:
    """An open lake that keeps two snapshots."""
    lake = plugin.open(msgspec.structs.replace(options, keep_snapshots=2), FakeClock())
    yield lake
    lake.close()


@pytest.fixture
def world(plugin: IcebergLakePlugin, lake: Lake) -> World:
    """An empty one."""
    return World(plugin, lake)


def test_a_void_field_of_a_table_that_had_format_version_1_is_written_as_null(
    world: World, catalog: SqlCatalog, query: Callable[..., pa.Table]
) -> None:
    world.tier([(one, (one, one * DAY_US, f"n{one}")) for one in range(6)], layout("bucket(4, id)", "day(ts)"))
    world.lake.open_table(key_table(EVENTS, lake_partition=DAYS), incarnation())
    leave_a_void_field(catalog)
    world.tier([(one, (one, (one + 1) * DAY_US, "new")) for one in (1, 2, 9)], DAYS)
    table = catalog.load_table("shop.orders")
    assert [str(field.transform) for field in table.spec().fields] == ["void", "day"]
    world.check(query(PATH), table.scan().to_arrow())
    assert query(PATH, "ts >= '1970-01-10'").column("id").to_pylist() == [9]
    assert table.scan(row_filter="id == 2").to_arrow().column("name").to_pylist() == ["new"]


@pytest.mark.parametrize("after", [(), ("truncate(1, name)",), ("bucket(4, id)",)], ids=str)
def test_a_layout_with_a_void_field_is_changed_and_taken_away(
    world: World, catalog: SqlCatalog, query: Callable[..., pa.Table], after: tuple[str, ...]
) -> None:
    world.tier([(one, (one, one * DAY_US, "old")) for one in range(6)], layout("bucket(4, id)", "day(ts)"))
    world.lake.open_table(key_table(EVENTS, lake_partition=DAYS), incarnation())
    leave_a_void_field(catalog)
    world.tier([(one, (one, (one + 1) * DAY_US, "void")) for one in (1, 2, 9)], DAYS)
    world.tier([(one, (one, 0, "new")) for one in (2, 3)], layout(*after))
    table = catalog.load_table("shop.orders")
    assert "void" not in [str(field.transform) for field in table.spec().fields]
    world.check(query(PATH), table.scan().to_arrow())


def test_a_void_field_of_a_table_that_never_had_a_layout_is_refused_without_one(
    lake: Lake, catalog: SqlCatalog
) -> None:
    """What is written in the source's own layout has no place for its null."""
    lake.open_table(key_table(EVENTS, buckets=1), incarnation())
    table = catalog.load_table("shop.orders")
    (own,) = table.spec().fields
    void = SpecField(own.source_id, 1 + own.field_id, VoidTransform(), "left")
    added = AddPartitionSpecUpdate(spec=PartitionSpec(own, void, spec_id=1))
    catalog.commit_table(table, (), (added, SetDefaultSpecUpdate.model_validate({"spec-id": -1})))
    with pytest.raises(SchemaMismatchError, match=r"partitioning does not fit.*void"):
        lake.open_table(key_table(EVENTS, buckets=1), incarnation())


def test_another_count_of_buckets_than_the_lake_tables_is_refused_with_what_to_do(lake: Lake) -> None:
    lake.open_table(key_table(EVENTS, buckets=4), incarnation())
    with pytest.raises(SchemaMismatchError, match=r"bucket\[8\].*bucket\[4\].*Set the count back.*`mode = \"mirror\"`"):
        lake.open_table(key_table(EVENTS, buckets=8), incarnation())


def test_files_of_several_specs_survive_an_expiry_with_their_deletes(
    world: World, lake: Lake, catalog: SqlCatalog, query: Callable[..., pa.Table]
) -> None:
    """And what it frees goes, whichever spec it is of."""
    layouts = (layout(), DAYS, layout("bucket(3, id)"), layout("day(ts)", "truncate(1, name)"), layout())
    for turn, wanted in enumerate(layouts):
        for step in range(4):
            changed = range(turn, 30, 3 + step)
            world.tier([(one, (one, (one + turn) * DAY_US, f"n{turn}-{step}")) for one in changed], wanted)
        lake.expire(PATH, frozenset())
        table = catalog.load_table("shop.orders")
        assert orphans_of(table) == set()
        shelf = Shelf()
        for snapshot in table.metadata.snapshots:
            shelf.entries(table, snapshot)
        world.check(query(PATH), table.scan().to_arrow())
    left = catalog.load_table("shop.orders")
    assert (len(left.metadata.snapshots), len(left.specs())) == (2, 4)


def test_a_table_that_loses_its_layout_and_gets_it_back_is_read_right(
    plugin: IcebergLakePlugin, lake: Lake, catalog: SqlCatalog, query: Callable[..., pa.Table]
) -> None:
    for number, wanted in enumerate((DAYS, layout(), DAYS), 1):
        table = log_table(EVENTS, lake_partition=wanted)
        tiering = PartitionedRound(plugin, lake, table, incarnation(), number)
        rows = [{"id": 10 * number + one, "ts": one * DAY_US, "name": "n"} for one in range(3)]
        if wanted:
            tiering.fan_out(records(rows))
        else:
            tiering.write(log_split(table), [source_batch(EVENTS, rows)])
        assert lake.commit(tiering.request()) is CommitOutcome.LANDED
    found = catalog.load_table("shop.orders")
    ids = [10 * number + one for number in (1, 2, 3) for one in range(3)]
    for read in (query(PATH), found.scan().to_arrow()):
        assert sorted(read.column("id").to_pylist()) == ids


@pytest.mark.parametrize("last", [DAYS, ()], ids=["with its layout", "after its layout was taken away"])
def test_a_table_that_had_a_layout_is_not_tiered(world: World, lake: Lake, last: tuple[Wanted, ...]) -> None:
    """The source's clients look for the rows of a bucket in the files of its own layout."""
    world.tier([(1, (1, 0, "a"))], DAYS)
    world.tier([(1, (1, 0, "b"))], last)
    before = lake.head(PATH)
    with pytest.raises(SchemaMismatchError, match="mode: expected `mirror`, because the lake table has had a part"):
        lake.open_table(key_table(EVENTS, buckets=1, union_read=True), incarnation())
    assert lake.head(PATH) == before


@pytest.mark.parametrize("field", ["day(ts)", "bucket(4, id)", "truncate(2, name)"])
def test_a_partition_field_gets_a_name_that_no_column_has(
    lake: Lake, plugin: IcebergLakePlugin, catalog: SqlCatalog, query: Callable[..., pa.Table], field: str
) -> None:
    taken = ("ts_day", "id_bucket_4", "name_trunc_2", "ts_day_")
    schema = pa.schema([*EVENTS, *(pa.field(name, pa.string()) for name in taken)])
    tiering = PartitionedRound(plugin, lake, log_table(schema, lake_partition=layout(field)), incarnation())
    rows = [{"id": one, "ts": one * DAY_US, "name": f"n{one}", "ts_day": "x"} for one in range(5)]
    tiering.fan_out(records(rows, schema=schema))
    lake.commit(tiering.request())
    table = catalog.load_table("shop.orders")
    (name,) = [one.name for one in table.spec().fields]
    assert name not in table.schema().column_names
    assert query(PATH, "ts_day = 'x'").num_rows == table.scan(row_filter="id >= 0").to_arrow().num_rows == 5


def test_a_column_that_comes_later_with_the_name_of_a_partition_field_is_refused(
    world: World, lake: Lake, catalog: SqlCatalog
) -> None:
    """Iceberg's Java could not load such a table, also where only files of an older spec have the field."""
    world.tier([(1, (1, 0, "a"))], DAYS)
    world.tier([(1, (1, 0, "b"))], layout("bucket(4, id)"))
    for name in ("ts_day", "id_bucket_4"):
        wider = key_table(EVENTS.append(pa.field(name, pa.string())), lake_partition=layout("bucket(4, id)"))
        with pytest.raises(SchemaMismatchError, match=f"no new column '{name}', for a partition field"):
            lake.open_table(wider, incarnation())
    assert catalog.load_table("shop.orders").schema().column_names[:3] == EVENTS.names


@pytest.mark.parametrize("text", ["void(id)", "alwaysNull(id)", "years(ts)", "bucket(id, 4)", "truncate(name)"])
def test_a_transform_that_iceberg_has_besides_is_refused_with_those_that_there_are(text: str) -> None:
    expected = r"expected (one of the transforms identity, year|`(bucket|truncate)\(N, column)"
    with pytest.raises(UsageError, match=expected):
        Wanted.parse(text)
