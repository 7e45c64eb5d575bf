"""A private Fluss cluster, a catalog and a warm service for the benchmarks of the Fluss source.

Rows are made and written with pyfluss by processes of their own, so that this one holds nothing but the service.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from fluss_rows import SCHEMA, append, upsert
from lakeward.clock import SystemClock
from lakeward.model.tables import TablePath
from lakeward_demo.fluss.cluster import ClusterPlan, FlussCluster
from lakeward_demo.fluss.process import free_port
from lakeward_demo.fluss.writer import FlussWriter
from lakeward_source_fluss.source.options import FlussOptions
from lakeward_source_fluss.source.plugin import FlussSourcePlugin
from running_service import RunningService, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakeward.model.status import RoundReport
    from lakeward.model.tables import BucketState

BUCKETS = 4
_SPAWN = multiprocessing.get_context("spawn")
_TIERED = {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"}
_PATIENCE_S = 300
_WARM = 20_000
_WARM_NAME = "bench.warm"
_SETTINGS = {
    "kv.snapshot.interval": "2s",
    "remote.log.task-interval-duration": "1min",
}
_CONFIG = """
[service]
name = "bench"
poll_s = 0.05
rounds = {rounds}
[source]
type = "fluss"
bootstrap = "{bootstrap}"
[lake]
type = "iceberg"
catalog = "rest"
uri = "{uri}"
warehouse = "file://{directory}/warehouse"
compression_level = {level}
[spark]
master = "local[2]"
ui = false
"""


@dataclass
class Stage:
    """A cluster and a service that reads what is not paused."""

    directory: Path
    bootstrap: str
    service: RunningService
    paused: set[str] = field(default_factory=set)

    def create(self, *names: str, key: tuple[str, ...] = ()) -> None:
        """Create tables that the service leaves alone until `tier`."""
        writer = FlussWriter(self.bootstrap)
        for name in names:
            self.paused.add(name)
            writer.create(name, SCHEMA, key=key, buckets=BUCKETS, properties=_TIERED)
        writer.close()

    def apart(self, call: Callable[..., Any], *arguments: object) -> None:
        """Call something with this cluster's address in a process of its own."""
        process = _SPAWN.Process(target=call, args=(self.bootstrap, *arguments))
        process.start()
        process.join()
        if process.exitcode:
            message = f"{call.__name__}: exit code {process.exitcode}"
            raise RuntimeError(message)

    def buckets(self, name: str) -> Sequence[BucketState]:
        """Look at a table's buckets."""
        source = FlussSourcePlugin().open(FlussOptions(bootstrap=self.bootstrap), SystemClock())
        try:
            return source.buckets(source.table(TablePath.parse(name)))
        finally:
            source.close()

    def wait_snapshots(self, name: str) -> None:
        """Wait until KV snapshots of all buckets hold everything that was written."""
        deadline = time.monotonic() + _PATIENCE_S
        while any(one.snapshot is None or one.snapshot.log_offset < one.end for one in self.buckets(name)):
            assert time.monotonic() < deadline, f"{name}: no KV snapshot of all that was written"
            time.sleep(0.5)

    def warm(self) -> None:
        """Let the service do something small: Spark ends a worker after an idle minute, and a new one begins cold."""
        self.apart(append, _WARM_NAME, 0, _WARM)
        self.let(_WARM_NAME, _WARM)

    def tier(self, name: str, records: int) -> list[RoundReport]:
        """Let the service have a table, and wait until its rounds add up to so many records."""
        self.warm()
        return self.let(name, records)

    def let(self, name: str, records: int) -> list[RoundReport]:
        """Do as `tier` does, however cold the service is."""
        self.paused.discard(name)
        done = self.service.wait(name, records)
        self.paused.add(name)
        return done


@contextlib.contextmanager
def stage(*, rounds: int = 2, level: int = 3) -> Iterator[Stage]:
    """Start everything, for the length of a `with` block, and tier two small tables, so that all is warm."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as place, contextlib.ExitStack() as held:
        directory = Path(place)
        uri = held.enter_context(_catalog(directory / "warehouse"))
        lake = {"format": "iceberg", "iceberg.type": "rest", "iceberg.uri": uri}
        lake["iceberg.warehouse"] = f"file://{directory}/warehouse"
        plan = ClusterPlan({f"datalake.{key}": value for key, value in lake.items()}, _SETTINGS, heap="1g")
        cluster = held.enter_context(FlussCluster.running(directory / "cluster", plan))
        text = _CONFIG.format(rounds=rounds, bootstrap=cluster.bootstrap, uri=uri, directory=directory, level=level)
        paused: set[str] = set()
        service = held.enter_context(running(directory, config=text, paused=paused))
        on = Stage(directory, cluster.bootstrap, service, paused)
        on.create(_WARM_NAME)
        on.create("bench.warmkeyed", key=("id",))
        on.apart(upsert, "bench.warmkeyed", 0, _WARM)
        on.wait_snapshots("bench.warmkeyed")
        on.tier("bench.warmkeyed", _WARM)
        yield on


@contextlib.contextmanager
def _catalog(warehouse: Path) -> Iterator[str]:
    """Serve the catalog from a process of its own, as in life."""
    port = free_port()
    command = [sys.executable, "-m", "lakeward_demo.rest_server", str(port), str(warehouse)]
    process = subprocess.Popen(command)
    try:
        while not _listens(port):
            assert process.poll() is None, "the catalog did not start"
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def seconds(done: list[RoundReport]) -> float:
    """Return how long rounds took, from hand-out to commit."""
    return sum((report.ended_ms or 0) - report.started_ms for report in done) / 1000


def timings(done: list[RoundReport]) -> dict[str, float]:
    """Add up where the rounds' time went; what subtasks say is of all of them together."""
    found: dict[str, float] = {}
    for report in done:
        for name, spent in report.timings_s.items():
            found[name] = round(found.get(name, 0.0) + spent, 2)
    return found
