"""What rounds of changes leave in a keyed Iceberg table, with and without upkeep, over as many rounds as a week has.

python benchmarks/upkeep_week.py [--rounds 3360] [--keys 1000000] [--changes 2000] [--stops 6]

Tiers a table of so many keys through the lake port, and then rounds of upserts and deletes of random keys, into two
tables in turn: one whose jobs of upkeep run when they are due, one without any. Both expire snapshots every tenth
round, as the service does. At each stop it prints, for both: files, delete files, bytes of `metadata/`, and the median
milliseconds of the commits since the stop before, of DuckDB's full scan and of its look at one key; at the end the
ratios of the last stop to the first, and the seconds that upkeep took.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import cast

import duckdb
import numpy as np
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from lakeward.clock import SystemClock
from lakeward.model.batches import SourceBatch, log_records
from lakeward.model.identity import UPKEEP, RoundId
from lakeward.model.results import CommitOutcome
from lakeward.model.tables import Change
from lakeward.model.upkeep import UpkeepCommit, UpkeepOutcome
from lakeward.ports import CountedLake, Lake, UpkeepLake
from lakeward_lake_iceberg.options import IcebergOptions
from lakeward_lake_iceberg.plugin import IcebergLakePlugin
from lakeward_testing.lake_tables import PATH, TieringRound, head_of, incarnation, key_table, log_split, source_batch

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
EXPIRE_EVERY = 10
MOST_TASKS = 4
READS = 5
DELETED = 0.1


class Lakeside:
    """One of the two tables: its lake, and what its rounds took."""

    def __init__(self, directory: Path, *, upkeep: bool) -> None:
        """Begin with an empty warehouse."""
        self.name = "with upkeep" if upkeep else "without"
        self._directory = directory
        self._plugin = IcebergLakePlugin()
        self._options = IcebergOptions(warehouse=str(directory))
        self._lake: Lake = self._plugin.open(self._options, SystemClock())
        self._upkeep = upkeep
        self._jobs = 0
        self._commits: list[float] = []
        self.upkeep_s = 0.0
        self.stops: list[tuple[float, ...]] = []

    def tier(self, number: int, keys: np.ndarray, deleted: np.ndarray) -> None:
        """Run a round of changes of keys, then what is due."""
        tiering = TieringRound(self._plugin, self._lake, key_table(SCHEMA, buckets=1), incarnation(), number)
        split = log_split(tiering.table)
        if number == 1:
            tiering.write(split, [_load(keys)])
        else:
            rows = [{"id": key, "name": f"{number}-{key}"} for key in keys.tolist()]
            kinds = [Change.DELETE if one else Change.UPDATE_AFTER for one in deleted.tolist()]
            tiering.write(split, [source_batch(SCHEMA, rows, changes=kinds)])
        request = tiering.request()
        started = time.perf_counter()
        assert self._lake.commit(request) is CommitOutcome.LANDED
        self._commits.append((time.perf_counter() - started) * 1000)
        if number % EXPIRE_EVERY == 0:
            self._lake.expire(PATH, frozenset({request.ids.snapshot_id}))
        if self._upkeep:
            started = time.perf_counter()
            self._keep_up()
            self.upkeep_s += time.perf_counter() - started

    def look(self) -> None:
        """Print what there is, and what it takes to read it."""
        counts = cast("CountedLake", self._lake).count_files(PATH)
        location = SqlCatalog("lakeward", uri=f"sqlite:///{self._directory}/catalog.db").load_table(str(PATH))
        table = f"iceberg_scan('{location.metadata_location}')"
        scan_ms = _ask(f"SELECT count(*), max(name) FROM {table}")  # noqa: S608 - of this file
        key_ms = _ask(f"SELECT name FROM {table} WHERE id = 500001")  # noqa: S608 - of this file
        metadata = sum(file.stat().st_size for file in self._directory.rglob("metadata/*") if file.is_file())
        commit_ms = statistics.median(self._commits)
        self._commits = []
        self.stops.append((commit_ms, scan_ms, key_ms))
        print(
            f"  {self.name}: {counts.data_files} files, {counts.delete_files} of deletes, metadata {metadata / 1e6:.1f}"
            f" MB, commit {commit_ms:.0f} ms, scan {scan_ms:.0f} ms, key {key_ms:.0f} ms",
            flush=True,
        )

    def close(self) -> None:
        """Close the lake."""
        self._lake.close()

    def _keep_up(self) -> None:
        lake = cast("UpkeepLake", self._lake)
        upkeep_id = RoundId(incarnation(), 7, UPKEEP, self._jobs + 1)
        plan = lake.plan_upkeep(PATH, upkeep_id, MOST_TASKS)
        if plan is None:
            return
        results = tuple(self._plugin.upkeep(task, 0, lambda: None) for task in plan.tasks)
        ids, base = self._lake.new_ids(PATH), head_of(self._lake).snapshot_id
        commit = UpkeepCommit(PATH, upkeep_id, ids, base, plan.tasks, results)
        assert lake.commit_upkeep(commit) is UpkeepOutcome.LANDED
        self._jobs += 1


def _load(keys: np.ndarray) -> SourceBatch:
    rows = pa.RecordBatch.from_arrays([pa.array(keys), pa.array([f"1-{key}" for key in keys])], schema=SCHEMA)
    sample = source_batch(SCHEMA, [], changes=[])
    return SourceBatch(log_records(sample.records.schema, rows, Change.INSERT, 0, 0), len(keys))


def _ask(query: str) -> float:
    """Return the median milliseconds of a query."""
    spent = []
    for _ in range(READS):
        started = time.perf_counter()
        DUCK.execute(query).fetchall()
        spent.append((time.perf_counter() - started) * 1000)
    return statistics.median(spent)


def _duckdb() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for name in ("avro", "iceberg"):
        package = Path(import_module(f"duckdb_extension_{name}").__path__[0])
        connection.execute(f"LOAD '{package}/extensions/v{duckdb.__version__}/{name}.duckdb_extension'")
    return connection


DUCK = _duckdb()


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3360)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=2000)
    parser.add_argument("--stops", type=int, default=6)
    told = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as directory:
        sides = [Lakeside(Path(directory) / str(upkeep), upkeep=upkeep) for upkeep in (True, False)]
        stops = {told.rounds * (number + 1) // told.stops for number in range(told.stops)}
        for number in range(1, told.rounds + 1):
            random = np.random.default_rng(number)
            keys = np.arange(told.keys) if number == 1 else random.choice(told.keys, told.changes, replace=False)
            deleted = random.random(len(keys)) < DELETED
            for side in sides:
                side.tier(number, keys, deleted)
            if number in stops:
                print(f"after {number} rounds:", flush=True)
                for side in sides:
                    side.look()
        for side in sides:
            ratios = [last / first for first, last in zip(side.stops[0], side.stops[-1], strict=True)]
            print(f"{side.name}: last stop / first: commit {ratios[0]:.2f}, scan {ratios[1]:.2f}, key {ratios[2]:.2f}")
            side.close()
        print(f"upkeep took {sides[0].upkeep_s:.0f} s of {told.rounds} rounds")


if __name__ == "__main__":
    main()
