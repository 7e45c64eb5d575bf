"""Iceberg's Java reader agrees with DuckDB and pyiceberg on partitioned tables: rows, deletes, pruning, old specs.

The reader's jar (47 MB) is fetched from Maven Central once. `tox run -e cluster` requires it; elsewhere the tests are
skipped where it cannot be had, and say why.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent

from lakeward.errors import LakeError, SchemaMismatchError
from lakeward.model.results import CommitOutcome
from lakeward.model.tables import Change
from lakeward_iceberg_kit.alike import spoil, tier_prices
from lakeward_iceberg_kit.clean import create_as_fluss
from lakeward_iceberg_kit.java import REQUIRED, JavaReader, java_reader
from lakeward_iceberg_kit.partitioned import (
    DAY_US,
    EVENTS,
    PartitionedRound,
    World,
    layout,
    leave_a_void_field,
    records,
)
from lakeward_iceberg_kit.vectors import TINY, Keys, live
from lakeward_lake_iceberg.entries import first_row_id
from lakeward_lake_iceberg.manifests import MERGED_MANIFESTS
from lakeward_testing.lake_tables import (
    PATH,
    TieringRound,
    head_of,
    incarnation,
    key_table,
    log_split,
    log_table,
    source_batch,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyiceberg.catalog.sql import SqlCatalog

    from lakeward.ports import Lake
    from lakeward_lake_iceberg.lake import IcebergLake
    from lakeward_lake_iceberg.plugin import IcebergLakePlugin

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def java() -> Iterator[JavaReader]:
    """Iceberg's own reader."""
    with java_reader() as reader:
        yield reader


@pytest.fixture
def world(plugin: IcebergLakePlugin, lake: Lake) -> World:
    """An empty table."""
    return World(plugin, lake)


def test_a_key_that_an_update_moved_is_in_its_new_partition_alone_for_all_three_readers(
    world: World, java: JavaReader, catalog: SqlCatalog, query: Callable[..., pa.Table]
) -> None:
    world.tier([(1, (1, 0, "a")), (2, (2, 0, "b")), (3, (3, 4 * DAY_US, "c"))], layout("day(ts)"))
    world.tier([(1, (1, 5 * DAY_US, "moved")), (3, (3, 0, "back"))], layout("day(ts)"))
    table = catalog.load_table("shop.orders")
    world.check(query(PATH), table.scan().to_arrow())
    expected = [(1, "moved"), (2, "b"), (3, "back")]
    assert sorted(java.rows(table.metadata_location, "id", "name")) == expected
    where = java.expressions.lessThan("ts", "1970-01-02T00:00:00")
    assert sorted(java.rows(table.metadata_location, "id", where=where)) == [(2,), (3,)]
    where = java.expressions.greaterThanOrEqual("ts", "1970-01-05T00:00:00")
    assert java.rows(table.metadata_location, "id", where=where) == [(1,)]


def test_rows_of_three_layouts_and_their_deletes_are_read_by_java(
    world: World, java: JavaReader, catalog: SqlCatalog, query: Callable[..., pa.Table]
) -> None:
    world.tier([(one, (one, one * DAY_US, f"n{one}")) for one in range(30)], layout())
    world.tier([(one, (one, (one + 1) * DAY_US, "day")) for one in range(0, 30, 3)], layout("day(ts)"))
    world.tier([(one, (one, None, "both")) for one in range(0, 30, 5)], layout("month(ts)", "bucket(4, id)"))
    world.tier([(one, None) for one in (0, 7, 29)], layout("truncate(2, name)", "bucket(4, id)"))
    table = catalog.load_table("shop.orders")
    found = java.rows(table.metadata_location, "id", "name")
    assert sorted(found) == sorted((key, name) for key, _, name in world.rows.values())
    world.check(query(PATH), table.scan().to_arrow())
    attached = java.deletes_of(table.metadata_location)
    assert sum(map(len, attached.values())) >= 6
    for key in (1, 5, 9, 29):
        where = java.expressions.equal("id", key)
        expected = [(key, world.rows[key][2])] if key in world.rows else []
        assert java.rows(table.metadata_location, "id", "name", where=where) == expected


