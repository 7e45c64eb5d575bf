"""Peak resident memory of `lakeward verify` on 0.2 M and on 2 M rows of the same shape, for both kinds of table.

python benchmarks/verify_memory.py [--small 200000] [--large 2000000] [--memory "32 MiB"]

The tables are tiered to Iceberg on threads of this process; each `verify` is a process of its own, whose high-water
mark is read until it ends. What it takes for a table without rows is shown beside it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from lakeward.model.tables import TablePath
from lakeward.observe.logs import setup_logs
from lakeward_lake_iceberg.options import IcebergOptions
from lakeward_lake_iceberg.plugin import IcebergLakePlugin
from lakeward_service_kit.service_world import World
from log_to_iceberg import BUCKETS, STEP, rows

CONFIG = """
[service]
name = "bench"
[source]
type = "embedded"
path = "store"
[lake]
type = "iceberg"
warehouse = "warehouse"
[checkpoint]
root = "state"
"""
EMPTY = 100
"""Rows of a table that has next to none."""


def tiered(directory: Path, total: int, *, keyed: bool) -> TablePath:
    """Make a table of so many rows and tier it."""
    (directory / "lakeward.toml").write_text(CONFIG, encoding="utf-8")
    world = World.create(directory)
    table = TablePath("bench", "keyed" if keyed else "log")
    world.store.create_table(table, rows(0, 10).schema, ["id"] if keyed else [], buckets=BUCKETS)
    for start in range(0, total, STEP):
        piece = rows(start, min(STEP, total - start))
        if keyed:
            piece = piece.append_column("op", pa.array(["insert"] * len(piece)))
        world.store.load(table, piece, change="op" if keyed else None)
    lake = IcebergLakePlugin().open(IcebergOptions(warehouse=str(directory / "warehouse")), world.clock)
    end = world.once(lake=lake, lake_type="iceberg", max_round_s=3600.0, lake_commit_timeout_s=60.0)
    lake.close()
    world.store.close()
    if end.failed:
        raise RuntimeError(end.failed)
    return table


def high_water_kib(pid: int) -> int:
    """Most resident memory of a process so far; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)


def verify(directory: Path, table: TablePath, memory: str) -> tuple[int, float]:
    """Verify a table; returns the peak of the process in MiB, and seconds."""
    command = [sys.executable, "-m", "lakeward", "verify", str(table), "--memory", memory]
    started = time.perf_counter()
    process = subprocess.Popen(
        [*command, "-c", str(directory / "lakeward.toml")], stdout=subprocess.PIPE, encoding="utf-8"
    )
    peak = 0
    while process.poll() is None:
        peak = max(peak, high_water_kib(process.pid))
        time.sleep(0.01)
    said, _ = process.communicate()
    if process.returncode or "equal" not in said:
        message = f"verify ended with {process.returncode}: {said}"
        raise RuntimeError(message)
    return peak // 1024, time.perf_counter() - started


def measured(total: int, memory: str, *, keyed: bool) -> tuple[int, float]:
    """Make a table of so many rows, tier and verify it."""
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as place:
        return verify(Path(place), tiered(Path(place), total, keyed=keyed), memory)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--small", type=int, default=200_000)
    parser.add_argument("--large", type=int, default=2_000_000)
    parser.add_argument("--memory", default="32 MiB", help="what verify is given")
    options = parser.parse_args()
    setup_logs("text", "error")
    for keyed in (False, True):
        totals = (EMPTY, options.small, options.large)
        (base, _), (small, _), (large, seconds) = (measured(total, options.memory, keyed=keyed) for total in totals)
        kind = "primary-key" if keyed else "append-only"
        print(
            f"{kind} table, --memory {options.memory}: {small} MiB with {options.small:,} rows, {large} MiB with "
            f"{options.large:,} rows, ratio {large / small:.2f}; {base} MiB with {EMPTY} rows; "
            f"{options.large / seconds:,.0f} rows/s"
        )


if __name__ == "__main__":
    main()
