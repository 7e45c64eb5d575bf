"""Tables of a real Fluss cluster to Paimon, by Lakeward and by Flink's tiering service, on the same cluster in turn.

    pip install apache-flink-libraries==1.20.3
    python benchmarks/paimon_against_flink.py [--rows 8000000] [--keys 2000000] [--changes 300000] [--runs 2]

8 columns, 4 buckets, two slots each; written with pyfluss. Each service is a process of its own that starts, tiers one
table and ends: a log table, a primary-key table from its KV snapshots, and changes of that one; and each with 20,000
rows alone, which is what a start costs. Printed: seconds of processor time of all its processes and seconds by the
clock, cold and without those of the start; and the ratios by processor time, Flink to Lakeward.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil

from fluss_rows import SCHEMA, append, change, upsert
from lakeward.model.tables import TablePath
from lakeward_source_fluss_kit.flink import Flink
from lakeward_source_fluss_kit.paimon import PaimonCluster, paimon_cluster

BUCKETS = 4
SMALL = 20_000
LIMIT_S = 1800.0
TIERED = {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"}
SERVICES = ("flink", "lakeward")


@dataclass(frozen=True, slots=True)
class Cost:
    """What one service took for one table, from its start on."""

    cpu: float
    clock: float

    def above(self, small: Cost) -> Cost:
        """Return what is left without a start."""
        return Cost(self.cpu - small.cpu, self.clock - small.clock)

    def __str__(self) -> str:
        return f"{self.cpu:.1f} CPU-s, {self.clock:.1f} s"


class Watch:
    """Adds up the processor time of a process and of all below it, looked at five times a second."""

    def __init__(self, process: psutil.Process) -> None:
        """Watch it until `stop`."""
        self._root = process
        self._spent: dict[int, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> float:
        """Look once more; return seconds."""
        self._look()
        self._over.set()
        self._thread.join()
        return sum(self._spent.values())

    def _run(self) -> None:
        while not self._over.wait(0.2):
            self._look()

    def _look(self) -> None:
        try:
            every = [self._root, *self._root.children(recursive=True)]
        except psutil.Error:
            return
        for one in every:
            try:
                times = one.cpu_times()
            except psutil.Error:
                continue
            self._spent[one.pid] = max(self._spent.get(one.pid, 0.0), times.user + times.system)


class Contest:
    """One cluster, and both services in turn."""

    def __init__(self, place: Path, tables: PaimonCluster) -> None:
        """Take a folder, and a running cluster."""
        self._place = place
        self._tables = tables
        options = {"metastore": "filesystem", "warehouse": str(tables.warehouse)}
        self._flink = Flink(place / "flink", tables.cluster.bootstrap, "paimon", options)
        self._numbers = 0

    @contextmanager
    def table(self, *, key: list[str] | None = None) -> Iterator[str]:
        """Create a table in a database of its own; drop it afterwards."""
        self._numbers += 1
        name = f"contest{self._numbers}.rows"
        self._tables.writer.create(name, SCHEMA, key=key or (), buckets=BUCKETS, properties=TIERED)
        yield name
        self._tables.drop(name)

    def write(self, call: Callable[..., None], name: str, *arguments: int) -> None:
        """Write rows."""
        call(self._tables.cluster.bootstrap, name, *arguments)

    def wait_snapshots(self, name: str) -> None:
        """Wait until KV snapshots of all buckets hold everything that was written."""
        with self._tables.source() as source:
            table = source.table(TablePath.parse(name))
            while any(one.snapshot is None or one.snapshot.log_offset < one.end for one in source.buckets(table)):
                time.sleep(0.5)

    def tier(self, service: str, name: str) -> Cost:
        """Let a service tier a table that nobody else is to tier."""
        started = time.monotonic()
        cpu = self._by_flink(name) if service == "flink" else self._by_lakeward(name)
        return Cost(cpu, time.monotonic() - started)

    def _by_flink(self, name: str) -> float:
        with self._flink.tiering() as process:
            watch = Watch(psutil.Process(process.pid))
            while not self._tables.is_tiered(name):
                if process.poll() is not None:
                    message = "Flink's service ended by itself"
                    raise RuntimeError(message)
                time.sleep(0.5)
            spent = watch.stop()
        self._tables.give_up(name)
        return spent

    def _by_lakeward(self, name: str) -> float:
        place = self._place / name
        place.mkdir(exist_ok=True)
        command = self._tables.service(place, name.partition(".")[0])
        with (place / "out").open("ab") as out:
            process = subprocess.Popen(command, cwd=place, stdout=out, stderr=out)
            watch = Watch(psutil.Process(process.pid))
            code = process.wait(LIMIT_S)
        spent = watch.stop()
        if code or not self._tables.is_tiered(name):
            raise RuntimeError((place / "out").read_text(encoding="utf-8")[-3000:])
        return spent


def log(contest: Contest, service: str, rows: int) -> Cost:
    """Tier a log table of so many rows."""
    with contest.table() as name:
        contest.write(append, name, 0, rows)
        return contest.tier(service, name)


def keyed(contest: Contest, service: str, keys: int, changes: int) -> tuple[Cost, Cost]:
    """Tier a primary-key table of so many keys, then changes, of which a third are deletes."""
    with contest.table(key=["id"]) as name:
        contest.write(upsert, name, 0, keys)
        contest.wait_snapshots(name)
        first = contest.tier(service, name)
        contest.write(change, name, keys, changes - changes // 3, changes // 3)
        return first, contest.tier(service, name)


def measured(contest: Contest, service: str, options: argparse.Namespace) -> dict[str, tuple[Cost, Cost]]:
    """Measure one service; returns of each work its cost, and that without a start."""
    small = log(contest, service, SMALL)
    small_first, small_again = keyed(contest, service, SMALL, SMALL // 5)
    whole = log(contest, service, options.rows)
    first, again = keyed(contest, service, options.keys, options.changes)
    found = {
        "log": (whole, whole.above(small)),
        "keyed, first round": (first, first.above(small_first)),
        "keyed, changes": (again, again.above(small_again)),
    }
    for what, (cold, rest) in found.items():
        print(f"{service}: {what}: {cold}; without the start: {rest}", flush=True)
    return found


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=8_000_000)
    parser.add_argument("--keys", type=int, default=2_000_000)
    parser.add_argument("--changes", type=int, default=300_000)
    parser.add_argument("--runs", type=int, default=2)
    options = parser.parse_args()
    ratios: dict[str, list[tuple[float, float]]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="lakeward-bench-") as folder,
        paimon_cluster(Path(folder) / "cluster", Path(folder) / "warehouse") as tables,
    ):
        contest = Contest(Path(folder), tables)
        for run in range(options.runs):
            order = SERVICES if run % 2 == 0 else SERVICES[::-1]
            found = {service: measured(contest, service, options) for service in order}
            for what, ours in found["lakeward"].items():
                pairs = zip(found["flink"][what], ours, strict=True)
                cold, rest = (theirs.cpu / own.cpu for theirs, own in pairs)
                ratios.setdefault(what, []).append((cold, rest))
    for what, each in ratios.items():
        cold, rest = (median(values) for values in zip(*each, strict=True))
        print(f"{what}: Flink takes {cold:.1f} times our processor time, {rest:.1f} times without the starts")


if __name__ == "__main__":
    main()
