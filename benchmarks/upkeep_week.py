"""What rounds of changes leave in a keyed Iceberg table, with and without upkeep, over as many rounds as a week has.

python benchmarks/upkeep_week.py [--rounds 3360] [--without 3360] [--keys 1000000] [--changes 2000] [--stops 6]

Tiers a table of so many keys through the lake port, and then rounds of upserts and deletes of random keys, into two
tables in turn: one with upkeep, one without any, which may end before. Every tenth round both expire
snapshots, and the jobs of upkeep run that are due, as in a service. Between two stops reads are measured twenty times,
so that stops do not show in which round of a cycle they came. At each stop it prints, for both: files, delete files,
bytes of `metadata/`, and the medians since the stop before: milliseconds of processor time of a round's writer, of its
commit, of DuckDB's full scan and of its look at one key, and of its scan of a Parquet file that stays as it is, which
says what else the machine does. At the end: the ratios of the last stop to the first, as they are and divided by that
of the file, and the processor time that upkeep took.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import defaultdict
from importlib import import_module
from pathlib import Path
from typing import cast

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
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
SAMPLES = 20
DELETED = 0.1


class Lakeside:
    """One of the two tables: its lake, and what its rounds took."""

    def __init__(self, directory: Path, control: Path, *, upkeep: bool) -> None:
        """Begin with an empty warehouse; `control` is the file that stays as it is."""
        self.name = "with upkeep" if upkeep else "without"
        self._directory = directory
        self._control = control
        self._plugin = IcebergLakePlugin()
        self._options = IcebergOptions(warehouse=str(directory))
        self._lake: Lake = self._plugin.open(self._options, SystemClock())
        self._upkeep = upkeep
        self._jobs = 0
        self._spent: dict[str, list[float]] = defaultdict(list)
        self.rounds_s = self.upkeep_s = 0.0
        self.stops: list[dict[str, float]] = []

    def tier(self, number: int, keys: np.ndarray, deleted: np.ndarray) -> None:
        """Run a round of changes of keys, and each tenth time what is due."""
        started = time.process_time()
        tiering = TieringRound(self._plugin, self._lake, key_table(SCHEMA, buckets=1), incarnation(), number)
        split = log_split(tiering.table)
        if number == 1:
            tiering.write(split, [_load(keys)])
        else:
            rows = [{"id": key, "name": f"{number}-{key}"} for key in keys.tolist()]
            kinds = [Change.DELETE if one else Change.UPDATE_AFTER for one in deleted.tolist()]
            tiering.write(split, [source_batch(SCHEMA, rows, changes=kinds)])
        request = tiering.request()
        written = time.process_time()
        assert self._lake.commit(request) is CommitOutcome.LANDED
        committed = time.process_time()
        self._spent["write"].append((written - started) * 1000)
        self._spent["commit"].append((committed - written) * 1000)
        self.rounds_s += committed - started
        if number % EXPIRE_EVERY == 0:
            self._lake.expire(PATH, frozenset({request.ids.snapshot_id}))
            started = time.process_time()
            while self._upkeep and self._keep_up():
                pass
            self.upkeep_s += time.process_time() - started

    def sample(self) -> None:
        """Measure reads of the table as it is."""
        location = SqlCatalog("lakeward", uri=f"sqlite:///{self._directory}/catalog.db").load_table(str(PATH))
        table = f"iceberg_scan('{location.metadata_location}')"
        scan = f"SELECT count(*), max(name) FROM {table}"  # noqa: S608 - of this file
        key = f"SELECT name FROM {table} WHERE id = 50001"  # noqa: S608 - of this file
        file = f"SELECT count(*), max(name) FROM '{self._control}'"  # noqa: S608 - of this file
        for name, query in (("scan", scan), ("key", key), ("file", file)):
            started = time.process_time()
            DUCK.execute(query).fetchall()
            self._spent[name].append((time.process_time() - started) * 1000)

    def look(self) -> None:
        """Print what there is, and the medians since the last look."""
        counts = cast("CountedLake", self._lake).count_files(PATH)
        metadata = sum(file.stat().st_size for file in self._directory.rglob("metadata/*") if file.is_file())
        medians = {name: statistics.median(spent) for name, spent in self._spent.items()}
        self._spent.clear()
        self.stops.append(medians)
        told = ", ".join(f"{name} {ms:.0f} ms" for name, ms in medians.items())
        print(
            f"  {self.name}: {counts.data_files} files, {counts.delete_files} of deletes, metadata {metadata / 1e6:.1f}"
            f" MB, {told}",
            flush=True,
        )

    def close(self) -> None:
        """Close the lake."""
        self._lake.close()

    def _keep_up(self) -> bool:
        """Do what is due; False where nothing was."""
        lake = cast("UpkeepLake", self._lake)
        upkeep_id = RoundId(incarnation(), 7, UPKEEP, self._jobs + 1)
        plan = lake.plan_upkeep(PATH, upkeep_id, MOST_TASKS)
        if plan is None:
            return False
        results = tuple(self._plugin.upkeep(task, 0, lambda: None) for task in plan.tasks)
        ids, base = self._lake.new_ids(PATH), head_of(self._lake).snapshot_id
        commit = UpkeepCommit(PATH, upkeep_id, ids, base, plan.tasks, results)
        assert lake.commit_upkeep(commit) is UpkeepOutcome.LANDED
        self._jobs += 1
        return True


def _load(keys: np.ndarray) -> SourceBatch:
    rows = pa.RecordBatch.from_arrays([pa.array(keys), pa.array([f"1-{key}" for key in keys])], schema=SCHEMA)
    sample = source_batch(SCHEMA, [], changes=[])
    return SourceBatch(log_records(sample.records.schema, rows, Change.INSERT, 0, 0), len(keys))


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
    parser.add_argument("--without", type=int, help="rounds of the table without upkeep; all by default")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=2000)
    parser.add_argument("--stops", type=int, default=6)
    told = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as directory:
        control = Path(directory) / "control.parquet"
        shuffled = np.random.default_rng(0).permutation(told.keys)
        pq.write_table(pa.Table.from_batches([_load(shuffled).records]), control)
        sides = [Lakeside(Path(directory) / str(upkeep), control, upkeep=upkeep) for upkeep in (True, False)]
        stops = {told.rounds * (number + 1) // told.stops for number in range(told.stops)}
        every = max(1, told.rounds // told.stops // SAMPLES)
        for number in range(1, told.rounds + 1):
            random = np.random.default_rng(number)
            keys = shuffled if number == 1 else random.choice(told.keys, told.changes, replace=False)
            deleted = random.random(len(keys)) < DELETED
            going_on = sides if told.without is None or number <= told.without else sides[:1]
            for side in going_on:
                side.tier(number, keys, deleted)
                if number % every == 0:
                    side.sample()
                if number == told.without and number not in stops and side is sides[1]:
                    print(f"after {number} rounds:", flush=True)
                    side.look()
            if number in stops:
                print(f"after {number} rounds:", flush=True)
                for side in going_on:
                    side.look()
        for side in sides:
            first, last = side.stops[0], side.stops[-1]
            ratios = {name: last[name] / first[name] for name in first}
            as_is = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
            cleared = ", ".join(f"{name} {ratio / ratios['file']:.2f}" for name, ratio in ratios.items())
            print(f"{side.name}: last stop / first: {as_is}; by that of the file: {cleared}")
            side.close()
        share = sides[0].upkeep_s / sides[0].rounds_s
        print(f"upkeep took {sides[0].upkeep_s:.0f} s of processor time, {share:.0%} of what the rounds took")


if __name__ == "__main__":
    main()
