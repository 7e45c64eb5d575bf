"""A log table into a lake partitioning of its own, against Spark's own way and against no partitioning at all.

python benchmarks/exchange.py [--rows 8000000] [--runs 3] [--skip-spark]

In turn, several times, in one run, N new rows of 8 columns in 4 buckets, embedded to Iceberg, `local[2]`: (a) into
`day(at), bucket(16, id)` (64 partitions) through the exchange; (b) the same without an exchange: each subtask writes
all partitions; (c) plain: the source's own layout; (d) Spark reads the same rows (as Parquet), repartitions them by the
same expressions and writes Parquet partitioned by them (zstd). Printed: seconds of each round, the files of (a) and
(b), and the ratios of the rates, also by processor time: that tells more where other work shares the machine.
"""

from __future__ import annotations

import argparse
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
from log_to_iceberg import fill, rows
from running_service import CONFIG, RunningService, cpu_s, running

STEP = 250_000
DAYS = 4
DAY_US = 24 * 3600 * 1_000_000
FIRST_DAY = 19_676
WAYS = ("exchange", "fanout", "plain")
TABLES = """
[tables."bench.exchange*"]
lake_partition = ["day(at)", "bucket(16, id)"]
[tables."bench.fanout*"]
lake_partition = ["day(at)", "bucket(16, id)"]
exchange = "none"
[tables."bench.plain*"]
mode = "mirror"
"""


def spread(piece: pa.Table) -> pa.Table:
    """Give the rows times of four days."""
    random = np.random.default_rng(piece.num_rows)
    at = FIRST_DAY * DAY_US + random.integers(0, DAYS * DAY_US, piece.num_rows)
    place = piece.schema.get_field_index("at")
    return piece.set_column(place, piece.schema.field(place), pa.array(at, pa.timestamp("us")))


def by_spark(service: RunningService, source: Path, target: Path) -> float:
    """Let Spark repartition the rows by the same expressions and write them; returns seconds."""
    session = service.container.spark().session
    started = time.perf_counter()
    frame = session.read.parquet(str(source)).selectExpr(
        "*", "to_date(at) AS at_day", "pmod(hash(id), 16) AS id_bucket"
    )
    frame = frame.repartition("at_day", "id_bucket")
    writer = frame.write.mode("overwrite").option("compression", "zstd")
    writer.partitionBy("at_day", "id_bucket").parquet(str(target))
    return time.perf_counter() - started


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=8_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--skip-spark", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as place:
        bench(Path(place), options)


def bench(directory: Path, options: argparse.Namespace) -> None:
    """Make the rows, then tier them in turn."""
    store = EmbeddedStore.create(directory / "store")
    data = [spread(rows(start, STEP)) for start in range(0, options.rows, STEP)]
    parquet = directory / "parquet"
    parquet.mkdir()
    if not options.skip_spark:
        for number, piece in enumerate(data):
            pq.write_table(piece, parquet / f"{number:03d}.parquet", compression="zstd", compression_level=1)
    spent: dict[str, list[float]] = {way: [] for way in (*WAYS, "spark")}
    processor: dict[str, list[float]] = {way: [] for way in spent}
    config = CONFIG.format(level=1, rounds=1, backend="fluss") + TABLES
    # A mirrored table that begins with its first rows is looked at again only when it is no longer fresh.
    paused = {f"bench.{way}{run}" for way in WAYS for run in ("warm", *range(options.runs))}
    with running(directory, config=config, paused=paused) as service:
        warm = [data[0].slice(0, 10_000)]
        for way in WAYS:
            service.wait(str(fill_paused(store, paused, f"{way}warm", warm)), 10_000)
        for run in range(options.runs):
            for way in WAYS if run % 2 == 0 else reversed(WAYS):  # in turn: a machine gets slower or faster
                table = fill_paused(store, paused, f"{way}{run}", data)
                before_s = cpu_s()
                spent[way].append(tier(directory, service, store, table, options.rows))
                processor[way].append(cpu_s() - before_s)
            if not options.skip_spark:
                before_s = cpu_s()
                spent["spark"].append(by_spark(service, parquet, directory / "spark-out"))
                processor["spark"].append(cpu_s() - before_s)
                print(f"spark: {spent['spark'][-1]:.2f} s", flush=True)
                shutil.rmtree(directory / "spark-out")
    show(options.rows, spent)
    print("by processor time:")
    show(options.rows, processor)


def fill_paused(store: EmbeddedStore, paused: set[str], name: str, data: list[pa.Table]) -> TablePath:
    """Load a table that is among the paused ones, then let the service have it."""
    path = fill(store, name, data)
    paused.discard(path)
    return TablePath.parse(path)


def tier(directory: Path, service: RunningService, store: EmbeddedStore, table: TablePath, total: int) -> float:
    """Wait for the rows of a table, and drop it; returns the seconds of its rounds."""
    done = service.wait(str(table), total)
    seconds = sum((report.ended_ms or 0) - report.started_ms for report in done) / 1000
    place = directory / "warehouse" / table.database / table.table
    files = [file.stat().st_size for file in place.rglob("*.parquet")]
    timings = [report.timings_s for report in done]
    print(f"{table}: {seconds:.2f} s, {len(files)} files of {sum(files) >> 20} MiB, {timings}", flush=True)
    store.drop_table(table)
    shutil.rmtree(place / "data")
    return seconds


def show(total: int, spent: dict[str, list[float]]) -> None:
    """Print medians and ratios of rates."""
    for way, seconds in spent.items():
        if seconds:
            middle = statistics.median(seconds)
            print(f"{way}: median {middle:.2f} s, {total / middle / 1e6:.2f} M rows/s")
    for base, goal in (("spark", 3.0), ("plain", 0.7), ("fanout", 0.0)):
        if spent[base]:
            ratios = [other / ours for other, ours in zip(spent[base], spent["exchange"], strict=True)]
            print(f"rate of the exchange / rate of {base}: {statistics.median(ratios):.2f} (goal {goal})")
    ratios = [plain / fan for plain, fan in zip(spent["plain"], spent["fanout"], strict=True)]
    print(f"rate of the fan-out / rate of plain: {statistics.median(ratios):.2f} (goal 0.85)")


if __name__ == "__main__":
    main()
