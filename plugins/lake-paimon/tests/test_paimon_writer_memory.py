"""What the rows of a partitioned table take of a writer's memory, by Arrow's own count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from lakeward.model.batches import SourceBatch, batch_schema, log_records
from lakeward.model.tables import BUCKET_COLUMN, Change
from lakeward.subtask.fan_out.dividing import RowDivider
from lakeward.subtask.fan_out.files import PartitionFiles
from lakeward.subtask.fan_out.writer import ExchangeFanOut, FanOutLimits
from lakeward_testing.lake_partitions import PARTITIONED, partitioned
from lakeward_testing.lake_tables import TieringRound, incarnation, key_table, log_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.tables import TableSpec
    from lakeward.ports import Lake, LakeWriter
    from lakeward_lake_paimon.plugin import PaimonLakePlugin

BATCH = 2500
BATCHES = 60
HELD = OPEN_ROWS = 1 << 20
MEMORY = 1 << 20


def batch(number: int, change: int, rows: int = BATCH, *, key_count: int = 1 << 40) -> SourceBatch:
    """Make rows, each with its bucket."""
    ids = np.arange(number * rows, (number + 1) * rows)
    texts = pa.array(ids * 7919 % 100_003).cast(pa.string())
    columns = [pa.array(ids % key_count), texts, pa.array(ids).cast(pa.timestamp("us"))]
    records = pa.RecordBatch.from_arrays(columns, schema=PARTITIONED)
    numbered = log_records(batch_schema(PARTITIONED), records, change, int(ids[0]), 0)
    return SourceBatch(numbered.append_column(BUCKET_COLUMN, pa.array(np.zeros(rows, dtype=np.int32))), 0)


@pytest.mark.parametrize(
    ("make", "change", "buckets"), [(log_table, Change.APPEND, 16), (key_table, Change.INSERT, 2)], ids=["log", "key"]
)
def test_a_writer_of_many_partitions_takes_no_more_memory_for_four_times_the_rows(
    lake: Lake, plugin: PaimonLakePlugin, make: Callable[..., TableSpec], change: int, buckets: int
) -> None:
    """Writers of key tables may hold some MiB each, those of log tables nothing."""
    table = make(**partitioned(f"bucket({buckets}, id)"))
    tiering = TieringRound(plugin, lake, table, incarnation())

    def writer_of(partition: bytes, name: str, before: tuple[object, ...], memory_bytes: int) -> LakeWriter:
        del before
        return plugin.partition_writer(tiering.task, table, partition, name, 1, (), memory_bytes)

    partitioner = plugin.partitioner(tiering.task, table)
    files, limits = PartitionFiles(writer_of, "x0", partitioner), FanOutLimits(64, OPEN_ROWS, HELD)
    writer = ExchangeFanOut(RowDivider(partitioner, table), files, limits)
    before, most = pa.total_allocated_bytes(), [0, 0]
    for number in range(4 * BATCHES):
        writer.write(batch(number, change))
        late = number >= BATCHES
        most[late] = max(most[late], pa.total_allocated_bytes() - before)
    writer.abort()

    assert most[1] <= 1.1 * most[0]
    assert most[0] <= 4 * (HELD + OPEN_ROWS)


@pytest.mark.parametrize(
    ("make", "change"), [(log_table, Change.APPEND), (key_table, Change.UPDATE_AFTER)], ids=["log", "key"]
)
def test_a_writer_of_one_partition_holds_no_more_rows_than_its_memory(
    lake: Lake, plugin: PaimonLakePlugin, make: Callable[..., TableSpec], change: int
) -> None:
    table = make(**partitioned("year(at)"))
    tiering = TieringRound(plugin, lake, table, incarnation())
    (key,) = plugin.partitioner(tiering.task, table).partition(batch(0, change, 1).records).partitions
    writer = plugin.partition_writer(tiering.task, table, key, "w", 1, (), MEMORY)
    held = []
    before = pa.total_allocated_bytes()
    for number in range(60):
        writer.write(batch(number, change, 2000))
        held.append(pa.total_allocated_bytes() - before)
    # The last batch itself, and what Parquet has encoded but not written, come to it.
    assert max(held) < 4 * MEMORY
    files = writer.close()
    assert sum(file.rows for file in files if file.kind == "data") + writer.left_out == 120_000


@pytest.mark.parametrize("make", [log_table, key_table], ids=["log", "key"])
def test_a_slice_of_a_large_batch_does_not_keep_it_in_memory(
    lake: Lake, plugin: PaimonLakePlugin, make: Callable[..., TableSpec]
) -> None:
    table = make(**partitioned("year(at)"))
    tiering = TieringRound(plugin, lake, table, incarnation())
    (key,) = plugin.partitioner(tiering.task, table).partition(batch(0, Change.INSERT, 1).records).partitions
    writer = plugin.partition_writer(tiering.task, table, key, "w", 1, (), 1 << 23)
    before = pa.total_allocated_bytes()
    for number in range(10):
        writer.write(SourceBatch(batch(number, Change.INSERT, 20_000).records.slice(7, 3), 1))
    assert pa.total_allocated_bytes() - before < 1 << 20
    writer.abort()
