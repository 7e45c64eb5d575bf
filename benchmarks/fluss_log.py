"""A log table of a real Fluss cluster to Iceberg, against plain pyfluss -> pyarrow in two processes.

python benchmarks/fluss_log.py [--rows 8000000] [--runs 2] [--level 1]

8 columns, 4 buckets, zstd, `local[2]`, one warm service; written with pyfluss. In turn: two processes scan two
buckets each with pyfluss and write Parquet (no lake, no commit), then the service tiers the same table, from hand-out
to lake commit. Printed: rates, their ratio, where the time went (seconds of both subtasks together for read, decode,
encode and upload), and the memory of driver, JVM and workers together. Memory is to be the same for `--rows 32000000`.
"""

from __future__ import annotations

import argparse
import statistics

from fluss_plain import scan_and_write
from fluss_rows import append
from fluss_stage import Stage, seconds, stage, timings
from footprint import Footprint


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=8_000_000)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--level", type=int, default=1)
    options = parser.parse_args()
    with stage(level=options.level) as on:
        ratios = [once(on, f"bench.log{run}", options.rows, options.level) for run in range(options.runs)]
    print(f"rate of the service / rate of the plain processes: {statistics.median(ratios):.2f}; goal: at least 0.75")


def once(on: Stage, name: str, total: int, level: int) -> float:
    """Fill a table, read it twice; returns the ratio."""
    on.create(name)
    on.apart(append, name, 0, total)
    ends = {state.bucket.bucket: state.end for state in on.buckets(name)}
    assert sum(ends.values()) == total
    plain = scan_and_write(on.bootstrap, name, ends, on.directory / name, level)
    print(f"{name}: plain, two processes: {plain}, {total / plain.seconds / 1e6:.2f} M rows/s", flush=True)
    with Footprint() as footprint:
        done = on.tier(name, total)
    ours = seconds(done)
    print(f"{name}: service: {ours:.2f} s, {total / ours / 1e6:.2f} M rows/s, {len(done)} rounds; {footprint}")
    print(f"  where: {timings(done)}", flush=True)
    return plain.seconds / ours


if __name__ == "__main__":
    main()