def test_a_void_field_and_a_layout_that_was_taken_away_are_read_by_java(
    world: World, java: JavaReader, catalog: SqlCatalog, query: Callable[..., pa.Table]
) -> None:
    world.tier([(one, (one, one * DAY_US, "old")) for one in range(6)], layout("bucket(4, id)", "day(ts)"))
    world.lake.open_table(key_table(EVENTS, lake_partition=layout("day(ts)"), buckets=1), incarnation())
    leave_a_void_field(catalog)
    world.tier([(one, (one, (one + 1) * DAY_US, "void")) for one in (1, 2, 9)], layout("day(ts)"))
    world.tier([(one, (one, 0, "plain")) for one in (2, 3)], layout())
    table = catalog.load_table("shop.orders")
    assert [[str(one.transform) for one in spec.fields] for spec in table.specs().values()] == [
        ["bucket[4]", "day"],
        ["day"],
        ["void", "day"],
        ["bucket[1]"],
    ]
    world.check(query(PATH), table.scan().to_arrow())
    expected = sorted((key, name) for key, _, name in world.rows.values())
    assert sorted(java.rows(table.metadata_location, "id", "name")) == expected
    late = java.expressions.greaterThanOrEqual("ts", "1970-01-10T00:00:00")
    assert java.rows(table.metadata_location, "id", where=late) == [(9,)]


@pytest.mark.parametrize("name", ["order-id", "1st", "a.b"])
def test_a_key_column_of_any_name_is_found_in_a_file_that_java_rewrote(
    plugin: IcebergLakePlugin, lake: Lake, java: JavaReader, catalog: SqlCatalog, name: str
) -> None:
    schema = pa.schema([pa.field("text", pa.string()), pa.field(name, pa.int64(), nullable=False)])
    table = key_table(schema, primary_key=(name,), bucket_key=())
    for number in (1, 2):
        tiering = TieringRound(plugin, lake, table, incarnation(), number)
        rows = [{name: key, "text": f"round {number}"} for key in (number, 7)]
        tiering.write(log_split(table), [source_batch(schema, rows, changes=[Change.UPDATE_AFTER] * 2)])
        assert lake.commit(tiering.request()) is CommitOutcome.LANDED
        if number == 1:
            _replace_files(catalog, java)
    found = catalog.load_table("shop.orders").scan().to_arrow()
    assert sorted(zip(found[name].to_pylist(), found["text"].to_pylist(), strict=True)) == [
        (1, "round 1"),
        (2, "round 2"),
        (7, "round 2"),
    ]


KEY: dict[str, tuple[pa.DataType, object]] = {
    "a flag": (pa.bool_(), True),
    "1st": (pa.int32(), -1),
    "amount-1": (pa.decimal128(20, 2), Decimal("-1.25")),
    "amount-2": (pa.decimal128(38, 2), Decimal("1e30")),
    "a.b": (pa.string(), "\u00e9"),
    "raw/": (pa.binary(), b"\xff\x00"),
    "%day": (pa.date32(), -1),
    "time+": (pa.time32("ms"), 1),
    "at-1": (pa.timestamp("us"), -1),
    "at-2": (pa.timestamp("us", "UTC"), 1),
}


@pytest.mark.parametrize(
    "fields", [(), ("day(at-1)", "bucket(3, amount-1)"), ("a.b", "truncate(10, 1st)"), ("%day", "month(at-2)")], ids=str
)
def test_a_key_of_all_types_is_found_in_a_file_that_java_rewrote_in_a_partition(
    plugin: IcebergLakePlugin, lake: Lake, java: JavaReader, catalog: SqlCatalog, fields: tuple[str, ...]
) -> None:
    schema = pa.schema([*(pa.field(name, kind, nullable=False) for name, (kind, _) in KEY.items()), ("n", pa.int32())])
    table = key_table(schema, primary_key=tuple(KEY), bucket_key=(), lake_partition=layout(*fields))
    for number in (1, 2):
        tiering = PartitionedRound(plugin, lake, table, incarnation(), number)
        rows = [{name: value for name, (_, value) in KEY.items()} | {"n": number}]
        if fields:
            tiering.fan_out(records(rows, schema=schema, changes=[Change.UPDATE_AFTER]))
        else:
            tiering.write(log_split(table), [source_batch(schema, rows, changes=[Change.UPDATE_AFTER])])
        assert lake.commit(tiering.request()) is CommitOutcome.LANDED
        if number == 1:
            _replace_files(catalog, java)
    assert catalog.load_table("shop.orders").scan().to_arrow()["n"].to_pylist() == [2]


