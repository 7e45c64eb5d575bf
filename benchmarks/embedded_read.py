"""How fast the embedded source is: reading a log, loading a log table, merging into a primary-key table.

python benchmarks/embedded_read.py [--rows 5000000] [--keys 1000000] [--directory DIR]
"""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.model.splits import LogSplit
from lakeward.model.tables import TablePath
from lakeward_source_embedded.plugin import EmbeddedSourcePlugin
from lakeward_source_embedded.source import EmbeddedSource
from lakeward_source_embedded.store import EmbeddedStore

LOG, KEYED, WIDE = TablePath("bench", "log"), TablePath("bench", "keyed"), TablePath("bench", "wide")


def rows(start: int, count: int, seed: int) -> pa.Table:
    """Eight columns: int64, int32, 20-value text, 8 to 40 characters of text, double, nullable int32, time, int64."""
    random = np.random.default_rng(seed)
    words = pa.array([f"word-{n:02d}" for n in range(20)])
    texts = pa.array([f"{n:08d}" + "x" * (n % 33) for n in range(10_000)])
    return pa.table(
        {
            "id": np.arange(start, start + count),
            "small": random.integers(0, 1000, count, dtype=np.int32),
            "kind": words.take(pa.array(random.integers(0, 20, count))),
            "text": texts.take(pa.array(random.integers(0, 10_000, count))),
            "price": random.random(count),
            "maybe": pa.array(random.integers(0, 9, count, dtype=np.int32), mask=random.random(count) < 0.1),
            "at": pa.array(random.integers(0, 1 << 50, count), pa.timestamp("us")),
            "total": random.integers(0, 1 << 40, count),
        }
    )


def timed(what: str, count: int, start: float, cpu: float) -> None:
    """Print one figure."""
    wall, used = time.perf_counter() - start, time.process_time() - cpu
    print(f"{what:46} {count:>9} rows {wall:7.2f} s wall {used:7.2f} s cpu {count / wall / 1e6:8.2f} M rows/s")


def bench_log(store: EmbeddedStore, count: int) -> None:
    """Load a log table and read it all."""
    sample = rows(0, 1, 0)
    spec = store.create_table(LOG, sample.schema, buckets=2)
    data = [rows(start, min(1_000_000, count - start), start) for start in range(0, count, 1_000_000)]
    start, cpu = time.perf_counter(), time.process_time()
    store.load(LOG, data)
    timed("load a log table", count, start, cpu)
    source = EmbeddedSource(store)
    want = sum(pc.sum(part["total"]).as_py() for part in data)
    for label in ("read it, summing an int column", "read it again"):
        start, cpu = time.perf_counter(), time.process_time()
        reader = EmbeddedSourcePlugin().reader(source.reader_task(spec), spec)
        found = seen = 0
        for state in source.buckets(spec):
            for batch in reader.read_log(LogSplit("s", state.bucket, (), state.start, state.end)):
                seen += len(batch.records)
                found += pc.sum(batch.records.column("total")).as_py()
        reader.close()
        timed(label, seen, start, cpu)
        assert (seen, found) == (count, want)


def bench_keys(store: EmbeddedStore, count: int) -> None:
    """Merge inserts, updates and deletes into a primary-key table, then snapshot it."""
    store.create_table(KEYED, rows(0, 1, 0).schema, primary_key=["id"], buckets=4)
    data = rows(0, count, 1)
    start, cpu = time.perf_counter(), time.process_time()
    store.load(KEYED, data)
    timed("insert into a primary-key table", count, start, cpu)
    changed = max(1, count // 10)
    for label in ("update a tenth of it at random", "and again"):
        random = np.random.default_rng(len(label))
        ids = pa.array(random.integers(0, count, changed))
        part = rows(0, changed, 2).set_column(0, "id", ids)
        operations = pa.array(np.where(random.random(changed) < 0.1, "-D", "+U"))
        start, cpu = time.perf_counter(), time.process_time()
        store.load(KEYED, part.append_column("op", operations), change="op")
        timed(label, changed, start, cpu)
    start, cpu = time.perf_counter(), time.process_time()
    store.snapshot(KEYED)
    timed("snapshot it", count, start, cpu)


def bench_buckets(store: EmbeddedStore) -> None:
    """Look at 10,000 buckets."""
    spec = store.create_table(WIDE, rows(0, 1, 0).schema, primary_key=["id"], buckets=10_000)
    store.load(WIDE, rows(0, 100_000, 3))
    source = EmbeddedSource(store)
    start, cpu = time.perf_counter(), time.process_time()
    states = source.buckets(spec)
    timed("look at the state of 10,000 buckets", len(states), start, cpu)
    start, cpu = time.perf_counter(), time.process_time()
    source.pending_since_ms(spec, {})
    timed("oldest pending record of 10,000 buckets", len(states), start, cpu)
    start, cpu = time.perf_counter(), time.process_time()
    taken = store.snapshot(WIDE)
    timed("snapshot 10,000 buckets", taken, start, cpu)
    snapshots = [state.snapshot for state in source.buckets(spec) if state.snapshot]
    start, cpu = time.perf_counter(), time.process_time()
    missing = source.missing_snapshots(snapshots)
    timed("verify 10,000 snapshots", len(snapshots), start, cpu)
    assert not missing


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--directory", type=Path, default=None)
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(dir=options.directory))
    try:
        with EmbeddedStore.create(root) as store:
            bench_log(store, options.rows)
            bench_keys(store, options.keys)
            bench_buckets(store)
    finally:
        shutil.rmtree(root)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
