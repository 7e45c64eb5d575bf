"""What a service of many tables costs its operator: processor time, the status page, memory, and a fault of one table.

Source, lake and service are real; a round's subtasks are threads of this process, so no Spark is measured.

python benchmarks/operating.py [--tables 500] [--seconds 60] [--rounds 1000] [--faults 20] [--check]

Each figure is printed with its goal and whether it is met; with `--check` the exit code is 1 if one is not. Set
MALLOC_ARENA_MAX=1 and ARROW_DEFAULT_MEMORY_POOL=system, as the image and the unit of systemd do.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import math
import os
import random
import statistics
import sys
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
from lakeward.storage.round_history import KEPT
from lakeward_lake_iceberg.options import IcebergOptions
from lakeward_lake_iceberg.plugin import IcebergLakePlugin
from lakeward_page.app import PageApp, PageContent
from lakeward_page.recent_problems import RecentProblems
from lakeward_service_kit.service_world import SCHEMA, World
from lakeward_source_embedded.options import FRESHNESS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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
EAGER_FRESHNESS_S = 0.2
"""Promised for them where it is not to be waited for: a round begins when the service looks for one, each second."""
CPU_GOAL = 0.05
"""Of a core, at most."""
REFRESH_S = 2.0
"""Between two requests of a page that is open."""
PAGE_GOAL_MS = 50.0
"""The median answer of a page takes at most so long."""
MEMORY_GOAL, MEMORY_ROOM_MIB = 1.05, 4.0
"""How much more memory there may be at the end of the rounds than early on: as in `lakeward_service_kit.soak`."""
SAMPLES = 20
"""Of memory, during the rounds."""
SETTLED = 0.4
"""Part of the rounds after which caches are warm."""
LEAST_NOISE = 0.1
"""Two runs of the same thing differ by so much, whatever their standard errors say."""


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
        self._ended: dict[int, tuple[RoundReport, ...]] = {}
        self.live.remembers(lambda table_id: self._ended.get(table_id, ()))
        self._conditions = ConditionTracker(None)
        self.service: Service

    def commits(self, paths: Iterable[TablePath]) -> int:
        """Return how often these have committed together."""
        return sum(len(self.committed.get(str(path), ())) for path in paths)

    def next_commits(self, paths: list[TablePath], since: float) -> list[float]:
        """Wait until each of these has committed after a moment; return how long after it."""
        found: dict[TablePath, float] = {}
        while len(found) < len(paths):
            for path in paths:
                later = [at for at in self.committed[str(path)] if at > since]
                if later:
                    found.setdefault(path, later[0] - since)
            time.sleep(0.01)
        return list(found.values())

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

    @contextmanager
    def eager(self) -> Iterator[None]:
        """Let the busy tables have a round whenever there are rows."""
        for path in self.busy:
            self.world.store.set_property(path, FRESHNESS, f"{EAGER_FRESHNESS_S:g}")
        yield
        for path in self.busy:
            self.world.store.set_property(path, FRESHNESS, f"{BUSY_FRESHNESS_S:g}")

    def wait_for_upkeep(self) -> None:
        """Wait until upkeep of all tables was planned, as is done after their first round."""
        while (report := self.live.report) is None or any(table.counts is None for table in report.tables):
            time.sleep(0.1)

    def wait_for_commits(self, paths: list[TablePath], times: int) -> None:
        """Wait until each of these has committed so often."""
        while any(len(self.committed.get(str(path), ())) < times for path in paths):
            time.sleep(0.1)

    def browser(self) -> TestClient:
        """Return a client of the page, whose templates are compiled once, as those of a service are."""
        content = PageContent("bench", self.live, self.metrics.registry, RecentProblems([]))
        return TestClient(PageApp(content).asgi())

    def page_ms(self, address: str, times: int = 200) -> list[float]:
        """Return how long the page took to answer, oldest first."""
        client = self.browser()
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

    @contextmanager
    def getting_rows(self) -> Iterator[None]:
        """Add rows to the busy tables each second."""
        ended = threading.Event()

        def add() -> None:
            while not ended.wait(1.0):
                for path in self.busy:
                    self.load(path, 100)

        thread = threading.Thread(target=add)
        thread.start()
        yield
        ended.set()
        thread.join()

    @contextmanager
    def page_open(self) -> Iterator[None]:
        """Ask for the page every two seconds, as a browser does that shows it."""
        closed, client = threading.Event(), self.browser()
        client.get("/")

        def look() -> None:
            while not closed.wait(REFRESH_S):
                client.get("/")

        thread = threading.Thread(target=look)
        thread.start()
        yield
        closed.set()
        thread.join()

    def last_round(self, path: TablePath) -> RoundReport:
        """Return the newest round of a table that has ended."""
        return self._ended[self.world.store.table(path).table_id][-1]

    def _round(self, report: RoundReport) -> None:
        self._ended[report.table_id] = (*self._ended.get(report.table_id, ())[1 - KEPT :], report)
        if report.outcome == "committed":
            self.committed.setdefault(report.table, []).append(time.perf_counter())


class Figures:
    """Prints figures with their goals, and remembers whether all goals were met."""

    def __init__(self) -> None:
        """Nothing is missed yet."""
        self.missed: list[str] = []

    def show(self, name: str, found: str, goal: str, *, met: bool) -> None:
        """Print a figure."""
        print(f"{name}: {found} (goal: {goal}: {'met' if met else 'MISSED'})", flush=True)
        if not met:
            self.missed.append(name)


def main() -> int:
    """Run and print; return 1 if `--check` is given and a goal was missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tables", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each measurement of processor time and of gaps")
    parser.add_argument("--rounds", type=int, default=1000, help="committed rounds over which memory is looked at")
    parser.add_argument("--faults", type=int, default=20, help="faults, and as many times without one")
    parser.add_argument("--check", action="store_true", help="end with 1 if a goal is missed")
    options = parser.parse_args()
    setup_logs("text", "error")
    figures = Figures()
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as place:
        operated = Operated(Path(place), options.tables)
        with operated.serving():
            print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors", flush=True)
            started = time.perf_counter()
            operated.wait_for_commits(operated.paths, 1)
            print(f"{options.tables} tables tiered for the first time in {time.perf_counter() - started:.0f} s")
            operated.wait_for_upkeep()
            show_processor_time(figures, operated, options.seconds)
            show_pages(figures, operated)
            show_gaps(figures, operated, options.seconds)
            with operated.eager():
                show_faults(figures, operated, options.faults)
                show_memory(figures, operated, options.rounds)
            print(f"load of the machine after: {os.getloadavg()[0]:.1f}")
    print(f"missed: {', '.join(figures.missed) or 'nothing'}")
    return 1 if options.check and figures.missed else 0


