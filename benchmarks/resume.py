"""What a killed service costs: rows that are read again, and seconds until the first new one.

python benchmarks/resume.py [--rows 40000000] [--interval 1] [--exchange]

A service on Spark `local[2]` tiers one log table of 8 columns in 2 buckets, embedded to Iceberg, with a checkpoint
every INTERVAL seconds and files of 32 MiB. In the middle every process of it is killed at once, as when the machine
goes down; then it is started again. Printed: rows that were read before the kill and are not in the checkpoint (those
are read again) beside the bound of one interval's worth and one file for each subtask, and the seconds from the second
start to the service's own word that it has a row the checkpoint did not have: until its round began, to open it, until
Spark had started all subtasks, and what is left, which is ours. With `--exchange` the lake table has 64
partitions: a row counts as read once a writer has taken it, so the checkpoint's rows of channels and open files are
drained first.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from exchange import spread
from lakeward.clock import SystemClock
from lakeward.model.tables import TablePath
from lakeward_source_embedded.store import EmbeddedStore
from log_to_iceberg import rows

STEP = 500_000
SUBTASKS = 2
TABLE = TablePath("bench", "killed")
CONFIG = """
[service]
name = "bench"
poll_s = 0.05
[source]
type = "embedded"
path = "store"
[lake]
type = "iceberg"
warehouse = "warehouse"
target_file_size_bytes = 33554432
[lease]
backend = "fluss"
[spark]
master = "local[2]"
[checkpoint]
interval_s = {interval}
pause_s = 0.0
"""
PARTITIONED = """
[tables."bench.killed"]
lake_partition = ["day(at)", "bucket(16, id)"]
"""


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=40_000_000)
    parser.add_argument("--interval", type=float, default=1.0)
    parser.add_argument("--exchange", action="store_true")
    options = parser.parse_args()
    config = CONFIG.format(interval=options.interval) + (PARTITIONED if options.exchange else "")
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as place:
        Path(place, "lakeward.toml").write_text(config, encoding="utf-8")
        with EmbeddedStore.create(Path(place) / "store") as store:
            fill(store, options.rows)
        bench(Path(place), options)


def fill(store: EmbeddedStore, total: int) -> None:
    """Load all rows while the table is not tiered yet."""
    off = {"table.datalake.enabled": "false"}
    store.create_table(TABLE, rows(0, 1).schema, buckets=SUBTASKS, freshness_s=3600, properties=off)
    for start in range(0, total, STEP):
        store.load(TABLE, spread(rows(start, STEP)))
    store.set_property(TABLE, "table.datalake.enabled", "true")


def bench(directory: Path, options: argparse.Namespace) -> None:
    """Kill one service in the middle, and let another go on."""
    first = start(directory)
    early = wait(directory, first, completed)
    report = wait(directory, first, lambda found: found["rows"] >= options.rows * 0.5)
    at_ms = killed(first)
    rate = (report["rows"] - early["rows"]) / max((report["seen"] - early["seen"]) / 1000, 0.1)
    read = report["rows"] + rate * max(at_ms - report["seen"], 0) / 1000
    kept = checkpointed(directory)
    began, began_ms = time.perf_counter(), SystemClock().wall_ms()
    second = start(directory)
    try:
        there = wait(directory, second, lambda found: 0 < found["slots_asked"] == found["slots"])
        started_s = time.perf_counter() - began
        report = wait(directory, second, lambda found: found["outcome"] == "running" and found["rows"] > kept["rows"])
        resumed_s = time.perf_counter() - began
        done = wait(directory, second, lambda found: found["outcome"] == "committed")
    finally:
        killed(second)
    print(f"rate before the kill: {rate / 1e6:.2f} M rows/s, killed after {read / 1e6:.2f} M rows")
    if not kept["exchange"]:  # with one, rows that were read and rows that a writer took are not the same
        one_file = max(kept["files"])
        bound = options.interval * rate + SUBTASKS * one_file
        again = (read - kept["rows"]) / 1e6
        print(f"read again: {again:.2f} M rows; bound: {bound / 1e6:.2f} M (a file: {one_file:,} rows)")
    up_s = (report["started_ms"] - began_ms) / 1000
    open_s = sum(report["timings_s"].get(phase, 0.0) for phase in ("enumerate", "lease"))
    spark_s, ours_s = started_s - up_s - open_s, resumed_s - started_s + open_s
    parts = f"{up_s:.1f} until its round began, {open_s:.2f} to open it, {spark_s:.1f} until Spark had started "
    parts += f"{there['slots']} subtasks, {resumed_s - started_s:.1f} to the first new row, so {ours_s:.1f} of our own"
    if kept["exchange"]:
        waiting = sum(line["in_rows"] + line["out_rows"] for line in kept["exchange"])
        opened = sum(line["open_rows"] for line in kept["exchange"])
        print(f"the checkpoint had {opened:,} rows in open files and {waiting:,} in channels")
    print(f"from the second start to the first new row: {resumed_s:.1f} s: {parts}; rows in the end: {done['rows']:,}")


def start(directory: Path) -> subprocess.Popen[bytes]:
    """Start a service of its own, as a user does."""
    lakeward = Path(sys.executable).with_name("lakeward")
    command = [str(lakeward), "run", "--no-progress", "--config", str(directory / "lakeward.toml")]
    with (directory / "log.txt").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, cwd=directory)


def wait(directory: Path, service: subprocess.Popen[bytes], seen: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """Look at the status file until something is true of the table's round; returns the round."""
    while service.poll() is None:
        for status in directory.glob("**/status.json"):
            found = json.loads(status.read_text(encoding="utf-8"))
            for table in found["tables"] if found["pid"] == service.pid else ():
                if table["round"] is not None and seen(table["round"]):
                    return {**table["round"], "seen": found["written_ms"]}
        time.sleep(0.01)
    message = f"the service ended: {(directory / 'log.txt').read_text(encoding='utf-8')[-2000:]}"
    raise SystemExit(message)


def completed(report: dict[str, Any]) -> bool:
    """Tell whether a checkpoint of a round has completed."""
    return bool((report["checkpoint"] or {}).get("name"))


def killed(service: subprocess.Popen[bytes]) -> int:
    """Kill a service with everything that it has started; returns when, in milliseconds since 1970."""
    family = psutil.Process(service.pid).children(recursive=True)
    at_ms = SystemClock().wall_ms()
    service.kill()
    for child in family:
        with suppress(psutil.NoSuchProcess):  # it ended meanwhile
            child.kill()
    service.wait()
    psutil.wait_procs(family)
    return at_ms


def checkpointed(directory: Path) -> dict[str, Any]:
    """Return what the newest checkpoint holds: rows, and rows of each closed file."""
    lakeward = Path(sys.executable).with_name("lakeward")
    command = [str(lakeward), "checkpoints", "show", str(TABLE), "--output", "json"]
    command += ["--config", str(directory / "lakeward.toml")]
    shown = json.loads(subprocess.run(command, capture_output=True, check=True, cwd=directory).stdout)
    files = [file["rows"] for file in shown["files"]]
    taken = sum(line["rows"] for line in shown["exchange"])
    return {"rows": taken or sum(files), "files": files or [0], "exchange": shown["exchange"]}


if __name__ == "__main__":
    main()
