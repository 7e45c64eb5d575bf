"""What it costs to check rows: a log table tiered from the embedded source to Iceberg under each `on_bad_row`.

python benchmarks/bad_rows.py [--rows 4000000] [--runs 3] [--bad 0.01]

In turn, several times, in one run, a warm service tiers N new rows of a log table of 8 columns in 4 buckets: (a) with
`suspend`, which checks nothing beforehand; (b) with `dead_letter` and no bad row; (c) with `drop` and (d) with
`dead_letter`, where a share of the rows has text that is no UTF-8. Printed: seconds of each, and the rates of (b) to
(d) as ratios to that of (a) in the same turn.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from lakeward_source_embedded.store import EmbeddedStore
from log_to_iceberg import STEP, fill, rows
from running_service import CONFIG, running

KINDS = {"suspend": "suspend", "all fit": "dead_letter", "dropped": "drop", "dead letters": "dead_letter"}


def with_bad_rows(table: pa.Table, share: float) -> pa.Table:
    """Make a share of the texts broken."""
    texts = table["text"].combine_chunks().cast(pa.binary())
    bad = np.random.default_rng(table["id"][0].as_py()).random(table.num_rows) < share
    broken = pa.compute.if_else(pa.array(bad), pa.scalar(b"broken \xff text", pa.binary()), texts)
    return table.set_column(table.schema.get_field_index("text"), "text", broken.view(pa.string()))


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--bad", type=float, default=0.01)
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="lakeward-bench-"))
    try:
        bench(directory, options)
    finally:
        shutil.rmtree(directory)


def bench(directory: Path, options: argparse.Namespace) -> None:
    """Make the data, then tier it in turn."""
    store = EmbeddedStore.create(directory / "store")
    good = [rows(start, STEP) for start in range(0, options.rows, STEP)]
    bad = [with_bad_rows(piece, options.bad) for piece in good]
    runs = [f"{name.replace(' ', '_')}{run}" for run in range(options.runs) for name in KINDS]
    sections = [
        f'[tables."bench.{name}{run}"]\non_bad_row = "{kind}"\nbad_rows_most = 0.9\n'
        for run in range(options.runs)
        for name, kind in ((one.replace(" ", "_"), KINDS[one]) for one in KINDS)
    ]
    config = CONFIG.format(rounds=1, level=1, backend="fluss") + "\n" + "\n".join(sections)
    seconds: dict[str, list[float]] = {name: [] for name in KINDS}
    with running(directory, config=config) as service:
        service.wait(fill(store, "warm", [rows(0, 1000)]), 1000)
        for name in runs:
            kind = name.rstrip("0123456789").replace("_", " ")
            data = bad if kind in {"dropped", "dead letters"} else good
            done = service.wait(fill(store, name, data), options.rows)
            seconds[kind].append(sum((report.ended_ms or 0) - report.started_ms for report in done) / 1000)
            print(f"{kind}: {seconds[kind][-1]:.2f} s", flush=True)
    print(f"{options.rows:,} rows, {options.bad:.1%} bad where some are; rates against `suspend`, median:")
    for name in list(KINDS)[1:]:
        ratios = [base / one for base, one in zip(seconds["suspend"], seconds[name], strict=True)]
        print(f"  {name}: {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")


if __name__ == "__main__":
    main()
