"""A primary-key table of a real Fluss cluster to Iceberg: the first round from KV snapshots, then one of changes.

python benchmarks/fluss_keyed.py [--rows 2000000] [--updates 200000] [--deletes 100000] [--level 1]

8 columns, 4 buckets, zstd, `local[2]`, one warm service; written with pyfluss. Compared with two plain pyarrow
processes that write the same rows from memory, no lake, no commit. Printed: seconds from hand-out to lake commit,
where they went (seconds of both subtasks together for read, decode, encode and upload), and two ratios.
"""

from __future__ import annotations

import argparse

from fluss_plain import write
from fluss_rows import change, upsert
from fluss_stage import Stage, seconds, stage, timings
from footprint import Footprint

NAME = "bench.keyed"


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--updates", type=int, default=200_000)
    parser.add_argument("--deletes", type=int, default=100_000)
    parser.add_argument("--level", type=int, default=1)
    options = parser.parse_args()
    with stage(level=options.level) as on:
        plain = write(options.rows, on.directory / "plain", options.level)
        print(
            f"plain, two processes, from memory: {plain}, {options.rows / plain.seconds / 1e6:.2f} M rows/s", flush=True
        )
        on.create(NAME, key=("id",))
        on.apart(upsert, NAME, 0, options.rows)
        on.wait_snapshots(NAME)
        first = round_of(on, "first round", options.rows)
        again = write(options.rows, on.directory / "again", options.level)
        on.apart(change, NAME, options.rows, options.updates, options.deletes)
        # An update is two records of the log: the row as it was, and as it is.
        second = round_of(on, "second round", 2 * options.updates + options.deletes)
    print(f"plain again: {again}")
    print(f"rate of the first round / rate of plain: {plain.seconds / first:.2f}; goal: at least 0.35")
    print(f"second round / plain, seconds: {second / again.seconds:.2f}; goal: at most 1")


def round_of(on: Stage, what: str, records: int) -> float:
    """Let the service tier what is there; returns seconds."""
    with Footprint() as footprint:
        done = on.tier(NAME, records)
    spent = seconds(done)
    print(f"{what}: {spent:.2f} s, {records / spent / 1e6:.2f} M records/s, {len(done)} rounds; {footprint}")
    print(f"  where: {timings(done)}", flush=True)
    return spent


if __name__ == "__main__":
    main()
