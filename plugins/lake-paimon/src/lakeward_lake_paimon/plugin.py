"""The entry point `paimon` of group `lakeward.lake`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.model.lake_rows import RowConverter
from lakeward.model.upkeep import UpkeepResult
from lakeward_lake_paimon.key_writer import BufferLimits, KeyWriter
from lakeward_lake_paimon.late_rows import LateRowsPartitioner, finder_of_late_rows
from lakeward_lake_paimon.layout import LayoutPartitioner, layout_text
from lakeward_lake_paimon.options import PaimonOptions
from lakeward_lake_paimon.places import PlaceFinder
from lakeward_lake_paimon.stores import open_storage
from lakeward_lake_paimon.task import unpack_task
from lakeward_lake_paimon.writer import AppendWriter, GroupLimits

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.checkpoints import SplitProgress
    from lakeward.model.results import LakeFile
    from lakeward.model.splits import Split
    from lakeward.model.tables import TableSpec
    from lakeward.model.upkeep import UpkeepTask
    from lakeward.ports import Clock, Lake, LakeWriter, Partitioner, RowCheck


class PaimonLakePlugin:
    """See `lakeward.hooks.plugins.PartitioningLakePlugin`, `CheckingLakePlugin` and `UpkeepLakePlugin`."""

    conformance_level = "chaos"
    options = PaimonOptions

    def open(self, options: PaimonOptions, clock: Clock) -> Lake:
        """See `lakeward.hooks.plugins.LakePlugin.open`."""
        from lakeward_lake_paimon.lake import PaimonLake  # noqa: PLC0415 - workers need no manifests

        return PaimonLake(options, clock)

    def writer(
        self, task: bytes, table: TableSpec, split: Split, attempt: int, progress: SplitProgress | None = None
    ) -> LakeWriter:
        """See `lakeward.hooks.plugins.LakePlugin.writer`."""
        make = KeyWriter if table.has_primary_key else AppendWriter
        known = unpack_task(task)
        before = () if progress is None else progress.files
        total = dict(table.bucket_counts).get(split.partition)
        place = PlaceFinder.of_split(known.table_schema, split, total)
        return make(known, table, place, attempt, before)

    def row_check(self, task: bytes, table: TableSpec, split: Split) -> RowCheck:
        """See `lakeward.hooks.plugins.CheckingLakePlugin`."""
        return RowConverter(table, unpack_task(task).table_schema.arrow_schema, split.bucket).misfits

    def partitioner(self, task: bytes, table: TableSpec) -> Partitioner:
        """See `lakeward.hooks.plugins.PartitioningLakePlugin`."""
        make = LayoutPartitioner if table.lake_partition else LateRowsPartitioner
        return make(unpack_task(task), table)

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
        if table.lake_partition:
            finder = PlaceFinder.of_partition(known.table_schema, partition, name, layout_text(table.lake_partition))
        else:
            finder = finder_of_late_rows(known, partition, name)
        if table.has_primary_key:
            return KeyWriter(known, table, finder, attempt, before, BufferLimits.within(memory_bytes))
        # Rows come gathered. Were they gathered here again, many partitions would hold them twice over.
        return AppendWriter(known, table, finder, attempt, before, GroupLimits(rows=1))

    def upkeep(self, task: UpkeepTask, attempt: int, check: Callable[[], None]) -> UpkeepResult:
        """See `lakeward.hooks.plugins.UpkeepLakePlugin`: the files of one bucket are merged."""
        from lakeward_lake_paimon import merge_files, merge_task  # noqa: PLC0415 - writers need no manifests

        merge = merge_task.unpack_task(task.detail)
        files = merge_files.merge_files(open_storage(merge.location, merge.storage), merge, attempt, check)
        size_bytes = sum(one.size_bytes for one in files)
        return UpkeepResult(task.number, len(files), size_bytes, merge_task.pack_files(files))