@pytest.mark.parametrize("kind", ["ORC", "AVRO"])
def test_a_file_of_java_in_another_format_suspends_the_table_until_it_is_rewritten(
    plugin: IcebergLakePlugin, lake: IcebergLake, java: JavaReader, catalog: SqlCatalog, kind: str
) -> None:
    def tier(number: int) -> None:
        tiering = TieringRound(plugin, lake, key_table(EVENTS, bucket_key=()), incarnation(), number)
        rows = [{"id": key, "ts": None, "name": f"round {number}"} for key in (number, 7)]
        tiering.write(log_split(tiering.table), [source_batch(EVENTS, rows, changes=[Change.UPDATE_AFTER] * 2)])
        assert lake.commit(tiering.request()) is CommitOutcome.LANDED

    tier(1)
    path = _replace_files(catalog, java, kind)
    said = f"{path}: expected a Parquet file, found one in {kind}; set .*write.format.default to parquet and rewrite"
    with pytest.raises(SchemaMismatchError, match=said) as refused:
        tier(2)
    assert refused.value.permanent
    snapshot = head_of(lake).snapshot_id or 0
    for read in (lake.read_rows(PATH, snapshot), lake.check_files(PATH, snapshot, None)):
        with pytest.raises(LakeError, match=said):
            list(read)
    _replace_files(catalog, java)
    tier(2)
    found = catalog.load_table("shop.orders").scan().to_arrow()
    assert sorted(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True)) == [
        (1, "round 1"),
        (2, "round 2"),
        (7, "round 2"),
    ]


def _replace_files(catalog: SqlCatalog, java: JavaReader, kind: str = "PARQUET") -> str:
    """Replace the table's only data file by one that Java writes, and return its path."""
    table = catalog.load_table("shop.orders")
    (old,) = (task.file for task in table.scan().plan_files())
    path = f"{table.location()}/data/java.{kind.lower()}"
    new = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat(kind),
        partition=old.partition,
        record_count=old.record_count,
        file_size_in_bytes=java.rewrite(table.metadata_location, path, kind),
    )
    with table.transaction() as change, change.update_snapshot().overwrite() as files:
        files.delete_data_file(old)
        files.append_data_file(new)
    return path


def test_java_finds_each_value_by_pruning_partitions_of_every_transform(
    world: World, java: JavaReader, catalog: SqlCatalog
) -> None:
    """A partition value that Java computes otherwise would hide the row from a query for its own value."""
    keys = [0, 1, -1, 34, 2**31, -(2**40), 2**62]
    names = ["", "iceberg", "\u00e9\u00e8\U0001f40b\u4e2d\u6587", "a" * 30, "ab", None, "null"]
    days = [0, -1, 1, -719162, 17486, 2932896, None]
    rows = list(zip(keys, names, days, strict=True))
    wanted = layout("bucket(7, id)", "truncate(10, id)", "bucket(5, name)", "truncate(2, name)", "hour(ts)")
    world.tier([(key, (key, None if day is None else day * DAY_US + 7, name)) for key, name, day in rows], wanted)
    table = catalog.load_table("shop.orders")
    for key, name, _ in rows:
        by_key = java.expressions.equal("id", key)
        assert java.rows(table.metadata_location, "id", where=by_key) == [(key,)]
        by_name = java.expressions.isNull("name") if name is None else java.expressions.equal("name", name)
        assert java.rows(table.metadata_location, "id", where=by_name) == [(key,)]
    late = java.expressions.lessThan("ts", "0002-01-01T00:00:00")
    assert java.rows(table.metadata_location, "id", where=late) == [(34,)]


def test_partition_fields_of_one_decimal_type_are_read_by_java(
    lake: Lake, plugin: IcebergLakePlugin, java: JavaReader, catalog: SqlCatalog
) -> None:
    names = tier_prices(plugin, lake, MERGED_MANIFESTS + 2)
    metadata = catalog.load_table("shop.orders").metadata_location
    assert sorted(java.rows(metadata, "id", "name")) == sorted(names.items())
    assert any(java.deletes_of(metadata).values())
    for field, value in (("price", "-5.00"), ("tax", "0.50")):
        where = java.expressions.equal(field, Decimal(value))
        assert java.rows(metadata, "id", where=where) == [(5,)]