def show_processor_time(figures: Figures, operated: Operated, seconds: float) -> None:
    """Show the processor time of the service with nothing to do; with 1 % of the tables busy, rows are tiered in it."""
    with operated.page_open():
        share = processor_share(operated, [], seconds)
    figures.show("idle with a page open", f"{share:.1%} of a core", f"below {CPU_GOAL:.0%}", met=share < CPU_GOAL)
    for paths in ([], operated.busy):
        before = operated.commits(paths)
        share = processor_share(operated, paths, seconds)
        name, found = "idle", f"{share:.1%} of a core"
        if paths:
            commits = operated.commits(paths) - before
            name, found = f"{len(paths)} tables busy", f"{found}, with {commits} commits and their subtasks"
        figures.show(name, found, f"below {CPU_GOAL:.0%}", met=share < CPU_GOAL)


def processor_share(operated: Operated, paths: list[TablePath], seconds: float) -> float:
    """Return the share of a core that this process takes, less what this thread does, while some tables get rows."""
    cpu, own, began = time.process_time(), time.thread_time(), time.perf_counter()
    load_for(operated, paths, seconds)
    spent = time.process_time() - cpu - (time.thread_time() - own)
    return spent / (time.perf_counter() - began)


def show_pages(figures: Figures, operated: Operated) -> None:
    """Show how long the page and its documents take to answer, while the busy tables get rows."""
    table, name = operated.busy[0], operated.last_round(operated.busy[0]).short_name
    for address in ("/", f"/tables/{table}", f"/rounds/{name}", "/metrics", "/status.json"):
        with operated.getting_rows():
            taken = operated.page_ms(address)
        median = statistics.median(taken)
        found = f"median {median:.0f} ms, longest {max(taken):.0f} ms"
        figures.show(f"page {address}", found, f"median below {PAGE_GOAL_MS:.0f} ms", met=median < PAGE_GOAL_MS)


