"""What reading a key table of Paimon costs before and after its compaction, in one run.

    python benchmarks/paimon_compaction.py [--rounds 100] [--changes 2000] [--keys 50000]

Tiers so many rounds of upserts and deletes of random keys through the lake port into a table of one bucket, reads all
rows by the lake's own reader, compacts what is due as jobs of upkeep do, reads again, and compares the rows. Printed:
files of the bucket and seconds of the fastest of three reads before and after, their ratio, and seconds of compacting.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from typing import cast

import numpy as np
import pyarrow as pa

from lakeward.model.identity import UPKEEP, RoundId
from lakeward.model.results import CommitOutcome
from lakeward.model.tables import Change
from lakeward.model.upkeep import UpkeepCommit, UpkeepOutcome
from lakeward.ports import Lake, ReadableLake, UpkeepLake
from lakeward_lake_paimon.options import PaimonOptions
from lakeward_lake_paimon.plugin import PaimonLakePlugin
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import (
    COLUMNS,
    PATH,
    TieringRound,
    head_of,
    incarnation,
    key_table,
    log_split,
    source_batch,
)

READS = 3
MOST_TASKS = 4
DELETED = 0.1


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--changes", type=int, default=2000)
    parser.add_argument("--keys", type=int, default=50_000)
    told = parser.parse_args()
    plugin = PaimonLakePlugin()
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as warehouse:
        lake = plugin.open(PaimonOptions(warehouse=warehouse), FakeClock())
        for number in range(1, told.rounds + 1):
            tier(plugin, lake, number, told.changes, told.keys)
        before, rows = read(lake)
        files = head_of(lake).files
        started = time.perf_counter()
        jobs = compact(plugin, lake)
        spent = time.perf_counter() - started
        after, same = read(lake)
        assert same.equals(rows)
        print(f"{told.rounds} rounds, {rows.num_rows} rows: {files} files read in {before:.3f} s")
        print(f"compacted by {jobs} jobs in {spent:.3f} s: {head_of(lake).files} files read in {after:.3f} s")
        print(f"before / after = {before / after:.1f}")
        lake.close()


def tier(plugin: PaimonLakePlugin, lake: Lake, number: int, changes: int, keys: int) -> None:
    """Run a round: nine of ten changes are upserts, one is a delete."""
    random = np.random.default_rng(number)
    tiering = TieringRound(plugin, lake, key_table(buckets=1), incarnation(), number)
    rows = [{"id": int(key), "name": f"{number}-{key}"} for key in random.choice(keys, changes, replace=False)]
    kinds = [Change.DELETE if one < DELETED else Change.UPDATE_AFTER for one in random.random(changes)]
    tiering.write(log_split(tiering.table), [source_batch(COLUMNS, rows, changes=kinds)])
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED


def read(lake: Lake) -> tuple[float, pa.Table]:
    """Return the seconds of the fastest read, and the rows in the order of their keys."""
    snapshot = head_of(lake).snapshot_id
    assert snapshot is not None
    reads = [read_once(lake, snapshot) for _ in range(READS)]
    spent, rows = min(reads, key=lambda one: one[0])
    return spent, rows.select(["id", "name"]).sort_by("id").combine_chunks()


def read_once(lake: Lake, snapshot: int) -> tuple[float, pa.Table]:
    """Return the seconds of a read, and its rows."""
    started = time.perf_counter()
    rows = pa.Table.from_batches(cast("ReadableLake", lake).read_rows(PATH, snapshot))
    return time.perf_counter() - started, rows


def compact(plugin: PaimonLakePlugin, lake: Lake) -> int:
    """Do what is due, until nothing is; return how many jobs that took."""
    number, upkeep = 0, cast("UpkeepLake", lake)
    while True:
        upkeep_id = RoundId(incarnation(), 7, UPKEEP, number + 1)
        plan = upkeep.plan_upkeep(PATH, upkeep_id, MOST_TASKS)
        if plan is None:
            return number
        results = tuple(plugin.upkeep(task, 0, lambda: None) for task in plan.tasks)
        ids, base = lake.new_ids(PATH), head_of(lake).snapshot_id
        outcome = upkeep.commit_upkeep(UpkeepCommit(PATH, upkeep_id, ids, base, plan.tasks, results))
        assert outcome is UpkeepOutcome.LANDED
        number += 1


if __name__ == "__main__":
    main()
