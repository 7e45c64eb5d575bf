"""What reading a log table of a real Fluss cluster costs: the source's reader beside pyfluss, no Spark, no lake.

python benchmarks/fluss_scan.py [--rows 2000000] [--runs 3] [--python OTHER/bin/python ...]

8 columns, 4 buckets, Arrow batches with zstd as Fluss writes them. Each candidate scans the whole table in a process of
its own and keeps nothing: pyfluss, the reader of this environment, and that of each other one (`--python`: another
version, to be compared in the same run). They take turns. Printed: seconds of CPU, of which decoding, and the multiple
of what pyfluss took; the least of all turns counts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fluss_rows import SCHEMA, append
from lakeward.clock import SystemClock
from lakeward.model.splits import LogSplit
from lakeward.model.tables import TablePath
from lakeward_demo.fluss.cluster import ClusterPlan, FlussCluster
from lakeward_demo.fluss.writer import FlussWriter
from lakeward_source_fluss.source.options import FlussOptions
from lakeward_source_fluss.source.plugin import FlussSourcePlugin

BUCKETS = 4
NAME = "bench.scan"
PYFLUSS = "pyfluss"


def read(bootstrap: str) -> dict[str, float]:
    """Read the table with the source's reader; returns rows, and seconds of CPU and of decoding."""
    plugin = FlussSourcePlugin()
    source = plugin.open(FlussOptions(bootstrap=bootstrap), SystemClock())
    table = source.table(TablePath.parse(NAME))
    buckets = source.buckets(table)
    reader = plugin.reader(source.reader_task(table), table)
    splits = [LogSplit(f"log-{one.bucket.bucket}", one.bucket, (), one.start, one.end) for one in buckets]
    first = LogSplit("first", splits[0].bucket, (), splits[0].start, splits[0].start + 1)
    list(reader.read_log(first))  # connects, and loads what is loaded late
    started = time.process_time()
    rows, decode_s = 0, 0.0
    for split in splits:
        for batch in reader.read_log(split):
            rows += batch.records.num_rows
            decode_s += batch.decode_s
    spent = time.process_time() - started
    reader.close()
    source.close()
    return {"rows": rows, "cpu": spent, "decode": decode_s}


async def scan(bootstrap: str, total: int) -> dict[str, float]:
    """Read the table with pyfluss; returns rows and seconds of CPU."""
    import fluss  # noqa: PLC0415 - in this process alone

    connection = await fluss.FlussConnection.create(fluss.Config({"bootstrap.servers": bootstrap.partition(",")[0]}))
    table = await connection.get_table(fluss.TablePath(*NAME.split(".")))
    scanner = await table.new_scan().create_record_batch_log_scanner()
    started = time.process_time()
    scanner.subscribe_buckets(dict.fromkeys(range(BUCKETS), 0))
    rows = 0
    while rows < total:
        rows += sum(one.batch.num_rows for one in await scanner.poll_record_batch(1000))
    return {"rows": rows, "cpu": time.process_time() - started}


def candidate(python: str, what: str, bootstrap: str, total: int) -> dict[str, float]:
    """Let a process of some environment read the table."""
    command = [python, __file__, "--candidate", what, bootstrap, "--rows", str(total)]
    found: dict[str, float] = json.loads(subprocess.check_output(command, encoding="utf-8"))
    if found["rows"] != total:
        message = f"{python}, {what}: expected {total} rows, found {found['rows']}"
        raise RuntimeError(message)
    return found


def bench(bootstrap: str, total: int, runs: int, others: list[str]) -> None:
    """Fill the table, let the candidates take turns, and print."""
    writer = FlussWriter(bootstrap)
    writer.create(NAME, SCHEMA, buckets=BUCKETS)
    writer.close()
    append(bootstrap, NAME, 0, total)
    turns = [(sys.executable, PYFLUSS), (sys.executable, "reader"), *((python, "reader") for python in others)]
    best: dict[tuple[str, str], dict[str, float]] = {}
    for _ in range(runs):
        for python, what in turns:
            found = candidate(python, what, bootstrap, total)
            best[python, what] = min(best.get((python, what), found), found, key=lambda each: each["cpu"])
    base = best[turns[0]]["cpu"]
    for turn in turns:
        spent = best[turn]
        decode = f", decoding {spent['decode']:.2f} s, {spent['decode'] / base:.2f}x" if "decode" in spent else ""
        print(f"{turn[1]} ({turn[0]}): {spent['cpu']:.2f} CPU-s for {total:,} rows, {spent['cpu'] / base:.2f}x{decode}")


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--python", action="append", default=[])
    parser.add_argument("--candidate", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.candidate:
        what, bootstrap = options.candidate
        print(
            json.dumps(asyncio.run(scan(bootstrap, options.rows)) if what == PYFLUSS else read(bootstrap)), flush=True
        )
        os._exit(0)  # pyfluss may abort at the interpreter's end
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as place:
        settings = {"remote.log.task-interval-duration": "0s"}
        with FlussCluster.running(Path(place) / "cluster", ClusterPlan({}, settings, heap="1g")) as cluster:
            bench(cluster.bootstrap, options.rows, options.runs, options.python)


if __name__ == "__main__":
    main()