def test_a_manifest_that_java_cannot_read_is_an_error_and_no_empty_table(
    world: World, java: JavaReader, catalog: SqlCatalog
) -> None:
    """py4j's own iterators take an error of Java's for the end."""
    py4j = pytest.importorskip("py4j.protocol")
    world.tier([(1, (1, 0, "a"))], layout("day(ts)"))
    table = catalog.load_table("shop.orders")
    snapshot = table.current_snapshot()
    assert snapshot is not None
    for manifest in snapshot.manifests(table.io):
        spoil(manifest)
    with pytest.raises(py4j.Py4JJavaError, match="Not an Avro data file"):
        java.rows(table.metadata_location, "id")
    with pytest.raises(py4j.Py4JJavaError, match="Not an Avro data file"):
        java.deletes_of(table.metadata_location)


@pytest.mark.parametrize(("required", "outcome"), [("", pytest.skip.Exception), ("required", pytest.fail.Exception)])
def test_a_jar_that_cannot_be_had_is_a_failure_where_it_is_required_and_else_a_skip(
    required: str, outcome: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark", reason="its Ivy fetches the jar")
    pytest.importorskip("lakeward_source_fluss", reason="runs Ivy")
    settings = tmp_path / "nowhere.xml"
    settings.write_text(
        """<ivysettings><settings defaultResolver="nowhere"/><resolvers>
        <ibiblio name="nowhere" m2compatible="true" usepoms="false" root="http://127.0.0.1:9/"/>
        </resolvers></ivysettings>""",
        encoding="utf-8",
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LAKEWARD_IVY_SETTINGS", str(settings))
    monkeypatch.setenv(REQUIRED, required)
    with pytest.raises(outcome, match="iceberg-spark-runtime"), java_reader():
        pass


@pytest.mark.parametrize("keyed", [False, True], ids=["log", "keyed"])
def test_java_reads_tables_without_system_columns(
    plugin: IcebergLakePlugin,
    lake: Lake,
    java: JavaReader,
    catalog: SqlCatalog,
    *,
    keyed: bool,
) -> None:
    """An unpartitioned one, whose files have a partition of no values, and one with deletes."""
    table = key_table(union_read=True) if keyed else log_table(union_read=True)
    create_as_fluss(catalog, table)
    for number, rows in enumerate(([(1, "a"), (2, "b")], [(1, "new")])):
        tiering = TieringRound(plugin, lake, table, incarnation(), number)
        named = [{"id": one, "name": name} for one, name in rows]
        changes = [Change.UPDATE_AFTER] * len(rows) if keyed else None
        tiering.write(log_split(table), [source_batch(table.schema, named, changes=changes, start=10 * number)])
        assert lake.commit(tiering.request()) is CommitOutcome.LANDED
    found = java.rows(catalog.load_table("shop.orders").metadata_location, "id", "name")
    assert sorted(found) == [*([] if keyed else [(1, "a")]), (1, "new"), (2, "b")]


@pytest.mark.parametrize("version", ["3", "2"], ids=["made", "upgraded"])
def test_deletion_vectors_and_row_ids_are_read_by_java(  # noqa: PLR0917 - fixtures
    plugin: IcebergLakePlugin,
    lake: IcebergLake,
    java: JavaReader,
    catalog: SqlCatalog,
    query: Callable[..., pa.Table],
    version: str,
) -> None:
    keys = Keys(plugin, lake, version)
    keys.tier(list(range(20)))
    keys.tier([1, 2], [3], TINY)
    lake.upgrade(PATH)
    keys.tier([1, 4], [5], TINY)
    keys.check(catalog, query)
    metadata = catalog.load_table("shop.orders").metadata_location
    assert sorted(java.rows(metadata, "id", "name")) == sorted(keys.rows.items())
    attached = java.deletes_of(metadata)
    assert {path.rpartition(".")[2] for some in attached.values() for path in some} == {"puffin"}
    assert max(map(len, attached.values())) == 1
    assert java.row_ids(metadata) == {one.file_path: first_row_id(one) for one in live(catalog, ManifestContent.DATA)}
