"""Rounds of a primary-key table: the first from KV snapshots, then 2 % changes; narrow and wide.

python benchmarks/keyed_rounds.py [--rows 5000000] [--rounds 3]

Two tables of N keys in 4 buckets, one with 2 columns, one with 20, are tiered by one warm service; then, in turn,
each gets 2 % of changes (half updates, a quarter inserts, a quarter deletes). Printed: seconds of each round from its
start to its commit, where they went, and wide / narrow: the cost is to grow with the changes, not with the width.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from lakeward.model.tables import TablePath
from lakeward_source_embedded.store import EmbeddedStore
from running_service import RunningService, running

STEP = 500_000
WIDTHS = {"narrow": 1, "wide": 19}


def rows(ids: np.ndarray, columns: int, seed: int) -> pa.Table:
    """An id and so many columns of doubles."""
    random = np.random.default_rng(seed)
    return pa.table({"id": ids, **{f"c{number}": random.random(len(ids)) for number in range(columns)}})


def changes(total: int, count: int, columns: int, seed: int) -> pa.Table:
    """Half updates, a quarter inserts, a quarter deletes."""
    random = np.random.default_rng(seed)
    old = random.choice(total, count * 3 // 4, replace=False)
    new = np.arange(total, total + count // 4) + seed * count
    kinds = ["update"] * (count // 2) + ["delete"] * (len(old) - count // 2) + ["insert"] * len(new)
    return rows(np.concatenate([old, new]), columns, seed).append_column("op", pa.array(kinds))


def round_of(service: RunningService, store: EmbeddedStore, name: str, records: int) -> float:
    """Turn tiering on for a table, wait for its records, turn it off; returns seconds."""
    table = TablePath("bench", name)
    store.set_property(table, "table.datalake.enabled", "true")
    done = service.wait(str(table), records)
    store.set_property(table, "table.datalake.enabled", "false")
    print(f"  {name}: {[report.timings_s for report in done]}", flush=True)
    return sum((report.ended_ms or 0) - report.started_ms for report in done) / 1000


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as place:
        bench(Path(place), options.rows, options.rounds)


def bench(directory: Path, total: int, rounds: int) -> None:
    """Fill both tables, then change them in turn."""
    store = EmbeddedStore.create(directory / "store")
    off = {"table.datalake.enabled": "false", "table.kv.snapshot.interval-s": "86400"}
    for name, columns in WIDTHS.items():
        table = TablePath("bench", name)
        schema = rows(np.arange(1), columns, 0).schema
        store.create_table(table, schema, ["id"], buckets=4, freshness_s=3600, properties=off)
        for start in range(0, total, STEP):
            store.load(table, rows(np.arange(start, start + STEP), columns, start))
        store.snapshot(table)
    spent: dict[str, list[float]] = {name: [] for name in WIDTHS}
    with running(directory) as service:
        warm = TablePath("bench", "warm")
        store.create_table(warm, rows(np.arange(1), 1, 0).schema, buckets=2, freshness_s=3600)
        store.load(warm, rows(np.arange(1000), 1, 0))
        service.wait(str(warm), 1000)
        first = {name: round_of(service, store, name, total) for name in WIDTHS}
        for number in range(1, rounds + 1):
            for name, columns in WIDTHS.items():
                records = store.load(
                    TablePath("bench", name), changes(total, total // 50, columns, number), change="op"
                )
                spent[name].append(round_of(service, store, name, records))
    narrow, wide = (statistics.median(spent[name]) for name in WIDTHS)
    print(f"{total:,} keys in 4 buckets, {total // 50:,} changes a round; seconds, median of {rounds}:")
    print(f"  first round from snapshots: narrow {first['narrow']:.2f}, wide {first['wide']:.2f}")
    print(f"  2 % changes: narrow {narrow:.2f}, wide {wide:.2f}; wide / narrow {wide / narrow:.2f}")


if __name__ == "__main__":
    main()
