"""What reading a key table of Paimon costs before and after its compaction, in one run.

    python benchmarks/paimon_compaction.py [--rounds 100] [--changes 2000] [--keys 50000]

Tiers so many rounds of upserts and deletes of random keys through the lake port into a table of one bucket, reads all
rows by the lake's own reader, compacts what is due as jobs of upkeep do, reads again, and compares the rows. Printed:
files of the bucket and seconds of the fastest of three reads before and after, their ratio, and seconds of compacting.

    python benchmarks/paimon_compaction.py --merge-mb 300 [--runs 8] [--row-bytes 1024]

Writes sorted runs of so many MB of files together into one bucket, with keys that all runs have in common with others,
and merges them in a process of its own. Printed: what that process had in memory before it (the libraries) and at its
peak, by the kernel, and the difference beside what a merge may take of rows (`MEMORY_BYTES`).
"""

from __future__ import annotations

import argparse
import base64
import multiprocessing
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa

from lakeward.model.identity import UPKEEP, RoundId
from lakeward.model.results import CommitOutcome
from lakeward.model.tables import Change
from lakeward.model.upkeep import UpkeepCommit, UpkeepOutcome
from lakeward.ports import Lake, ReadableLake, UpkeepLake
from lakeward_lake_paimon.merge_files import MEMORY_BYTES
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

if TYPE_CHECKING:
    from lakeward.model.upkeep import UpkeepTask

MB, MIB = 1_000_000, 1 << 20
BATCH_ROWS = 4096
READS = 3
MOST_TASKS = 4
DELETED = 0.1


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--changes", type=int, default=2000)
    parser.add_argument("--keys", type=int, default=50_000)
    parser.add_argument("--merge-mb", type=int, default=0)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--row-bytes", type=int, default=1024)
    told = parser.parse_args()
    plugin = PaimonLakePlugin()
    if told.merge_mb:
        measure_merge(plugin, told.merge_mb, told.runs, told.row_bytes)
        return
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


def compact(plugin: PaimonLakePlugin, lake: Lake, number: int = 0) -> int:
    """Do what is due, until nothing is; return the number of the last job, which is `number` if nothing was."""
    upkeep = cast("UpkeepLake", lake)
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


def measure_merge(plugin: PaimonLakePlugin, size_mb: int, runs: int, row_bytes: int) -> None:
    """Merge so many MB of so many runs in a process of its own, and print its peak memory."""
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as warehouse:
        lake = plugin.open(PaimonOptions(warehouse=warehouse), FakeClock())
        rows = size_mb * MB // (runs * row_bytes)
        for number in range(1, runs + 1):
            tier_run(plugin, lake, number, rows, row_bytes)
        plan = cast("UpkeepLake", lake).plan_upkeep(PATH, RoundId(incarnation(), 7, UPKEEP, 1), MOST_TASKS)
        assert plan is not None
        (task,) = plan.tasks
        size = sum(file.stat().st_size for file in Path(warehouse).rglob("data-*.parquet"))
        started = time.perf_counter()
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as other:
            base, peak, files = other.submit(merge_alone, task).result()
        spent = time.perf_counter() - started
        lake.close()
    print(f"{runs} runs of {rows} rows, {size / MB:.0f} MB of files, merged into {files} in {spent:.1f} s")
    print(f"memory of the process: {base / MIB:.0f} MiB before, {peak / MIB:.0f} MiB at its peak")
    print(f"taken by the merge: {(peak - base) / MIB:.0f} MiB; it may hold about {MEMORY_BYTES / MIB:.0f} MiB of rows")


def tier_run(plugin: PaimonLakePlugin, lake: Lake, number: int, rows: int, row_bytes: int) -> None:
    """Commit one round of rows that do not compress; half of its keys are in the round before too."""
    random = np.random.default_rng(number)
    tiering = TieringRound(plugin, lake, key_table(buckets=1), incarnation(), number)
    first = number * rows // 2
    texts = (base64.b85encode(random.bytes(row_bytes * 4 // 5)).decode() for _ in range(rows))
    batches = []
    for start in range(0, rows, BATCH_ROWS):
        some = [{"id": first + key, "name": next(texts)} for key in range(start, min(rows, start + BATCH_ROWS))]
        batches.append(source_batch(COLUMNS, some, changes=[Change.UPDATE_AFTER] * len(some), start=start))
    tiering.write(log_split(tiering.table), batches)
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED


def merge_alone(task: UpkeepTask) -> tuple[int, int, int]:
    """Merge in this process; return its memory before and at the peak, in bytes, and how many files it has written."""
    plugin = PaimonLakePlugin()
    base = memory("VmHWM")
    result = plugin.upkeep(task, 0, lambda: None)
    return base, memory("VmHWM"), result.files


def memory(what: str) -> int:
    """Return what the kernel says of this process's memory, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{what}:"))


if __name__ == "__main__":
    main()
