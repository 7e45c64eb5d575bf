"""The fan-out writer alone against the plain writer: rows into Iceberg files by a second of processor time.

python benchmarks/fan_out.py [--rows 2000000] [--runs 3] [--partitions 16]

The same batches of 8 columns go to the plain writer of a table as in the source, and to a fan-out writer of a table
with `day(ts), bucket(N, id)`: of rows in the order of their time (one or two days a batch) and of rows whose days come
in any order. The three take turns; the best of all turns counts.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakeward.clock import SystemClock
from lakeward.model.batches import SourceBatch, batch_schema, log_records
from lakeward.model.identity import Incarnation, RoundId
from lakeward.model.partitioning import PartitionField
from lakeward.model.settings import LakeSettings
from lakeward.model.splits import LogSplit
from lakeward.model.tables import Change, TableBucket, TablePath, TableSpec
from lakeward.subtask.fan_out.dividing import RowDivider
from lakeward.subtask.fan_out.files import PartitionFiles
from lakeward.subtask.fan_out.writer import FanOutLimits, SplitFanOut
from lakeward_lake_iceberg.options import IcebergOptions
from lakeward_lake_iceberg.plugin import IcebergLakePlugin

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.results import LakeFile
    from lakeward.ports import LakeWriter

BATCH = 65_536
DAYS = 4
DAY_US = 86_400_000_000
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("ts", pa.timestamp("us")),
        pa.field("customer", pa.int64()),
        pa.field("amount", pa.float64()),
        pa.field("quantity", pa.int32()),
        pa.field("country", pa.string()),
        pa.field("note", pa.string()),
        pa.field("paid", pa.bool_()),
    ]
)


def batches(rows: int, *, ordered: bool) -> list[SourceBatch]:
    """Make the records; `ordered`: by their time."""
    random = np.random.default_rng(7)
    countries = pa.array([f"country {number}" for number in range(60)])
    found = []
    for first in range(0, rows, BATCH):
        count = min(BATCH, rows - first)
        ids = np.arange(first, first + count)
        times = ids * (DAYS * DAY_US // rows) if ordered else random.integers(0, DAYS * DAY_US, count)
        columns = [
            pa.array(ids),
            pa.array(times).cast(pa.timestamp("us")),
            pa.array(random.integers(0, 100_000, count)),
            pa.array(random.random(count)),
            pa.array(random.integers(0, 50, count, dtype=np.int32)),
            countries.take(pa.array(random.integers(0, 60, count))),
            pa.array([f"note {number}" for number in random.integers(0, 1 << 40, count)]),
            pa.array(random.random(count) < 0.5),
        ]
        plain = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
        records = log_records(batch_schema(SCHEMA), plain, Change.APPEND, first, 1_700_000_000_000)
        found.append(SourceBatch(records, first + count))
    return found


class Lake:
    """An Iceberg warehouse with the table, partitioned or not."""

    def __init__(self, root: Path, *fields: str) -> None:
        """Create the table."""
        path = TablePath("shop", "orders")
        layout = tuple(map(PartitionField.parse, fields))
        self._table = TableSpec(path, 1, 1, SCHEMA, (), (), (), 1, 60.0, lake_partition=layout)
        self._plugin = IcebergLakePlugin()
        lake = self._plugin.open(IcebergOptions(warehouse=str(root)), SystemClock())
        who = Incarnation("bench", 1, "0" * 16)
        lake.open_table(self._table, who)
        self._task = lake.writer_task(self._table, lake.stamp(path, who), RoundId(who, 1, 1, 1))
        self._attempt = 0

    def writer(self) -> LakeWriter:
        """Open a writer as a subtask does."""
        self._attempt += 1
        bucket = TableBucket(1, None, 0)
        if not self._table.lake_partition:
            return self._plugin.writer(self._task, self._table, LogSplit("b0", bucket, (), 0, 1 << 40), self._attempt)
        make = partial(self._open, self._attempt)
        partitioner = self._plugin.partitioner(self._task, self._table)
        return SplitFanOut(
            RowDivider(partitioner, self._table, bucket=0),
            PartitionFiles(make, "b0", partitioner),
            FanOutLimits(64, open_rows_bytes=256 << 20, memory_bytes=LakeSettings().write_memory),
            time.process_time,
        )

    def _open(
        self, attempt: int, partition: bytes, name: str, before: tuple[LakeFile, ...], memory_bytes: int
    ) -> LakeWriter:
        return self._plugin.partition_writer(self._task, self._table, partition, name, attempt, before, memory_bytes)


def measure(make: Callable[[], LakeWriter], records: list[SourceBatch]) -> tuple[float, float, int]:
    """Write all; return seconds, seconds of them for dividing rows, and files."""
    started = time.process_time()
    writer = make()
    for batch in records:
        writer.write(replace(batch))
    files = writer.close()
    seconds = time.process_time() - started
    assert sum(file.rows for file in files) == sum(batch.records.num_rows for batch in records)
    return seconds, writer.timings_s.get("partition", 0.0), len(files)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=16, help="N of bucket(N, id); four days each")
    options = parser.parse_args()
    ordered, mixed = batches(options.rows, ordered=True), batches(options.rows, ordered=False)
    with tempfile.TemporaryDirectory() as folder:
        root, fields = Path(folder), ("day(ts)", f"bucket({options.partitions}, id)")
        plain, divided = Lake(root / "plain"), Lake(root / "divided", *fields)
        cases = {
            "plain, rows by time": (plain, ordered),
            "fan-out, rows by time": (divided, ordered),
            "plain, rows in any order": (plain, mixed),
            "fan-out, rows in any order": (divided, mixed),
        }
        best: dict[str, tuple[float, float, int]] = {}
        for _ in range(options.runs):
            for name, (lake, records) in cases.items():
                best[name] = min(best.get(name, (1e9, 0.0, 0)), measure(lake.writer, records))
    for name, (seconds, dividing, files) in best.items():
        base = best[name.replace("fan-out", "plain")][0]
        print(
            f"{name:>27}: {options.rows / seconds:>9,.0f} rows/s, {base / seconds:.2f}x; "
            f"dividing {dividing:.2f} of {seconds:.2f} s; {files} files"
        )


if __name__ == "__main__":
    main()
