"""A Fluss cluster whose coordinator makes Paimon tables: waves of changes, a service that is killed, Java reads.

Jars are fetched from Maven Central once; where they cannot be had, the test is skipped and says why.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakeward_paimon_kit.java import JavaReader, java_reader
from lakeward_testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakeward_demo.fluss.cluster import FlussCluster
    from lakeward_demo.fluss.writer import FlussWriter

pytestmark = [pytest.mark.fluss, pytest.mark.spark, pytest.mark.slow]
_SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
_DAY = pa.field("day", pa.string(), nullable=False)
_TIERED = {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"}
_PATIENCE_S = 600


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FlussCluster]:
    """A cluster with `datalake.format: paimon` and a warehouse on this disk."""
    for name in ("fluss", "lakeward_demo", "lakeward_source_fluss", "lakeward_lease_fluss"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"needs {name}")
    from lakeward.errors import JavaError  # noqa: PLC0415 - where it is skipped nothing is loaded
    from lakeward_demo.fluss.cluster import ClusterPlan, FlussCluster  # noqa: PLC0415 - as above
    from lakeward_demo.fluss.jars import JarsMissingError  # noqa: PLC0415 - as above

    lake = {
        "datalake.format": "paimon",
        "datalake.paimon.metastore": "filesystem",
        "datalake.paimon.warehouse": str(tmp_path / "warehouse"),
    }
    settings = {"kv.snapshot.interval": "1s", "remote.log.task-interval-duration": "1s"}
    try:
        with FlussCluster.running(tmp_path / "cluster", ClusterPlan(lake=lake, settings=settings)) as cluster:
            yield cluster
    except (JavaError, JarsMissingError) as missing:
        pytest.skip(f"no Fluss cluster here: {missing}")


@pytest.fixture
def writer(cluster: FlussCluster) -> Iterator[FlussWriter]:
    """Writes to the cluster."""
    from lakeward_demo.fluss.writer import FlussWriter  # noqa: PLC0415 - see `cluster`

    writer = FlussWriter(cluster.bootstrap, restart_coordinator=cluster.restart_coordinator)
    yield writer
    writer.close()


@pytest.fixture
def service(cluster: FlussCluster, tmp_path: Path) -> Path:
    """The folder of a service's configuration."""
    told = f"""
[service]
name = "waves"
[source]
type = "fluss"
bootstrap = "{cluster.bootstrap.partition(",")[0]}"
[lake]
type = "paimon"
warehouse = "{tmp_path / "warehouse"}"
[spark]
master = "local[2]"
"""
    (tmp_path / "lakeward.toml").write_text(told, encoding="utf-8")
    return tmp_path


def test_tables_of_all_four_shapes_follow_the_cluster_over_waves_and_a_kill(
    writer: FlussWriter, service: Path, tmp_path: Path
) -> None:
    parted = _SCHEMA.append(_DAY)
    writer.create("walk.log", _SCHEMA, buckets=2, properties=_TIERED)
    writer.create("walk.keyed", _SCHEMA, key=["id"], buckets=2, properties=_TIERED)
    writer.create("walk.parts", parted, partition=["day"], buckets=1, bucket_key=["id"], properties=_TIERED)
    writer.create("walk.kparts", parted, key=["id", "day"], partition=["day"], buckets=2, properties=_TIERED)
    writer.append("walk.log", rows(0, 20))
    writer.upsert("walk.keyed", rows(0, 10))
    for day in ("mon", "tue"):
        for name in ("parts", "kparts"):
            writer.partition(f"walk.{name}", {"day": day})
        writer.append("walk.parts", rows(0, 5, day))
        writer.upsert("walk.kparts", rows(0, 5, day))
    run_once(service)
    writer.change(
        "walk.keyed",
        [("upsert", {"id": 3, "name": "three"}), ("delete", {"id": 4}), ("upsert", {"id": 900, "name": "more"})],
    )
    writer.change(
        "walk.kparts", [("upsert", {"id": 3, "name": "three", "day": "mon"}), ("delete", {"id": 4, "day": "tue"})]
    )
    writer.append("walk.log", rows(20, 5))
    writer.append("walk.parts", rows(5, 2, "mon"))
    kill_while_it_writes(service)
    writer.change("walk.keyed", [("delete", {"id": 900}), ("upsert", {"id": 4, "name": "back"})])
    writer.append("walk.log", rows(25, 5))
    run_once(service)
    with java_reader() as java:
        check(java, tmp_path)


def check(java: JavaReader, place: Path) -> None:
    """Compare the tables with what the cluster has."""

    def found(name: str, *columns: str) -> list[tuple[Any, ...]]:
        read = java.rows(java.table(f"{place}/warehouse", f"walk.{name}"), *columns)
        return sorted((int(one[0]), *one[1:]) for one in read)

    assert found("log", "id") == [(number,) for number in range(30)]
    named = {number: f"n{number}" for number in range(10)} | {3: "three", 4: "back"}
    assert found("keyed", "id", "name") == sorted(named.items())
    days = [(number, day) for number in range(5) for day in ("mon", "tue")] + [(5, "mon"), (6, "mon")]
    assert found("parts", "id", "day") == sorted(days)
    parted = {(number, day): f"n{number}" for number in range(5) for day in ("mon", "tue")} | {(3, "mon"): "three"}
    del parted[4, "tue"]
    assert found("kparts", "id", "day", "name") == sorted((*key, name) for key, name in parted.items())


def rows(first: int, count: int, day: str = "") -> pa.Table:
    """Return some rows, of a partition if one is given."""
    ids = range(first, first + count)
    made = pa.table({"id": ids, "name": [f"n{number}" for number in ids]}, schema=_SCHEMA)
    return made.append_column(_DAY, pa.array([day] * count)) if day else made


def start(place: Path) -> subprocess.Popen[bytes]:
    """Start the service until every table stands where the cluster stood."""
    command = [sys.executable, "-m", "lakeward", "run", "--once"]
    with (place / "service.log").open("ab") as log:
        return subprocess.Popen(
            command, cwd=place, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )


def run_once(place: Path) -> None:
    """Run the service to its end."""
    assert start(place).wait(_PATIENCE_S) == 0, (place / "service.log").read_text(encoding="utf-8")[-4000:]


def kill_while_it_writes(place: Path) -> None:
    """Start the service, and kill it with all its processes once a file of its round is there."""
    before = set(place.glob("warehouse/**/*.parquet"))
    service = start(place)

    def wrote() -> bool:
        return service.poll() is not None or set(place.glob("warehouse/**/*.parquet")) != before

    wait_until(wrote, "a file of a round", _PATIENCE_S)
    os.killpg(service.pid, signal.SIGKILL)
    service.wait()
