"""Spark's own procedures of Iceberg rewrite our tables between rounds: `rewrite_data_files`, deletes by vectors.

Iceberg has no runtime for Spark 4.2 or later, so these tests are skipped there; `tox run -e spark41` runs them. The jar
is fetched from Maven Central once.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.manifest import FileFormat

from lakeward.model.results import CommitOutcome
from lakeward.model.tables import Change
from lakeward_demo.rest_server import RestCatalogServer
from lakeward_iceberg_kit.java import iceberg_jar
from lakeward_iceberg_kit.partitioned import DAY_US, PartitionedRound, layout, records
from lakeward_iceberg_kit.vectors import TINY, Keys, lineage
from lakeward_lake_iceberg.sql import LineageSqlCatalog
from lakeward_testing.lake_tables import PATH, head_of, incarnation, key_table, log_split, source_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyiceberg.catalog.sql import SqlCatalog

    from lakeward_lake_iceberg.lake import IcebergLake
    from lakeward_lake_iceberg.options import IcebergOptions
    from lakeward_lake_iceberg.plugin import IcebergLakePlugin

# pyspark leaves the sockets of `collect` to the garbage collector.
pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"),
]
SCHEMA = pa.schema(
    [
        pa.field("order-id", pa.int64(), nullable=False),
        pa.field("1st", pa.string()),
        pa.field("a.b", pa.timestamp("us")),
        pa.field("tags", pa.list_(pa.struct([("x y", pa.float64())]))),
        pa.field("round", pa.int32()),
    ]
)
if TYPE_CHECKING:
    Sql = Callable[[str], list[Any]]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """A Spark with Iceberg's extensions."""
    pyspark = pytest.importorskip("pyspark")
    version = ".".join(pyspark.__version__.split(".")[:2])
    if version != "4.1":
        pytest.skip(f"Iceberg has no runtime for Spark {version}; `tox run -e spark41` has Spark 4.1")
    java, jar = iceberg_jar("4.1_2.13", "1.12.0")
    from pyspark.sql import SparkSession  # noqa: PLC0415 - where it is skipped nothing is loaded

    settings: dict[str, Any] = {
        "spark.jars": str(jar),
        "spark.ui.enabled": "false",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(java.parent.parent))
        session = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
        yield session
        session.stop()


@pytest.fixture
def sql(spark: Any, options: IcebergOptions) -> Iterator[Sql]:  # noqa: ANN401 - not typed
    """Asks Spark: its catalog `lake` is a REST server over the lake's own database, `files` has none."""
    with RestCatalogServer.running(Path(options.warehouse), catalog=LineageSqlCatalog) as server:
        settings = {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".type": "rest",
            ".uri": server.uri,
            ".cache-enabled": "false",
        }
        session = spark.newSession()
        for key, value in settings.items():
            session.conf.set(f"spark.sql.catalog.lake{key}", value)
        for key, value in {"": settings[""], ".type": "hadoop", ".warehouse": f"{options.warehouse}/files"}.items():
            session.conf.set(f"spark.sql.catalog.files{key}", value)
        yield lambda text: list(session.sql(text).collect())


class World:
    """A table of ours, and the rows that it must have."""

    def __init__(self, plugin: IcebergLakePlugin, lake: IcebergLake, fields: tuple[str, ...]) -> None:
        """Start empty."""
        self.plugin, self.lake = plugin, lake
        self.table = key_table(SCHEMA, primary_key=("order-id",), bucket_key=(), lake_partition=layout(*fields))
        self.rows: dict[int, dict[str, Any]] = {}
        self.number = 0

    def tier(self, keys: range, gone: range = range(0)) -> None:
        """Commit a round that sets some rows and deletes others."""
        self.number += 1
        tiering = PartitionedRound(self.plugin, self.lake, self.table, incarnation(), self.number)
        new = {key: row(key, self.number) for key in keys}
        old = [self.rows.pop(key) for key in gone]
        self.rows |= new
        changed = [*old, *new.values()]
        kinds = [Change.DELETE] * len(old) + [Change.UPDATE_AFTER] * len(new)
        if self.table.lake_partition:
            tiering.fan_out(records(changed, schema=SCHEMA, changes=kinds))
        else:
            tiering.write(log_split(self.table), [source_batch(SCHEMA, changed, changes=kinds)])
        assert self.lake.commit(tiering.request()) is CommitOutcome.LANDED

    def check(self) -> None:
        """Read the table as `lakeward verify` does."""
        snapshot = head_of(self.lake).snapshot_id or 0
        assert list(self.lake.check_files(PATH, snapshot, None)) == []
        found = [one for batch in self.lake.read_rows(PATH, snapshot) for one in batch.select(SCHEMA.names).to_pylist()]
        assert sorted(found, key=lambda one: one["order-id"]) == [plain(self.rows[key]) for key in sorted(self.rows)]


