"""An Iceberg lake whose tables all have a partitioning of their own, written through the fan-out of a subtask."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakeward.model.partitioning import PartitionField
from lakeward.subtask.fan_out.dividing import RowDivider
from lakeward.subtask.fan_out.files import PartitionFiles
from lakeward.subtask.fan_out.writer import FanOutLimits, SplitFanOut
from lakeward_lake_iceberg.lake import IcebergLake
from lakeward_lake_iceberg.plugin import IcebergLakePlugin

if TYPE_CHECKING:
    from lakeward.model.checkpoints import SplitProgress
    from lakeward.model.identity import Incarnation, RoundId
    from lakeward.model.results import LakeFile, LakeHead
    from lakeward.model.splits import Split
    from lakeward.model.tables import TableSpec
    from lakeward.ports import Clock, Lake, LakeWriter
    from lakeward_lake_iceberg.options import IcebergOptions


def _partitioned(table: TableSpec) -> TableSpec:
    """Return a table with a layout whose columns are in its key, if it has one."""
    column = table.primary_key[0] if table.has_primary_key else "__bucket"
    return replace(table, lake_partition=(PartitionField("bucket", column, 2), PartitionField("identity", column)))


class PartitionedLake(IcebergLake):
    """Gives each table a partitioning."""

    def open_table(self, table: TableSpec, incarnation: Incarnation) -> LakeHead:
        return super().open_table(_partitioned(table), incarnation)

    def writer_task(self, table: TableSpec, head: LakeHead, round_id: RoundId) -> bytes:
        return super().writer_task(_partitioned(table), head, round_id)


class PartitionedPlugin(IcebergLakePlugin):
    """Divides each split's rows among partitions, as a subtask does."""

    def open(self, options: IcebergOptions, clock: Clock) -> Lake:
        return PartitionedLake(options, clock)

    def writer(
        self, task: bytes, table: TableSpec, split: Split, attempt: int, progress: SplitProgress | None = None
    ) -> LakeWriter:
        table = _partitioned(table)

        def make(partition: bytes, name: str, before: tuple[LakeFile, ...], memory_bytes: int) -> LakeWriter:
            return self.partition_writer(task, table, partition, name, attempt, before, memory_bytes)

        before = () if progress is None else progress.files
        partitioner = self.partitioner(task, table)
        return SplitFanOut(
            RowDivider(partitioner, table, bucket=split.bucket.bucket),
            PartitionFiles(make, split.split_id, partitioner, before),
            FanOutLimits(open_files=4, open_rows_bytes=1, memory_bytes=256 << 20),
        )
