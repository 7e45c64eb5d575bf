"""What the rows of a partitioned table take of a writer's memory, by Arrow's own count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakeward.model.batches import SourceBatch, batch_schema, log_records
from lakeward.model.tables import BUCKET_COLUMN, Change
from lakeward.subtask.fan_out.dividing import RowDivider
from lakeward.subtask.fan_out.files import PartitionFiles
from lakeward.subtask.fan_out.writer import ExchangeFanOut, FanOutLimits
from lakeward_iceberg_kit.partitioned import EVENTS, PartitionedRound, layout
from lakeward_testing.lake_tables import incarnation, log_table

if TYPE_CHECKING:
    from lakeward.ports import Lake, LakeWriter
    from lakeward_lake_iceberg.plugin import IcebergLakePlugin

BATCH = 2500
BATCHES = 80
HELD = OPEN_ROWS = 1 << 20


def batch(number: int) -> SourceBatch:
    """Make rows of all partitions."""
    ids = np.arange(number * BATCH, (number + 1) * BATCH)
    names = pa.array(ids * 7919 % 100_003).cast(pa.string())
    rows = pa.RecordBatch.from_arrays([pa.array(ids), pa.array(ids).cast(pa.timestamp("us")), names], schema=EVENTS)
    records = log_records(batch_schema(EVENTS), rows, Change.APPEND, int(ids[0]), 0)
    return SourceBatch(records.append_column(BUCKET_COLUMN, pa.array(np.zeros(BATCH, dtype=np.int32))), 0)


def test_a_writer_of_many_partitions_takes_no_more_memory_for_four_times_the_rows(
    lake: Lake, plugin: IcebergLakePlugin
) -> None:
    table = log_table(EVENTS, lake_partition=layout("bucket(16, id)"))
    tiering = PartitionedRound(plugin, lake, table, incarnation(), 1)

    def make(partition: bytes, name: str, before: tuple[object, ...], memory_bytes: int) -> LakeWriter:
        del before
        return plugin.partition_writer(tiering.task, table, partition, name, 1, (), memory_bytes)

    partitioner = plugin.partitioner(tiering.task, table)
    files, limits = PartitionFiles(make, "x0", partitioner), FanOutLimits(64, OPEN_ROWS, HELD)
    writer = ExchangeFanOut(RowDivider(partitioner, table), files, limits)
    before, most = pa.total_allocated_bytes(), [0, 0]
    for number in range(4 * BATCHES):
        writer.write(batch(number))
        late = number >= BATCHES
        most[late] = max(most[late], pa.total_allocated_bytes() - before)
    writer.abort()

    assert most[1] <= 1.1 * most[0]
    assert most[0] <= 2 * (HELD + OPEN_ROWS)
