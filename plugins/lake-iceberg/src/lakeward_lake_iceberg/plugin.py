"""The entry point `iceberg` of group `lakeward.lake`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lakeward.model.upkeep import UpkeepResult
from lakeward_lake_iceberg.merge_deletes import merge_deletes
from lakeward_lake_iceberg.merge_files import merge_files
from lakeward_lake_iceberg.merge_task import DeletesTask, pack_merge, unpack_merge
from lakeward_lake_iceberg.options import IcebergOptions
from lakeward_lake_iceberg.partitioner import LayoutPartitioner, Place
from lakeward_lake_iceberg.row_check import LayoutRowCheck
from lakeward_lake_iceberg.task import unpack_task
from lakeward_lake_iceberg.upserts import Limits, UpsertWriter
from lakeward_lake_iceberg.writer import AppendWriter, GroupLimits

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.checkpoints import SplitProgress
    from lakeward.model.results import LakeFile
    from lakeward.model.splits import Split
    from lakeward.model.tables import TableSpec
    from lakeward.model.upkeep import UpkeepTask
    from lakeward.ports import Clock, Lake, LakeWriter, Partitioner, RowCheck
    from lakeward_lake_iceberg.merge_task import Result


class IcebergLakePlugin:
    """See `lakeward.hooks.plugins.PartitioningLakePlugin`, `CheckingLakePlugin` and `UpkeepLakePlugin`."""

    conformance_level = "chaos"
    options = IcebergOptions

    def open(self, options: IcebergOptions, clock: Clock) -> Lake:
        """See `lakeward.hooks.plugins.LakePlugin.open`."""
        from lakeward_lake_iceberg.lake import IcebergLake  # noqa: PLC0415 - workers must not pay for pyiceberg

        # What pyiceberg logs below a warning is of no use to an operator.
        logging.getLogger("pyiceberg").setLevel(max(logging.WARNING, logging.getLogger().level))
        return IcebergLake(options, clock)

    def writer(
        self, task: bytes, table: TableSpec, split: Split, attempt: int, progress: SplitProgress | None = None
    ) -> LakeWriter:
        """See `lakeward.hooks.plugins.LakePlugin.writer`."""
        make = UpsertWriter if table.has_primary_key else AppendWriter
        known = unpack_task(task)
        before = () if progress is None else progress.files
        return make(known, table, Place.of_split(known, split), attempt, before)

    def row_check(self, task: bytes, table: TableSpec, split: Split) -> RowCheck:
        """See `lakeward.hooks.plugins.CheckingLakePlugin`."""
        return LayoutRowCheck(unpack_task(task), table, split.bucket)

    def partitioner(self, task: bytes, table: TableSpec) -> Partitioner:
        """See `lakeward.hooks.plugins.PartitioningLakePlugin`."""
        return LayoutPartitioner(unpack_task(task), table)

    def partition_writer(  # noqa: PLR0917 - the protocol's
        self,
        task: bytes,
        table: TableSpec,
        partition: bytes,
        name: str,
        attempt: int,
        before: tuple[LakeFile, ...],
        memory_bytes: int,
    ) -> LakeWriter:
        """See `lakeward.hooks.plugins.PartitioningLakePlugin`."""
        known = unpack_task(task)
        place = Place.of_partition(known, partition, name)
        if table.has_primary_key:
            return UpsertWriter(known, table, place, attempt, before, Limits.within(memory_bytes))
        # Rows come gathered. Were they gathered here again, many partitions would hold them twice over.
        return AppendWriter(known, table, place, attempt, before, GroupLimits(rows=1))

    def upkeep(self, task: UpkeepTask, attempt: int, check: Callable[[], None]) -> UpkeepResult:
        """See `lakeward.hooks.plugins.UpkeepLakePlugin`: data files or delete files of one partition are merged."""
        asked = unpack_merge(task.detail)
        done: Result
        if isinstance(asked, DeletesTask):
            done = merge_deletes(asked, task.number, attempt, check)
        else:
            done = merge_files(asked, task.number, attempt, check)
        files = [one for one in done.files if one is not None]
        return UpkeepResult(task.number, len(files), sum(one.size_bytes for one in files), pack_merge(done))
