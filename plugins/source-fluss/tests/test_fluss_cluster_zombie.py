"""A service that sleeps between its lake commit and its COMMIT at the server, and wakes up after its successor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pyarrow as pa
import pytest

from lakeward.model.tables import TablePath
from lakeward.model.tiering import HeartbeatRequest, TableEpoch
from lakeward_testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward_source_fluss.source.source import FlussSource
    from lakeward_source_fluss_kit.clusters import LakeCluster

pytestmark = [pytest.mark.fluss, pytest.mark.spark, pytest.mark.slow, pytest.mark.crash]
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
PATH = TablePath("zombie", "t")
POINT = f"before-source-commit.{PATH.table}"
_KITS = (Path(__file__).with_name("kit"), Path(__file__).parents[3] / "tests" / "e2e" / "kit")
_RUN_S = 120.0
_CONFIG = """
[service]
name = "tier"
poll_s = 0.2
renew_s = 0.5
fence_s = 30
[source]
type = "fluss-faulty"
bootstrap = "{bootstrap}"
[lake]
type = "iceberg"
catalog = "rest"
uri = "{uri}"
warehouse = "{warehouse}"
[checkpoint]
root = "{root}/state"
[spark]
master = "local[2]"
ui = false
[tables."*.*"]
include = false
[tables."zombie.*"]
include = true
"""


class Services:
    """Service processes on one configuration; all of them end with the test."""

    def __init__(self, root: Path, cluster: LakeCluster) -> None:
        self._root = root
        self._processes: list[subprocess.Popen[bytes]] = []
        self.faults = root / "faults"
        for name in ("once", "always", "fired", "go"):
            (self.faults / name).mkdir(parents=True)
        metadata = root / "site" / "lakeward_source_fluss_faulty-0.1.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: lakeward-source-fluss-faulty\nVersion: 0.1\n", encoding="utf-8"
        )
        points = "[lakeward.source]\nfluss-faulty = lakeward_source_fluss_kit.faulty:FaultyFlussPlugin\n"
        (metadata / "entry_points.txt").write_text(points, encoding="utf-8")
        text = _CONFIG.format(
            bootstrap=cluster.cluster.bootstrap, uri=cluster.catalog_uri, warehouse=cluster.warehouse, root=root
        )
        (root / "tier.toml").write_text(text, encoding="utf-8")

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a service."""
        command = [str(Path(sys.executable).with_name("lakeward")), "run", "--no-progress", *arguments]
        environment = os.environ | {
            "LAKEWARD_TEST_FAULTS": str(self.faults),
            "PYTHONPATH": os.pathsep.join(map(str, (self._root / "site", *_KITS))),
        }
        with (self._root / f"log-{len(self._processes)}.txt").open("wb") as out:
            process = subprocess.Popen(
                [*command, "--config", str(self._root / "tier.toml")],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=environment,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def run_once(self) -> None:
        """Tier what there is."""
        assert self.start("--once").wait(_RUN_S) == 0, self.words()

    def words(self, number: int = -1) -> str:
        """Return what a service has printed."""
        logs = sorted(self._root.glob("log-*.txt"))
        return logs[number].read_text(encoding="utf-8", errors="replace")

    def end(self) -> None:
        """Kill whatever is left, and its Spark."""
        for process in self._processes:
            if process.poll() is None:
                for child in psutil.Process(process.pid).children(recursive=True):
                    with suppress(psutil.NoSuchProcess):  # it ended meanwhile
                        child.kill()
                process.kill()
                process.wait()


@pytest.fixture
def services(lake_cluster: LakeCluster, tmp_path: Path) -> Iterator[Services]:
    """Services that can be paused."""
    if not _KITS[1].is_dir():
        pytest.skip("the end-to-end tests' kit is not here")
    services = Services(tmp_path, lake_cluster)
    yield services
    services.end()


@pytest.fixture
def source(lake_cluster: LakeCluster) -> Iterator[FlussSource]:
    """The source; the test's one table is dropped afterwards."""
    source = lake_cluster.source()
    yield source
    lake_cluster.drop(str(PATH))
    source.close()


def test_zombie_between_lake_commit_and_server_commit_leaves_offsets_right_and_their_file_whole(
    lake_cluster: LakeCluster, services: Services, source: FlussSource
) -> None:
    tiered = {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"}
    lake_cluster.writer.create(str(PATH), SCHEMA, properties=tiered)
    _append(lake_cluster, 0)
    (services.faults / "once" / POINT).write_text("stop-driver", encoding="utf-8")
    zombie = services.start()
    wait_until(
        lambda: (services.faults / "fired" / POINT).exists() or zombie.poll() is not None, "the point to be reached"
    )
    wait_until(lambda: psutil.Process(zombie.pid).status() == psutil.STATUS_STOPPED, "the service to be paused")
    table = source.table(PATH)
    assert source.lake_record(table) is None
    _give_up(source, table.table_id)

    _append(lake_cluster, 100)
    services.run_once()
    assert _registered(source) == 200
    zombie.send_signal(signal.SIGCONT)

    assert zombie.wait(_RUN_S) == 1
    assert "a later start of this service took over" in services.words(0)
    # It may have rewound the record; the file that the record names can be read whatever it did.
    assert _registered(source) in {100, 200}
    _give_up(source, table.table_id)
    _append(lake_cluster, 200)
    services.run_once()
    assert _registered(source) == 300
    rows = lake_cluster.catalog.load_table(str(PATH)).scan().to_arrow().column("id").to_pylist()
    assert sorted(rows) == list(range(300))


def _give_up(source: FlussSource, table_id: int) -> None:
    """Do what the server does by itself after two minutes of silence: whoever asks next is given the table."""
    for epoch in range(1, 10):  # whichever it is: the others are refused, without effect
        source.heartbeat(HeartbeatRequest(failed=(TableEpoch(table_id, epoch, 0),)))


def _registered(source: FlussSource) -> int | None:
    """Return the offset that the server has on record for the one bucket."""
    record = source.lake_record(source.table(PATH))
    return None if record is None else next(iter(record.offsets.values()))


def _append(lake_cluster: LakeCluster, start: int) -> None:
    rows = pa.table({"id": range(start, start + 100), "name": ["n"] * 100}, schema=SCHEMA)
    lake_cluster.writer.append(str(PATH), rows)
