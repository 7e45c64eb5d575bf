"""Opens what a split is written with: the lake's own writer, or one for many partitions, and what filters its rows."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from msgspec import structs

from lakeward.model.batches import batch_schema
from lakeward.model.dead_letters import split_files
from lakeward.model.splits import LogSplit
from lakeward.model.tables import TableBucket
from lakeward.model.wire import unpack_table
from lakeward.subtask.dead_letter_files import DeadLetterFiles
from lakeward.subtask.fan_out.dividing import RowDivider
from lakeward.subtask.fan_out.files import PartitionFiles
from lakeward.subtask.fan_out.writer import FanOutLimits, SplitFanOut
from lakeward.subtask.row_filter import RowFilter
from lakeward.subtask.unwanted_columns import UnwantedColumns

if TYPE_CHECKING:
    from lakeward.hooks.plugins import CheckingLakePlugin, LakePlugin, PartitioningLakePlugin
    from lakeward.model.checkpoints import SplitProgress
    from lakeward.model.events import Deploy
    from lakeward.model.tables import TableSpec
    from lakeward.ports import Clock, LakeWriter, RowCheck
    from lakeward.subtask.fan_out.files import PartitionWriters


def split_writer(
    lake: LakePlugin, deploy: Deploy, table: TableSpec, progress: SplitProgress, clock: Clock
) -> LakeWriter:
    """Open the writer of one split, with what another writer had done of it (`progress`)."""
    split = progress.split
    progress = structs.replace(progress, files=split_files(progress.files)[0])
    of_one_partition = split.partition or not table.late_rows
    if of_one_partition and not table.lake_partition:
        return lake.writer(deploy.lake_task, table, split, deploy.attempt, progress)
    # The table was refused where the lake has not these (`check_partitioned_tables`, `check_late_rows`).
    partitioning = cast("PartitioningLakePlugin", lake)
    partitioner = partitioning.partitioner(deploy.lake_task, table)
    moves_rows = bool(table.outside_key(table.lake_partition))
    return SplitFanOut(
        RowDivider(partitioner, table, bucket=split.bucket.bucket, deletes_old_row=moves_rows),
        PartitionFiles(partition_writers(partitioning, deploy, table), split.split_id, partitioner, progress.files),
        FanOutLimits(deploy.open_files, deploy.open_rows_bytes, deploy.write_memory_bytes),
        clock.now,
    )


def row_filter(lake: LakePlugin, deploy: Deploy, table: TableSpec, progress: SplitProgress) -> RowFilter:
    """Open what keeps rows from the writer that do not fit the lake table."""
    rules = deploy.bad_rows
    if rules is None:
        return RowFilter(table.path, progress)
    # The configuration was refused where the lake has no such method (`check_bad_rows`).
    check: RowCheck = cast("CheckingLakePlugin", lake).row_check(deploy.lake_task, table, progress.split)
    if table.read_schema is not None:
        check = UnwantedColumns(table, progress.split.bucket, check)
    columns = None if table.read_schema is None else batch_schema(table.schema).names
    if rules.letters is None:
        return RowFilter(table.path, progress, check, rules.most, columns=columns)
    letters, bucket = rules.letters, progress.split.bucket
    split = LogSplit(progress.split.split_id, TableBucket(bucket.table_id, None, bucket.bucket), (), 0, 0)
    open_writer = partial(lake.writer, letters.lake_task, unpack_table(letters.table), split, deploy.attempt)
    files = DeadLetterFiles(open_writer, progress.split, letters.round_name)
    return RowFilter(table.path, progress, check, rules.most, files, columns=columns)


def partition_writers(lake: PartitioningLakePlugin, deploy: Deploy, table: TableSpec) -> PartitionWriters:
    """Return what makes the writers of single partitions."""
    task, attempt = deploy.lake_task, deploy.attempt
    return lambda partition, name, before, memory_bytes: lake.partition_writer(
        task, table, partition, name, attempt, before, memory_bytes
    )