def row(key: int, number: int) -> dict[str, Any]:
    """Return a row; its partition is the same in each round."""
    tags = [None, [], [{"x y": -0.0}, None]][key % 3]
    at = None if key == 4 else key * DAY_US - 1
    return {"order-id": key, "1st": f"n{key % 2}", "a.b": at, "tags": tags, "round": number}


def plain(values: dict[str, Any]) -> dict[str, Any]:
    """Return a row as Arrow reads it."""
    return dict(pa.Table.from_pylist([values], SCHEMA).to_pylist()[0])


@pytest.mark.parametrize(
    "fields", [(), ("1st",), ("day(a.b)", "bucket(3, order-id)"), ("truncate(1, 1st)", "month(a.b)")], ids=str
)
@pytest.mark.parametrize(
    "how", ["", ", strategy => 'sort', sort_order => '`1st` DESC NULLS LAST, `order-id`'"], ids=["binpack", "sort"]
)
def test_rounds_go_on_after_spark_rewrote_the_data_files(
    plugin: IcebergLakePlugin, lake: IcebergLake, sql: Sql, fields: tuple[str, ...], how: str
) -> None:
    world = World(plugin, lake, fields)
    for keys, gone in ((range(12), range(0)), (range(3, 8), range(2)), (range(6, 15), range(2, 4))):
        world.tier(keys, gone)
        (done,) = sql(
            f"CALL lake.system.rewrite_data_files(table => 'shop.orders'{how}, options => map('rewrite-all', 'true'))"
        )
        assert done["rewritten_data_files_count"]
        world.check()
    world.tier(range(5), range(9, 12))
    world.check()
    found = sql("SELECT `order-id`, round FROM lake.shop.orders ORDER BY 1")
    assert [tuple(one) for one in found] == [(key, world.rows[key]["round"]) for key in sorted(world.rows)]


def test_files_that_spark_sorted_have_the_order_that_they_claim(
    plugin: IcebergLakePlugin, lake: IcebergLake, catalog: SqlCatalog, sql: Sql
) -> None:
    world = World(plugin, lake, ())
    for keys in (range(12), range(3, 8)):
        world.tier(keys)
    sql(
        "CALL lake.system.rewrite_data_files(table => 'shop.orders', strategy => 'sort', "
        "options => map('rewrite-all', 'true'))"
    )
    tasks = catalog.load_table("shop.orders").scan().plan_files()
    assert {task.file.sort_order_id for task in tasks} == {1}
    world.check()


def test_deletion_vectors_of_spark_are_read_and_their_table_can_be_stamped(
    lake: IcebergLake, catalog: SqlCatalog, sql: Sql, options: IcebergOptions
) -> None:
    sql(
        "CREATE TABLE files.shop.orders USING iceberg TBLPROPERTIES "
        "('format-version' = '3', 'write.delete.mode' = 'merge-on-read') AS SELECT id FROM range(0, 6, 1, 1)"
    )
    sql("DELETE FROM files.shop.orders WHERE id IN (1, 4)")
    (newest,) = Path(f"{options.warehouse}/files/shop/orders/metadata").glob("v2.*")
    catalog.create_namespace("shop")
    table = catalog.register_table("shop.orders", f"file://{newest}")
    (task,) = table.scan().plan_files()
    assert {one.file_format for one in task.delete_files} == {FileFormat.PUFFIN}
    snapshot = head_of(lake).snapshot_id or 0
    assert [one for batch in lake.read_rows(PATH, snapshot) for one in batch["id"].to_pylist()] == [0, 2, 3, 5]
    assert list(lake.check_files(PATH, snapshot, None)) == []
    stamped = lake.stamp(PATH, incarnation()).snapshot_id or 0
    assert [one for batch in lake.read_rows(PATH, stamped) for one in batch["id"].to_pylist()] == [0, 2, 3, 5]


def test_spark_reads_our_vectors_and_row_ids_and_its_own_deletes_stand_beside_rounds(
    plugin: IcebergLakePlugin,
    lake: IcebergLake,
    catalog: SqlCatalog,
    read_table: Callable[..., pa.Table],
    sql: Sql,
) -> None:
    keys = Keys(plugin, lake)
    keys.tier(list(range(20)))
    keys.tier([1, 2], [3], TINY)
    ids = {key: row_id for key, (row_id, _) in lineage(catalog).items()}
    assert {one["id"]: one["_row_id"] for one in sql("SELECT id, _row_id FROM lake.shop.orders")} == ids
    sql("DELETE FROM lake.shop.orders WHERE id IN (5, 6)")
    keys.rows = {key: name for key, name in keys.rows.items() if key not in {5, 6}}
    keys.check(catalog, read_table)
    keys.tier([7, 8], [9])
    keys.check(catalog, read_table)
    found = sql("SELECT id, name FROM lake.shop.orders")
    assert sorted((one["id"], one["name"]) for one in found) == sorted(keys.rows.items())
    sql("CALL lake.system.rewrite_data_files(table => 'shop.orders', options => map('rewrite-all', 'true'))")
    keys.tier([10], [11])
    keys.check(catalog, read_table)
