"""A lake table whose configured partitioning changes while it has data: files of several specs, and deletes in them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import ManifestContent

from lakeward.errors import FencedError, LakeError, SchemaMismatchError
from lakeward.model.results import CommitOutcome
from lakeward_iceberg_kit.partitioned import DAY_US, EVENTS, PartitionedRound, Row, World, layout, records
from lakeward_lake_iceberg.detail import unpack_detail
from lakeward_lake_iceberg.entries import live_entries
from lakeward_lake_iceberg.task import unpack_task
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import PATH, incarnation, key_table, log_split, log_table, source_batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.manifest import DataFile

    from lakeward.model.partitioning import PartitionField
    from lakeward.ports import Lake
    from lakeward_lake_iceberg.options import IcebergOptions
    from lakeward_lake_iceberg.plugin import IcebergLakePlugin

LAYOUTS = [
    layout(),
    layout("day(ts)"),
    layout("bucket(3, id)"),
    layout("day(ts)", "bucket(3, id)"),
    layout("truncate(1, name)"),
]


@pytest.fixture
def world(plugin: IcebergLakePlugin, lake: Lake) -> World:
    """An empty one."""
    return World(plugin, lake)


def _live(catalog: SqlCatalog, content: ManifestContent) -> list[DataFile]:
    table = catalog.load_table("shop.orders")
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return [entry.data_file for entry in live_entries(snapshot.manifests(table.io), table.io, content)]


def test_a_layout_that_changes_leaves_old_files_and_is_read_right(
    plugin: IcebergLakePlugin, lake: Lake, catalog: SqlCatalog, query: Callable[..., pa.Table]
) -> None:
    for number, wanted in enumerate((layout(), layout("day(ts)"), layout("day(ts)", "bucket(4, id)"), layout("id")), 1):
        table = log_table(EVENTS, lake_partition=wanted)
        rows = [{"id": 10 * number + one, "ts": one * DAY_US, "name": "n"} for one in range(5)]
        tiering = PartitionedRound(plugin, lake, table, incarnation(), number)
        if wanted:
            tiering.fan_out(records(rows))
        else:
            tiering.write(log_split(table), [source_batch(EVENTS, rows)])
        lake.commit(tiering.request())
    ids = [10 * number + one for number in range(1, 5) for one in range(5)]
    assert sorted(query(PATH).column("id").to_pylist()) == ids
    assert sorted(query(PATH, "ts >= '1970-01-04'").column("id").to_pylist()) == [one for one in ids if one % 10 >= 3]
    found = catalog.load_table("shop.orders")
    assert sorted(found.scan().to_arrow().column("id").to_pylist()) == ids
    assert found.scan(row_filter="id == 23").to_arrow().num_rows == 1
    assert [len(spec.fields) for spec in found.specs().values()] == [1, 1, 2, 1]
    days = [field.field_id for spec in found.specs().values() for field in spec.fields if field.name == "ts_day"]
    assert len(days) == 2
    assert len(set(days)) == 1
    assert {file.spec_id for file in _live(catalog, ManifestContent.DATA)} == {0, 1, 2, 3}


def test_a_layout_that_was_there_before_is_used_again(world: World, lake: Lake, catalog: SqlCatalog) -> None:
    for wanted in (layout(), layout("day(ts)"), layout(), layout("day(ts)"), layout()):
        world.tier([(world.number, (world.number, DAY_US, "n"))], wanted)
        assert catalog.load_table("shop.orders").sort_order().is_unsorted == bool(wanted)
    found = catalog.load_table("shop.orders")
    assert len(found.specs()) == 2
    assert len(found.sort_orders()) == 2
    assert found.properties["lakeward.sorted-by-offset"] == "true"
    world.check(found.scan().to_arrow())


def test_a_layout_that_somebody_else_made_is_refused(world: World, lake: Lake, catalog: SqlCatalog) -> None:
    world.tier([(1, (1, 0, "a"))], layout("day(ts)"))
    with catalog.load_table("shop.orders").update_spec() as update:
        update.add_field("name", "identity")
    for wanted in (layout("day(ts)"), layout("bucket(4, id)"), layout()):
        with pytest.raises(SchemaMismatchError, match=r"partitioning does not fit.*\('name', 'identity'\)"):
            lake.open_table(key_table(EVENTS, lake_partition=wanted), incarnation())


def test_a_start_that_was_overtaken_changes_no_layout(
    plugin: IcebergLakePlugin, options: IcebergOptions, lake: Lake, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.open_table(key_table(EVENTS), incarnation(1000))
    late = plugin.open(options, FakeClock())
    send: Callable[..., Any] = late._client.send  # type: ignore[attr-defined]
    stamped: list[bool] = []

    def overtaken(*arguments: Any) -> Any:  # noqa: ANN401
        if not stamped:
            stamped.append(True)
            lake.stamp(PATH, incarnation(2000))
        return send(*arguments)

    monkeypatch.setattr(late._client, "send", overtaken)  # type: ignore[attr-defined]
    with pytest.raises(FencedError):
        late.open_table(key_table(EVENTS, lake_partition=layout("day(ts)")), incarnation(1000))
    assert stamped
    assert len(catalog.load_table("shop.orders").specs()) == 1
    late.close()


def test_an_update_moves_a_key_from_its_old_partition_to_its_new_one_in_one_commit(
    world: World, lake: Lake, catalog: SqlCatalog, query: Callable[..., pa.Table]
) -> None:
    wanted = layout("day(ts)")
    world.tier([(1, (1, 0, "a")), (2, (2, 0, "b"))], wanted)
    before = lake.head(PATH)
    world.tier([(1, (1, 5 * DAY_US, "moved"))], wanted)
    after = lake.head(PATH)
    assert before is not None
    assert after is not None
    table = catalog.load_table("shop.orders")
    world.check(query(PATH), table.scan().to_arrow())
    assert query(PATH, "id = 1").column("name").to_pylist() == ["moved"]
    assert query(PATH, "ts < '1970-01-02'").column("name").to_pylist() == ["b"]
    (commit,) = [one for one in table.snapshots() if one.parent_snapshot_id == before.snapshot_id]
    assert commit.snapshot_id == after.snapshot_id
    (deletes,) = _live(catalog, ManifestContent.DELETES)
    assert deletes.partition[0] == 0


def test_deletes_lie_in_spec_and_partition_of_their_data_file(
    world: World, catalog: SqlCatalog, query: Callable[..., pa.Table]
) -> None:
    world.tier([(one, (one, one * DAY_US, f"n{one}")) for one in range(6)], layout())
    world.tier([(one, (one, one * DAY_US, "new")) for one in (1, 2)], layout("day(ts)"))
    world.tier([(one, (one, one * DAY_US, "newer")) for one in (1, 3)], layout("bucket(3, id)"))
    data = {file.file_path: file for file in _live(catalog, ManifestContent.DATA)}
    deletes = _live(catalog, ManifestContent.DELETES)
    assert {file.spec_id for file in deletes} == {0, 1}
    for file in deletes:
        target = data[bytes(file.lower_bounds[2147483546]).decode()]
        assert (file.spec_id, file.partition) == (target.spec_id, target.partition)
    world.check(query(PATH), catalog.load_table("shop.orders").scan().to_arrow())


def test_two_writers_replace_the_same_delete_files_of_an_old_file_once(
    world: World, lake: Lake, catalog: SqlCatalog, query: Callable[..., pa.Table]
) -> None:
    world.tier([(one, (one, 0, "old")) for one in range(40)], layout())
    for key in range(4):
        world.tier([(key, (key, 0, "new"))], layout())
    tiering = world.write([(10, (10, 0, "x")), (11, (11, 0, "y")), (12, (12, 0, "z"))], layout("bucket(16, id)"))
    replaced = [unpack_detail(file.detail).replaces for file in tiering.files if file.kind == "deletes"]
    assert len(replaced) > 1
    assert len(set(replaced)) == 1
    assert len(replaced[0]) == 4
    lake.commit(tiering.request())
    live = {file.file_path for file in _live(catalog, ManifestContent.DELETES)}
    assert not live & set(replaced[0])
    assert len(live) == len(replaced)
    table = catalog.load_table("shop.orders")
    world.check(query(PATH), table.scan().to_arrow())
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["removed-position-delete-files"] == "4"


def test_delete_files_that_a_step_before_has_replaced_may_be_gone(
    world: World, lake: Lake, catalog: SqlCatalog, query: Callable[..., pa.Table]
) -> None:
    world.tier([(one, (one, 0, "old")) for one in range(40)], layout())
    for key in range(4):
        world.tier([(key, (key, 0, "new"))], layout())
    tiering = world.write([(10, (10, 0, "x")), (11, (11, 0, "y"))], layout("bucket(16, id)"))
    partitions = {file.path.rpartition("/")[0] for file in tiering.files}
    assert len(partitions) == 2
    files = tiering.files
    for step, partition in enumerate(sorted(partitions)):
        tiering.files = [file for file in files if file.path.startswith(partition + "/")]
        head = lake.head(PATH)
        assert head is not None
        tiering.head = head
        assert lake.commit(replace(tiering.request(), step=step)) is CommitOutcome.LANDED
    world.check(query(PATH), catalog.load_table("shop.orders").scan().to_arrow())


def test_files_of_older_specs_are_looked_at_only_where_their_bounds_allow_it(world: World) -> None:
    for day in range(4):
        world.tier([(day, (day, day * DAY_US, "old"))], layout())
    tiering = world.write([(9, (9, 2 * DAY_US, "new"))], layout("day(ts)"))
    task = unpack_task(tiering.task)
    assert len(task.older_files()) == 4
    assert [sum(one.may_hold((day,)) for one in task.older_files()) for day in (-1, 0, 2, 3, 4, None)] == [
        0,
        1,
        1,
        1,
        0,
        0,
    ]


def test_a_file_with_the_least_number_may_hold_any_that_is_truncated(
    world: World, catalog: SqlCatalog, query: Callable[..., pa.Table]
) -> None:
    """That one wraps around to the largest values, so the bounds say nothing of those between."""
    least, largest = -(2**63), 2**63 - 1
    world.tier([(one, (one, 0, "old")) for one in (least, 5, largest)], layout())
    tiering = world.write([(5, (5, 0, "new"))], layout("truncate(100, id)"))
    (older,) = {one.file.path: one for one in unpack_task(tiering.task).older_files()}.values()
    assert [older.may_hold((value,)) for value in (0, -100, largest - largest % 100)] == [True, True, True]
    world.tier([(5, (5, 0, "newest")), (least, (least, 0, "new"))], layout("truncate(100, id)"))
    world.check(query(PATH), catalog.load_table("shop.orders").scan().to_arrow())


def test_a_delete_of_an_old_file_belongs_to_the_partition_of_its_writer(
    plugin: IcebergLakePlugin, world: World
) -> None:
    world.tier([(1, (1, 0, "a"))], layout())
    tiering = world.write([(1, (1, 0, "b"))], layout("day(ts)"))
    partitioner = plugin.partitioner(tiering.task, tiering.table)
    assert {file.kind for file in tiering.files} == {"data", "deletes"}
    assert {partitioner.partition_of(file) for file in tiering.files} == {b"\x91\x00"}
    older = world.write([(2, (2, 0, "b"))], layout("bucket(2, id)"))
    with pytest.raises(LakeError, match="partition spec"):
        plugin.partitioner(older.task, older.table).partition_of(tiering.files[0])


ROW = st.tuples(st.integers(0, 7), st.none() | st.integers(-2, 2), st.none() | st.sampled_from(["a", "b", "bb"]))
CHANGES = st.lists(st.tuples(ROW, st.booleans()), max_size=9)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rounds=st.lists(st.tuples(CHANGES, st.sampled_from(LAYOUTS)), min_size=1, max_size=5))
def test_a_keyed_table_has_the_rows_of_a_model_whatever_its_layouts_were(
    rounds: list[tuple[list[tuple[Row, bool]], tuple[PartitionField, ...]]],
    tmp_path_factory: pytest.TempPathFactory,
    plugin: IcebergLakePlugin,
    reader: Any,  # noqa: ANN401 - DuckDB is not typed
) -> None:
    warehouse = str(tmp_path_factory.mktemp("warehouse"))
    lake = plugin.open(plugin.options(warehouse=warehouse), FakeClock())
    world = World(plugin, lake)
    for changes, wanted in rounds:
        rows = [
            (key, None if gone else (key, None if day is None else day * DAY_US, name))
            for (key, day, name), gone in changes
        ]
        world.tier(rows, wanted)
    catalog = load_catalog("lakeward", uri=f"sqlite:///{warehouse}/catalog.db")
    table = catalog.load_table("shop.orders")
    found = reader.execute(f"SELECT * FROM iceberg_scan('{table.metadata_location}')").to_arrow_table()  # noqa: S608
    world.check(found, table.scan().to_arrow())
    catalog.close()
    lake.close()


def test_a_type_that_has_become_wider_is_followed_unless_types_are_frozen(lake: Lake, catalog: SqlCatalog) -> None:
    narrow, wide = pa.schema([("id", pa.int32())]), pa.schema([("id", pa.int64())])
    lake.open_table(log_table(narrow), incarnation())
    with pytest.raises(SchemaMismatchError, match="column 'id': type long, found int"):
        lake.open_table(log_table(wide, may_widen=False), incarnation())
    assert str(catalog.load_table(str(PATH)).schema().find_type("id")) == "int"
    lake.open_table(log_table(wide), incarnation())
    assert str(catalog.load_table(str(PATH)).schema().find_type("id")) == "long"
