"""Peak memory of driver and workers, tiering 1 M and 20 M rows of the same log table shape.

python benchmarks/memory.py [--small 1000000] [--large 20000000] [--exchange]

With `--exchange` the lake table has 64 partitions, and rows are exchanged.

`lakeward run --once` runs as a process of its own; its process tree is looked at ten times a second.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from exchange import TABLES, spread
from lakeward.model.tables import TablePath
from lakeward_source_embedded.store import EmbeddedStore
from log_to_iceberg import BUCKETS, STEP, rows
from running_service import CONFIG

PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024


def tree(root: int) -> dict[int, tuple[str, int]]:
    """Return the processes below one, itself included: pid to kind and private memory in KiB."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return {pid: (kind(pid, root), private_kib(pid)) for pid in found}


def kind(pid: int, root: int) -> str:
    """Say what a process is: driver, jvm or worker."""
    if pid == root:
        return "driver"
    try:
        line = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "gone"
    return "jvm" if "java" in line.split("\0")[0] else "worker"


def private_kib(pid: int) -> int:
    """Memory of a process without what it shares with files (a mapped Arrow file is the system's cache)."""
    try:
        _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * PAGE_KIB


def tier(total: int, *, exchange: bool) -> dict[str, int]:
    """Tier so many rows; returns the peak of each kind of process, in MiB."""
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as place:
        directory = Path(place)
        config = CONFIG.format(rounds=2, level=3, backend="noop") + (TABLES if exchange else "")
        (directory / "lakeward.toml").write_text(config, encoding="utf-8")
        store = EmbeddedStore.create(directory / "store")
        table = TablePath("bench", "exchange" if exchange else "log")
        store.create_table(table, rows(0, 10).schema, buckets=BUCKETS)
        for start in range(0, total, STEP):
            piece = rows(start % 5_000_000, STEP)
            store.load(table, spread(piece) if exchange else piece)
        command = [sys.executable, "-m", "lakeward", "run", "--once", "-c", str(directory / "lakeward.toml")]
        process = subprocess.Popen(command)
        peak: dict[str, int] = {}
        while process.poll() is None:
            for what, size in tree(process.pid).values():
                peak[what] = max(peak.get(what, 0), size // 1024)
            time.sleep(0.1)
        if process.returncode:
            message = f"the service ended with {process.returncode}"
            raise RuntimeError(message)
        return peak


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--small", type=int, default=1_000_000)
    parser.add_argument("--large", type=int, default=20_000_000)
    parser.add_argument("--exchange", action="store_true")
    options = parser.parse_args()
    small, large = (tier(total, exchange=options.exchange) for total in (options.small, options.large))
    print(f"peak private memory, MiB, of one process of each kind: {options.small:,} rows and {options.large:,} rows")
    for what in ("driver", "worker"):
        print(f"  {what}: {small[what]} and {large[what]}, ratio {large[what] / small[what]:.2f}")


if __name__ == "__main__":
    main()
