"""What a service of many tables costs its operator: idle processor time, the status page, and a fault of one table.

Source, lake and service are real; a round's subtasks are threads of this process, so no Spark is measured.

python benchmarks/operating.py [--tables 500] [--seconds 60]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from starlette.testclient import TestClient

from lakeward.errors import LakeError
from lakeward.model.tables import TablePath
from lakeward.observe import status_file
from lakeward.observe.condition import ConditionTracker
from lakeward.observe.live_status import LiveStatus, Part
from lakeward.observe.logs import setup_logs
from lakeward.observe.metrics import ServiceMetrics
from lakeward.observe.recent_problems import RecentProblems
from lakeward.page.app import PageApp, PageContent
from lakeward_lake_iceberg.options import IcebergOptions
from lakeward_lake_iceberg.plugin import IcebergLakePlugin
from lakeward_service_kit.service_world import SCHEMA, World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.coordinator.service.service import Service
    from lakeward.model.identity import Incarnation
    from lakeward.model.results import LakeHead
    from lakeward.model.status import RoundReport, ServiceReport
    from lakeward.model.tables import TableSpec
    from lakeward.ports import Lake

BUSY_SHARE = 0.01
"""Of the tables: those that have new rows each second."""
FRESHNESS_S = 180.0
"""Promised for the idle tables: the default of Fluss."""
BUSY_FRESHNESS_S = 5.0
"""Promised for those with new rows, so that there is a commit each second."""


class Refusing:
    """A lake that refuses one table, as a catalog does that has lost its metadata."""

    def __init__(self, lake: Lake) -> None:
        """Refuse nothing yet."""
        self._lake = lake
        self.refused: TablePath | None = None

    def __getattr__(self, name: str) -> object:
        """Be the lake in everything else."""
        return getattr(self._lake, name)

    def open_table(self, table: TableSpec, incarnation: Incarnation) -> LakeHead:
        """See `lakeward.ports.Lake`."""
        if table.path == self.refused:
            message = f"{table.path}: the catalog answers 500"
            raise LakeError(message)
        return self._lake.open_table(table, incarnation)


class Operated:
    """A service of many tables on threads, its report, its page, and when each table committed last."""

    def __init__(self, directory: Path, tables: int) -> None:
        """Create the tables, each with a row.

        Args:
            directory: holds everything.
            tables: how many.
        """
        self.world = World.create(directory)
        busy = max(2, round(tables * BUSY_SHARE))
        self.paths = [TablePath("bench", f"t{number}") for number in range(tables)]
        self.busy = self.paths[:busy]
        for path in self.paths:
            freshness_s = BUSY_FRESHNESS_S if path in self.busy else FRESHNESS_S
            self.world.store.create_table(path, SCHEMA, (), buckets=1, freshness_s=freshness_s)
            self.load(path, 1)
        clock = self.world.clock
        lake = IcebergLakePlugin().open(IcebergOptions(warehouse=str(directory / "warehouse")), clock)
        self.lake = Refusing(lake)
        self.live, self.metrics = LiveStatus(clock), ServiceMetrics()
        self.live.opened(*Part)
        self.committed: dict[str, list[float]] = {}
        self._conditions = ConditionTracker(None)
        self.service: Service

    def load(self, path: TablePath, rows: int) -> None:
        """Add rows to a table."""
        self.world.store.load(path, pa.table({"id": range(rows), "name": ["row"] * rows}, schema=SCHEMA))

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Serve on a thread of its own, with the periods that are the defaults."""
        self.service = self.world.service(
            lake=self.lake, lake_type="iceberg", rounds=4, renew_s=20.0, poll_s=1.0, fence_s=45.0, backoff_first_s=1.0,
            backoff_most_s=300.0, progress_s=0.5, commit_timeout_s=60.0, expire_every=10, on_report=self._report,
            on_round=self._round,
        )  # fmt: skip
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_until_complete, args=(self.service.serve(),), daemon=True)
        thread.start()
        try:
            yield
        finally:
            loop.call_soon_threadsafe(self.service.stop)
            thread.join(30)

    def wait_for_commits(self, paths: list[TablePath], times: int) -> None:
        """Wait until each of these has committed so often."""
        while any(len(self.committed.get(str(path), ())) < times for path in paths):
            time.sleep(0.1)

    def page_ms(self, address: str, times: int = 20) -> list[float]:
        """Return how long the page took to answer, oldest first."""
        client = TestClient(PageApp(PageContent("bench", self.live, self.metrics, RecentProblems([]))).asgi())
        client.get(address)
        taken = []
        for _ in range(times):
            started = time.perf_counter()
            assert client.get(address).status_code == 200
            taken.append((time.perf_counter() - started) * 1000)
        return taken

    def _report(self, report: ServiceReport) -> None:
        report = self._conditions.describe(report, frozenset())
        self.live.update(report)
        self.metrics.update(report)
        status_file.write(str(self.world.directory / "state"), "bench", report)

    def _round(self, table: str, report: RoundReport) -> None:
        if report.outcome == "committed":
            self.committed.setdefault(table, []).append(time.perf_counter())


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tables", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each measurement")
    options = parser.parse_args()
    setup_logs("text", "error")
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as place:
        operated = Operated(Path(place), options.tables)
        with operated.serving():
            started = time.perf_counter()
            operated.wait_for_commits(operated.paths, 1)
            print(f"{options.tables} tables tiered for the first time in {time.perf_counter() - started:.0f} s")
            print_idle(operated, options.seconds)
            for address in ("/", "/metrics", "/status.json"):
                taken = operated.page_ms(address)
                print(f"page {address}: median {statistics.median(taken):.0f} ms, longest {max(taken):.0f} ms")
            print_fault(operated, options.seconds)


def print_idle(operated: Operated, seconds: float) -> None:
    """Print the processor time of the service with nothing to do, and with 1 % of the tables busy."""
    for name, paths in (("idle", []), (f"{len(operated.busy)} tables busy", operated.busy)):
        cpu, own, began = time.process_time(), time.thread_time(), time.perf_counter()
        load_for(operated, paths, seconds)
        spent = time.process_time() - cpu - (time.thread_time() - own)
        print(f"{name}: {spent / (time.perf_counter() - began):.1%} of a core")


def print_fault(operated: Operated, seconds: float) -> None:
    """Print the time between commits of the busy tables without a fault, and while one of them fails."""
    bad, *healthy = operated.busy
    means = []
    for refused in (None, bad):
        operated.lake.refused = refused
        before = {str(path): len(operated.committed[str(path)]) for path in healthy}
        load_for(operated, operated.busy, seconds)
        times = [operated.committed[name][count:] for name, count in before.items()]
        gaps = [later - earlier for each in times for earlier, later in itertools.pairwise(each)]
        means.append(statistics.mean(gaps))
        state = "no fault" if refused is None else f"{refused} refused"
        print(f"{state}: {statistics.mean(gaps):.2f} s between commits of a healthy table ({len(gaps)} of them)")
    print(f"ratio: {means[1] / means[0]:.2f}")


def load_for(operated: Operated, paths: list[TablePath], seconds: float) -> None:
    """Add rows to tables each second, for so long."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for path in paths:
            operated.load(path, 100)
        time.sleep(1.0)


if __name__ == "__main__":
    main()
