"""Does a commit to an Iceberg table get slower with the number of commits before it?

    python benchmarks/commit_growth.py [commits]

Commits rounds of four small files each through the lake port, expires every tenth round as the service does, and
prints milliseconds of the first and the last twenty (expiry included, shared by its ten rounds) and their ratio
(goal: at most 1.5), and what lies in `metadata/`.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from lakeward.hooks.plugins import LakePlugin
from lakeward.model.results import CommitOutcome
from lakeward.model.tables import TableBucket
from lakeward.ports import Lake
from lakeward_lake_iceberg.options import IcebergOptions
from lakeward_lake_iceberg.plugin import IcebergLakePlugin
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import PATH, TieringRound, incarnation, log_split, log_table, source_batch

FILES = 4
EXPIRE_EVERY = 10
SHOWN = 20
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    with tempfile.TemporaryDirectory() as warehouse:
        plugin = IcebergLakePlugin()
        lake = plugin.open(IcebergOptions(warehouse=warehouse), FakeClock())
        spent = [_round(plugin, lake, number) for number in range(1, count + 1)]
        _report(spent, Path(warehouse))
        lake.close()


def _round(plugin: LakePlugin, lake: Lake, number: int) -> tuple[float, float]:
    """Return the milliseconds of the commit, and those of the expiry."""
    tiering = TieringRound(plugin, lake, log_table(buckets=FILES, schema=SCHEMA), incarnation(), number)
    for bucket in range(FILES):
        rows = [{"id": number * 1000 + row, "name": "x"} for row in range(10)]
        tiering.write(log_split(tiering.table, bucket), [source_batch(SCHEMA, rows, start=number * 10)])
    request = tiering.request({TableBucket(7, None, bucket): number * 10 for bucket in range(FILES)})
    started = time.perf_counter()
    assert lake.commit(request) is CommitOutcome.LANDED
    committed = time.perf_counter()
    if number % EXPIRE_EVERY == 0:
        lake.expire(PATH, frozenset({request.ids.snapshot_id}))
    return (committed - started) * 1000, (time.perf_counter() - committed) * 1000


def _report(spent: list[tuple[float, float]], warehouse: Path) -> None:
    first, last = _shares(spent[:SHOWN]), _shares(spent[-SHOWN:])
    print(f"commits: {len(spent)}, {FILES} files each, expiry every {EXPIRE_EVERY}")
    for name, which in (("commit", 0), ("expiry share", 1)):
        print(f"{name}: first {SHOWN} {first[which]:.1f} ms, last {SHOWN} {last[which]:.1f} ms")
    print(f"ratio of all: {sum(last) / sum(first):.2f}; slowest commit {max(one for one, _ in spent):.0f} ms")
    files = [path for path in (warehouse / PATH.database / PATH.table / "metadata").iterdir() if path.is_file()]
    print(f"metadata/: {len(files)} files, {sum(path.stat().st_size for path in files) / 1e6:.2f} MB")


def _shares(spent: list[tuple[float, float]]) -> tuple[float, float]:
    return statistics.mean(one for one, _ in spent), statistics.mean(two for _, two in spent)


if __name__ == "__main__":
    main()