def show_memory(figures: Figures, operated: Operated, rounds: int) -> None:
    """Show how the resident memory of the process changes over rounds of the busy tables."""
    first = operated.commits(operated.busy)
    samples: list[float] = []
    while len(samples) < SAMPLES:
        for path in operated.busy:
            operated.load(path, 20)
        time.sleep(0.1)
        if operated.commits(operated.busy) - first >= rounds * (len(samples) + 1) / SAMPLES:
            gc.collect()
            samples.append(resident_mib())
    settled = samples[int(SAMPLES * SETTLED) :]
    early, late = (statistics.median(part) for part in (settled[: len(settled) // 3], settled[-(len(settled) // 3) :]))
    done = operated.commits(operated.busy) - first
    found = f"{early:.0f} MiB, then {late:.0f} MiB after {done} rounds, ratio {late / early:.3f}"
    goal = f"at most {MEMORY_GOAL} times and {MEMORY_ROOM_MIB:.0f} MiB more"
    figures.show("memory", found, goal, met=late <= early * MEMORY_GOAL + MEMORY_ROOM_MIB)


def show_gaps(figures: Figures, operated: Operated, seconds: float) -> None:
    """Show the time between commits of the busy tables without a fault, and while one of them fails all the time."""
    bad, *healthy = operated.busy
    found: dict[bool, list[float]] = {False: [], True: []}
    for is_fault in (False, True) * 2:  # in turn, as the load of the machine may change
        operated.lake.refused = bad if is_fault else None
        before = {str(path): len(operated.committed[str(path)]) for path in healthy}
        load_for(operated, operated.busy, seconds / 2)
        times = [operated.committed[name][count:] for name, count in before.items()]
        found[is_fault] += [later - earlier for each in times for earlier, later in itertools.pairwise(each)]
    operated.lake.refused = None
    show_ratio(figures, "between commits of a healthy table, while another one fails", found[False], found[True])


def show_faults(figures: Figures, operated: Operated, faults: int) -> None:
    """Show the time from a fault of one table to the next commit of the others, in turn with times without a fault.

    Each time begins at a random moment between two looks of the service at the queue.
    """
    moments = random.Random(1)  # noqa: S311 - no secret
    found: dict[bool, list[float]] = {False: [], True: []}
    for number in range(2 * faults):
        is_fault = bool(number % 2)
        bad = operated.busy[number // 2 % len(operated.busy)]
        healthy = [path for path in operated.busy if path != bad]
        time.sleep(1.0 + moments.random())
        since = time.perf_counter()
        operated.lake.refused = bad if is_fault else None
        for path in operated.busy:
            operated.load(path, 100)
        found[is_fault].append(statistics.mean(operated.next_commits(healthy, since)))
        operated.lake.refused = None
        operated.next_commits([bad], since)
    show_ratio(figures, "from a fault of one table to the next commit of each other", found[False], found[True])


def show_ratio(figures: Figures, name: str, without: list[float], with_fault: list[float]) -> None:
    """Show how much longer something takes with a fault: beyond two standard errors of both means it is no noise."""
    mean, faulty = statistics.mean(without), statistics.mean(with_fault)
    errors = [statistics.stdev(each) / math.sqrt(len(each)) if len(each) > 1 else 0.0 for each in (without, with_fault)]
    noise = max(LEAST_NOISE, 2 * math.hypot(*errors) / mean)
    found = (
        f"{faulty:.2f} s with a fault ({len(with_fault)} times), {mean:.2f} s without ({len(without)} times), "
        f"ratio {faulty / mean:.2f}"
    )
    figures.show(name, found, f"ratio at most {1 + noise:.2f}", met=faulty / mean <= 1 + noise)


def resident_mib() -> float:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def load_for(operated: Operated, paths: list[TablePath], seconds: float) -> None:
    """Add rows to tables each second, for so long."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for path in paths:
            operated.load(path, 100)
        time.sleep(1.0)


if __name__ == "__main__":
    sys.exit(main())
