"""What writing a key table of Paimon costs, without a source and without a service: the writers of one round alone.

    python benchmarks/paimon_keyed.py [--keys 2000000] [--changes 300000] [--runs 3]

8 columns, 4 buckets, with a changelog, as Fluss makes such tables: a first round of rows of KV snapshots in no order,
then a round of changes, each with the row before and the row after it. Printed for each run: seconds of processor time
of all threads, and where they went by the writers' own timings, which are by the clock.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fluss_rows import SCHEMA, rows
from lakeward.model.batches import SYSTEM_FIELDS
from lakeward.model.results import CommitOutcome
from lakeward.model.tables import NO_OFFSET, Change
from lakeward.ports import SourceBatch
from lakeward_lake_paimon.options import PaimonOptions
from lakeward_lake_paimon.plugin import PaimonLakePlugin
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import TieringRound, incarnation, key_table, log_split

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.ports import Lake

BUCKETS = 4
BATCH = 10_000


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--keys", type=int, default=2_000_000)
    parser.add_argument("--changes", type=int, default=300_000)
    parser.add_argument("--runs", type=int, default=3)
    told = parser.parse_args()
    first = [list(snapshot_batches(told.keys // BUCKETS, bucket)) for bucket in range(BUCKETS)]
    changes = [list(change_batches(told.changes // BUCKETS, bucket)) for bucket in range(BUCKETS)]
    for _ in range(told.runs):
        with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as warehouse:
            plugin = PaimonLakePlugin()
            lake = plugin.open(PaimonOptions(warehouse=warehouse), FakeClock())
            print(f"{told.keys} keys: {tier(plugin, lake, 1, first)}")
            print(f"{told.changes} changes: {tier(plugin, lake, 2, changes)}", flush=True)
            lake.close()


def tier(plugin: PaimonLakePlugin, lake: Lake, number: int, buckets: list[list[SourceBatch]]) -> str:
    """Write and commit a round; return what it cost."""
    tiering = TieringRound(plugin, lake, key_table(SCHEMA, buckets=BUCKETS), incarnation(), number)
    spent: Counter[str] = Counter()
    started = time.process_time()
    for bucket, batches in enumerate(buckets):
        writer = plugin.writer(tiering.task, tiering.table, log_split(tiering.table, bucket), 1)
        for batch in batches:
            writer.write(batch)
        tiering.files += writer.close()
        spent.update(writer.timings_s)
    cpu = time.process_time() - started
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED
    size = sum(file.size_bytes for file in tiering.files) / 1e6
    parts = ", ".join(f"{name} {seconds:.2f}" for name, seconds in spent.items())
    return f"{cpu:.2f} CPU-s ({parts}), {size:.1f} MB"


def snapshot_batches(count: int, bucket: int) -> Iterator[SourceBatch]:
    """Yield rows of a KV snapshot, in no order of their keys."""
    found = rows(bucket * count, count)
    found = found.take(np.random.default_rng(bucket).permutation(count))
    yield from batches_of(found, np.full(count, Change.INSERT), snapshot=True)


def change_batches(count: int, bucket: int) -> Iterator[SourceBatch]:
    """Yield updates of random keys: the row before, and the row after."""
    found = rows(bucket * count * 7, count).take(np.random.default_rng(bucket).integers(0, count, count // 2).repeat(2))
    yield from batches_of(found, np.tile([Change.UPDATE_BEFORE, Change.UPDATE_AFTER], count // 2), snapshot=False)


def batches_of(found: pa.Table, changes: np.ndarray, *, snapshot: bool) -> Iterator[SourceBatch]:
    """Yield batches as a source gives them."""
    offsets = np.full(len(changes), NO_OFFSET) if snapshot else np.arange(len(changes))
    for values, field in zip((changes, offsets, offsets), SYSTEM_FIELDS, strict=True):
        found = found.append_column(field, pa.array(values).cast(field.type))
    for batch in found.combine_chunks().to_batches(BATCH):
        yield SourceBatch(batch, int(batch.column(SYSTEM_FIELDS[1].name)[-1].as_py()) + 1)


if __name__ == "__main__":
    main()
