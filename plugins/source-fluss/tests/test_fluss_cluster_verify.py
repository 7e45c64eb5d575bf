"""`lakeward verify` between a real cluster and the Iceberg tables that were tiered from it; no Spark is needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lakeward.clock import SystemClock
from lakeward.model.settings import TableSettings
from lakeward_service_kit.service_world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward_source_fluss_kit.clusters import LakeCluster

pytestmark = [pytest.mark.fluss, pytest.mark.slow]
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
TIERED = {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"}
DATABASE = "verified"
LOG, KEYED = f"{DATABASE}.log", f"{DATABASE}.keyed"
CLEAN_LOG, CLEAN_KEYED = f"{DATABASE}.clean_log", f"{DATABASE}.clean_keyed"
"""Their lake tables are as Fluss 1.0 makes them: without system columns."""
TABLES = {LOG: 310, CLEAN_LOG: 310, KEYED: 299, CLEAN_KEYED: 299}
"""Rows at the end."""
ROWS = 300
REMOVED = 7
CONFIG = """
[service]
name = "svc"
[source]
type = "fluss"
bootstrap = "{bootstrap}"
[lake]
type = "iceberg"
catalog = "rest"
uri = "{uri}"
warehouse = "{warehouse}"
[checkpoint]
root = "state"
"""


@pytest.fixture(scope="module")
def place(lake_cluster: LakeCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with a configuration; log tables and primary-key tables are tiered, in two rounds each."""
    place = tmp_path_factory.mktemp("verified")
    text = CONFIG.format(
        bootstrap=lake_cluster.cluster.bootstrap, uri=lake_cluster.catalog_uri, warehouse=lake_cluster.warehouse
    )
    (place / "lakeward.toml").write_text(text, encoding="utf-8")
    world = World.create(place)
    world.rules = lambda path: TableSettings(include=path.database == DATABASE)
    writer = lake_cluster.writer
    for name in (LOG, CLEAN_LOG):
        writer.create(name, SCHEMA, buckets=2, properties=TIERED)
        writer.append(name, rows(0, ROWS))
    for name in (KEYED, CLEAN_KEYED):
        writer.create(name, SCHEMA, key=["id"], buckets=2, properties=TIERED)
        writer.upsert(name, rows(0, ROWS))
    for name in (CLEAN_LOG, CLEAN_KEYED):
        lake_cluster.take_system_columns_away(name)
    tier(lake_cluster, world)
    for name in (LOG, CLEAN_LOG):
        writer.append(name, rows(ROWS, 10))
    for name in (KEYED, CLEAN_KEYED):
        writer.change(name, [("upsert", {"id": 3, "name": "new"}), ("delete", {"id": 4})])
    tier(lake_cluster, world)
    yield place
    for name in TABLES:
        lake_cluster.drop(name)


def rows(start: int, count: int) -> pa.Table:
    ids = range(start, start + count)
    return pa.table({"id": ids, "name": [f"n{number}" for number in ids]}, schema=SCHEMA)


def tier(cluster: LakeCluster, world: World) -> None:
    """Let a service tier what is there, its subtasks on threads."""
    plugin = pytest.importorskip("lakeward_lake_iceberg.plugin", reason="the lake").IcebergLakePlugin()
    options = plugin.options(warehouse=cluster.warehouse, catalog="rest", uri=cluster.catalog_uri)
    clock = SystemClock()
    source, lake = cluster.source(), plugin.open(options, clock)
    try:
        end = world.once(
            source=source,
            source_type="fluss",
            lake=lake,
            lake_type="iceberg",
            lake_commit_timeout_s=30.0,
        )
    finally:
        lake.close()
        source.close()
    assert end.failed == ()


def verified(place: Path, name: str) -> tuple[int, Any]:
    """Verify a table by the command; gives the exit code and the document."""
    # Where the tests ask for warnings of encodings, numba's import gives one; a user's Python does not ask.
    quiet = ["-W", "ignore::EncodingWarning:numba.core.config"]
    command = [sys.executable, *quiet, "-m", "lakeward", "verify", name, "-o", "json"]
    done = subprocess.run(command, cwd=place, capture_output=True, encoding="utf-8", check=False, timeout=120)
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


@pytest.fixture
def file(lake_cluster: LakeCluster, name: str) -> Iterator[Path]:
    """The data file with the row of id 7; a person may change it, and it is put back afterwards."""
    tasks = lake_cluster.catalog.load_table(name).scan().plan_files()
    files = [Path(task.file.file_path.removeprefix("file://")) for task in tasks]
    (found,) = [file for file in files if REMOVED in pq.read_table(file, partitioning=None).column("id").to_pylist()]
    before = found.read_bytes()
    yield found
    found.write_bytes(before)


@pytest.mark.parametrize(("name", "count"), TABLES.items())
def test_what_was_tiered_from_a_cluster_is_equal(place: Path, name: str, count: int) -> None:
    code, found = verified(place, name)
    assert (code, found["equal"], found["source_rows"], found["lake_rows"]) == (0, True, count, count)


def test_a_lake_table_without_system_columns_stays_so(place: Path, lake_cluster: LakeCluster) -> None:
    assert place.is_dir()
    made = {name: lake_cluster.catalog.load_table(name) for name in (CLEAN_LOG, CLEAN_KEYED)}
    assert {name: table.schema().column_names for name, table in made.items()} == dict.fromkeys(made, SCHEMA.names)
    assert made[CLEAN_LOG].spec().is_unpartitioned()
    assert [field.name for field in made[CLEAN_KEYED].spec().fields] == ["id_bucket"]


@pytest.mark.parametrize("name", TABLES)
def test_one_row_that_was_removed_from_the_lake_by_hand_is_found(place: Path, name: str, file: Path) -> None:
    before = pq.read_table(file, partitioning=None)
    pq.write_table(before.filter(pc.not_equal(before.column("id"), REMOVED)), file)
    code, found = verified(place, name)
    assert (code, {kind: number for kind, number in found["counts"].items() if number}) == (1, {"missing": 1})
    (first,) = found["first"]
    assert first["kind"] == "missing"
    if name in {KEYED, CLEAN_KEYED}:
        assert first["key"] == {"id": str(REMOVED)}
