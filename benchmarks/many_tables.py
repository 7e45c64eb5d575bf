"""Ten tables with 1,000 new rows each, one warm service: from the new rows to all ten committed.

python benchmarks/many_tables.py [--tables 10] [--runs 5]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from lakeward.model.tables import TablePath
from lakeward_source_embedded.store import EmbeddedStore
from running_service import running

ROWS = 1000


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tables", type=int, default=10)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as place:
        spent = bench(Path(place), options.tables, options.runs)
    each = ", ".join(f"{seconds:.2f}" for seconds in spent)
    print(
        f"{options.tables} tables x {ROWS} new rows, seconds to all committed: {each}; "
        f"median {statistics.median(spent):.2f}"
    )


def bench(directory: Path, tables: int, runs: int) -> list[float]:
    """Load a thousand rows into each table and wait, again and again; the first time is for warmth."""
    store = EmbeddedStore.create(directory / "store")
    rows = pa.table({"id": range(ROWS), "name": [f"row {number}" for number in range(ROWS)]})
    paths = [TablePath("bench", f"t{number}") for number in range(tables)]
    for path in paths:
        store.create_table(path, rows.schema, freshness_s=0.1)
    spent = []
    with running(directory, rounds=2) as service:
        for _ in range(runs + 1):
            started = time.perf_counter()
            for path in paths:
                store.load(path, rows)
            waiting = {str(path): ROWS for path in paths}
            while any(waiting.values()):
                report = service.rounds.get(timeout=120)
                waiting[report.table] -= report.rows
            spent.append(time.perf_counter() - started)
    return spent[1:]


if __name__ == "__main__":
    main()
