"""From end to end: pyfluss writes, the service tiers to Iceberg, DuckDB reads, Fluss knows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakeward.model.tables import TablePath

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward_source_fluss_kit.clusters import LakeCluster

pytestmark = [pytest.mark.fluss, pytest.mark.spark, pytest.mark.slow]
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
TIERED = {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"}
LOG, KEYED, PARTS = "walk.log", "walk.keyed", "walk.parts"
_RUN_S = 180


@pytest.fixture
def tables(lake_cluster: LakeCluster) -> Iterator[LakeCluster]:
    """A log table, a primary-key table and a partitioned one, with rows; dropped afterwards."""
    day = pa.field("day", pa.string(), nullable=False)
    writer = lake_cluster.writer
    writer.create(LOG, SCHEMA, buckets=2, properties=TIERED)
    writer.create(KEYED, SCHEMA, key=["id"], buckets=2, properties=TIERED)
    writer.create(PARTS, SCHEMA.append(day), partition=["day"], buckets=1, bucket_key=["id"], properties=TIERED)
    writer.append(LOG, _rows(0, 1000))
    writer.upsert(KEYED, _rows(0, 500))
    for name in ("mon", "tue"):
        writer.partition(PARTS, {"day": name})
        rows = _rows(0, 10).append_column(day, pa.array([name] * 10))
        writer.append(PARTS, rows)
    yield lake_cluster
    for name in (LOG, KEYED, PARTS):
        lake_cluster.drop(name)


def test_rows_of_a_cluster_reach_iceberg_and_later_changes_follow(tables: LakeCluster, tmp_path: Path) -> None:
    _run(tables, tmp_path)

    assert _lake(tables, LOG) == {number: f"n{number}" for number in range(1000)}
    assert _lake(tables, KEYED) == {number: f"n{number}" for number in range(500)}
    assert _count(tables, PARTS) == 20

    tables.writer.append(LOG, _rows(1000, 10))
    changes: list[tuple[str, dict[str, object]]]
    changes = [("upsert", {"id": 3, "name": "new"}), ("delete", {"id": 4}), ("upsert", {"id": 900, "name": "more"})]
    tables.writer.change(KEYED, changes)
    _run(tables, tmp_path)

    assert _lake(tables, LOG) == {number: f"n{number}" for number in range(1010)}
    expected = {number: f"n{number}" for number in range(500)} | {3: "new", 900: "more"}
    del expected[4]
    assert _lake(tables, KEYED) == expected
    _check_record(tables, KEYED)


def _run(cluster: LakeCluster, place: Path) -> None:
    """Run `lakeward run --once` to its end."""
    config = place / "lakeward.toml"
    config.write_text(
        f"""
[source]
type = "fluss"
bootstrap = "{cluster.cluster.bootstrap}"
[lake]
type = "iceberg"
catalog = "rest"
uri = "{cluster.catalog_uri}"
warehouse = "{cluster.warehouse}"
[spark]
master = "local[2]"
ui = false
[tables."*.*"]
include = false
[tables."walk.*"]
include = true
""",
        encoding="utf-8",
    )
    command = [
        str(Path(sys.executable).with_name("lakeward")),
        "run",
        "--once",
        "--no-progress",
        "--config",
        str(config),
    ]
    log = place / "run.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        try:
            code = process.wait(_RUN_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    assert code == 0, log.read_text(encoding="utf-8")


def _lake(cluster: LakeCluster, name: str) -> dict[int, str]:
    rows = _ask(cluster, name, "id, name").fetchall()
    assert len(rows) == len({number for number, _ in rows})
    return dict(rows)


def _count(cluster: LakeCluster, name: str) -> int:
    return int(_ask(cluster, name, "count(*)").fetchall()[0][0])


def _ask(cluster: LakeCluster, name: str, what: str) -> Any:  # noqa: ANN401 - DuckDB is not typed
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    for extension in ("avro", "iceberg"):
        place = Path(import_module(f"duckdb_extension_{extension}").__path__[0]) / "extensions"
        connection.execute(f"LOAD '{place}/v{duckdb.__version__}/{extension}.duckdb_extension'")
    location = cluster.catalog.load_table(name).metadata_location
    return connection.execute(f"SELECT {what} FROM iceberg_scan('{location}')")  # noqa: S608 - a test's own text


def _check_record(cluster: LakeCluster, name: str) -> None:
    """Fluss knows the lake's newest snapshot and the offsets that it stands for."""
    source = cluster.source()
    try:
        table = source.table(TablePath.parse(name))
        record = source.lake_record(table)
        assert record is not None
        assert dict(record.offsets) == {state.bucket: state.end for state in source.buckets(table)}
        snapshot = cluster.catalog.load_table(name).snapshot_by_id(record.snapshot_id)
        assert snapshot is not None
    finally:
        source.close()


def _rows(start: int, count: int) -> pa.Table:
    ids = range(start, start + count)
    return pa.table({"id": ids, "name": [f"n{number}" for number in ids]}, schema=SCHEMA)
