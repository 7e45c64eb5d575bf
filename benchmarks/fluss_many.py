"""Many small tables of a real Fluss cluster, four rounds at a time: from the new rows to all committed.

python benchmarks/fluss_many.py [--tables 200] [--rows 100]

A warm service; every table has been tiered once. Then each gets new rows, and the clock runs until all are in the
lake. Printed: seconds, and where rounds spent them.
"""

from __future__ import annotations

import argparse
import time

import pyarrow as pa

from fluss_rows import rows
from fluss_stage import Stage, seconds, stage, timings
from lakeward_demo.fluss.writer import FlussWriter

AT_A_TIME = 4


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tables", type=int, default=200)
    parser.add_argument("--rows", type=int, default=100)
    options = parser.parse_args()
    with stage(rounds=AT_A_TIME) as on:
        names = [f"many.t{number}" for number in range(options.tables)]
        on.create(*names)
        once(on, names, rows(0, options.rows), "first rows")
        spent = once(on, names, rows(0, options.rows), "new rows")
    print(f"{options.tables} tables x {options.rows} new rows, all committed after {spent:.1f} s; goal: 60 s for 200")


def once(on: Stage, names: list[str], new: pa.Table, what: str) -> float:
    """Give each table rows, then let the service have them; returns seconds."""
    writer = FlussWriter(on.bootstrap)
    for number, name in enumerate(names):
        if number % AT_A_TIME == 0:
            writer.forget()  # a connection of pyfluss keeps a buffer for each table, and hangs when it has no more room
        writer.append(name, new)
    writer.close()
    started = time.perf_counter()
    on.paused.difference_update(names)
    done = on.service.wait_all(dict.fromkeys(names, len(new)))
    spent = time.perf_counter() - started
    on.paused.update(names)
    print(
        f"{what}: {spent:.1f} s; {len(done)} rounds, {seconds(done) / len(done):.2f} s each; {timings(done)}",
        flush=True,
    )
    return spent


if __name__ == "__main__":
    main()
