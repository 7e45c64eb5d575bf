"""A log table from the embedded source to Iceberg, against two plain pyarrow processes, and against Spark itself.

python benchmarks/log_to_iceberg.py [--rows 5000000] [--runs 3] [--level 1] [--spark]

In turn, several times, in one run: (a) a warm service tiers N new rows of a log table of 8 columns in 4 buckets, from
the start of its round to its commit; (b) two processes write the same rows with pyarrow, same codec, level, encodings
and file count, from the same Arrow files; (c) with --spark, Spark reads the same rows (as Parquet) and writes them
with `df.write` (zstd). Printed: seconds of each, and the ratios of their rates.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakeward.model.tables import TablePath
from lakeward_source_embedded.store import EmbeddedStore
from running_service import RunningService, running

BUCKETS = 4
STEP = 250_000


def rows(start: int, count: int) -> pa.Table:
    """Eight columns: int64, int32, 20-value text, 8 to 40 characters of text, double, nullable int32, time, int64."""
    random = np.random.default_rng(start)
    words = pa.array([f"word-{n:02d}" for n in range(20)])
    letters = random.integers(97, 123, (10_000, 40), dtype=np.uint8)
    texts = pa.array([bytes(letter[: 8 + n % 33]).decode() for n, letter in enumerate(letters)])
    return pa.table(
        {
            "id": np.arange(start, start + count),
            "small": random.integers(0, 1000, count, dtype=np.int32),
            "kind": words.take(pa.array(random.integers(0, 20, count))),
            "text": texts.take(pa.array(random.integers(0, 10_000, count))),
            "price": random.random(count),
            "maybe": pa.array(random.integers(0, 9, count, dtype=np.int32), mask=random.random(count) < 0.1),
            "at": pa.array(np.arange(count) + 1_700_000_000_000_000, pa.timestamp("us")),
            "big": random.integers(0, 1 << 40, count),
        }
    )


def write_part(source: str, target: str, level: int) -> None:
    """Write one Arrow file as Parquet, streaming, with the encodings that the product uses."""
    reader = pa.ipc.open_file(pa.memory_map(source))
    delta = {"id": "DELTA_BINARY_PACKED", "at": "DELTA_BINARY_PACKED", "big": "DELTA_BINARY_PACKED"}
    with pq.ParquetWriter(
        target,
        reader.schema,
        compression="zstd",
        compression_level=level,
        use_dictionary=["kind"],
        column_encoding={**delta},
    ) as writer:
        pending: list[pa.RecordBatch] = []
        for number in range(reader.num_record_batches):
            pending.append(reader.get_batch(number))
            if sum(batch.num_rows for batch in pending) >= 1 << 19:
                writer.write_table(pa.Table.from_batches(pending))
                pending.clear()
        if pending:
            writer.write_table(pa.Table.from_batches(pending))


def plain(parts: list[Path], directory: Path, level: int) -> float:
    """Two processes, two parts each; returns seconds."""
    pairs = [parts[0::2], parts[1::2]]
    started = time.perf_counter()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.starmap(write_parts, [([str(p) for p in pair], str(directory), level) for pair in pairs])
    return time.perf_counter() - started


def write_parts(parts: list[str], directory: str, level: int) -> None:
    """Write several parts one after another."""
    for part in parts:
        write_part(part, f"{directory}/{Path(part).stem}.parquet", level)


def fill(store: EmbeddedStore, name: str, data: list[pa.Table]) -> str:
    """Load a fresh table while tiering is off for it, then turn tiering on."""
    table = TablePath("bench", name)
    properties = {"table.datalake.enabled": "false"}
    store.create_table(table, data[0].schema, buckets=BUCKETS, freshness_s=3600, properties=properties)
    for piece in data:
        store.load(table, piece)
    store.set_property(table, "table.datalake.enabled", "true")
    return str(table)


def by_spark(service: RunningService, source: Path, target: Path) -> float:
    """Let Spark read the same rows as Parquet and write them; returns seconds."""
    session = service.container.spark().session
    started = time.perf_counter()
    session.read.parquet(str(source)).write.mode("overwrite").option("compression", "zstd").parquet(str(target))
    return time.perf_counter() - started


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--level", type=int, default=1)
    parser.add_argument("--spark", action="store_true")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="lakeward-bench-"))
    try:
        bench(directory, options)
    finally:
        shutil.rmtree(directory)


def bench(directory: Path, options: argparse.Namespace) -> None:
    """Make the data, then run the candidates in turn."""
    store = EmbeddedStore.create(directory / "store")
    sample = rows(0, 10)
    data = [rows(start, STEP) for start in range(0, options.rows, STEP)]
    parts = []
    for number in range(BUCKETS):
        parts.append(directory / f"part-{number}.arrow")
        with pa.ipc.new_file(parts[-1], sample.schema) as out:
            for piece in data[number::BUCKETS]:
                out.write_table(piece)
    parquet = directory / "parquet"
    parquet.mkdir()
    ours, theirs, sparks = [], [], []
    with running(directory, level=options.level) as service:
        warm = fill(store, "warm", [rows(0, 1000), rows(1000, 1000)])
        service.wait(warm, 2000)
        for run in range(options.runs):
            theirs.append(plain(parts, parquet, options.level))
            print(f"two pyarrow processes: {theirs[-1]:.2f} s", flush=True)
            total = sum(piece.num_rows for piece in data)
            done = service.wait(fill(store, f"log{run}", data), total)
            ours.append(sum((report.ended_ms or 0) - report.started_ms for report in done) / 1000)
            print(
                f"service: {ours[-1]:.2f} s in {len(done)} rounds, {[report.timings_s for report in done]}", flush=True
            )
            if options.spark:
                sparks.append(by_spark(service, parquet, directory / "spark-out"))
                print(f"spark df.write: {sparks[-1]:.2f} s", flush=True)
    ratio = statistics.median(plain_s / ours_s for plain_s, ours_s in zip(theirs, ours, strict=True))
    print(f"rows {options.rows:,}, zstd {options.level}; seconds, median of {options.runs}:")
    print(f"  two pyarrow processes {statistics.median(theirs):.2f}, service {statistics.median(ours):.2f}")
    print(f"  rate of the service / rate of pyarrow: {ratio:.2f}")
    if sparks:
        ratio = statistics.median(spark_s / ours_s for spark_s, ours_s in zip(sparks, ours, strict=True))
        print(f"  spark {statistics.median(sparks):.2f}; rate of the service / rate of spark: {ratio:.1f}")
    workers = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    print(
        f"  peak memory, MiB: driver {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}, children {workers}"
    )


if __name__ == "__main__":
    main()
