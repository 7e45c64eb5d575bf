"""Opens the writer of a split: the lake's own, or one that divides its records among partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from lakeward.subtask.fan_out import FanOutWriter

if TYPE_CHECKING:
    from lakeward.hooks.plugins import LakePlugin, PartitioningLakePlugin
    from lakeward.model.checkpoints import SplitProgress
    from lakeward.model.events import Deploy
    from lakeward.model.results import LakeFile
    from lakeward.model.tables import TableSpec
    from lakeward.ports import Clock, LakeWriter


def split_writer(
    lake: LakePlugin, deploy: Deploy, table: TableSpec, progress: SplitProgress, clock: Clock
) -> LakeWriter:
    """Open the writer of one split, with what another writer had done of it (`progress`)."""
    split = progress.split
    if not table.lake_partition:
        return lake.writer(deploy.lake_task, table, split, deploy.attempt, progress)
    # The configuration was refused where the lake has not these (`check_partitioned_tables`).
    partitioning = cast("PartitioningLakePlugin", lake)

    def writer(partition: bytes, name: str, before: tuple[LakeFile, ...], memory_bytes: int) -> LakeWriter:
        task, attempt = deploy.lake_task, deploy.attempt
        return partitioning.partition_writer(task, table, partition, name, attempt, before, memory_bytes)

    return FanOutWriter(
        partitioning.partitioner(deploy.lake_task, table),
        writer,
        split.split_id,
        progress.files,
        table=table,
        open_files=deploy.open_files,
        open_rows_bytes=deploy.open_rows_bytes,
        memory_bytes=deploy.write_memory_bytes,
        bucket=split.bucket.bucket,
        deletes_old_row=bool(table.outside_key(table.lake_partition)),
        now=clock.now,
    )
