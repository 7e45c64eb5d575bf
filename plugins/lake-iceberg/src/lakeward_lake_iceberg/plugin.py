"""What the core finds under the entry point `iceberg` of group `lakeward.lake`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward_lake_iceberg.options import IcebergOptions
from lakeward_lake_iceberg.task import unpack_task
from lakeward_lake_iceberg.upserts import UpsertWriter
from lakeward_lake_iceberg.writer import AppendWriter

if TYPE_CHECKING:
    from lakeward.model.checkpoints import SplitProgress
    from lakeward.model.splits import Split
    from lakeward.model.tables import TableSpec
    from lakeward.ports import Clock, Lake, LakeWriter


class IcebergLakePlugin:
    """See `lakeward.hooks.plugins.LakePlugin`."""

    options = IcebergOptions

    def open(self, options: IcebergOptions, clock: Clock) -> Lake:
        """See `lakeward.hooks.plugins.LakePlugin.open`."""
        from lakeward_lake_iceberg.lake import IcebergLake  # noqa: PLC0415 - workers must not pay for pyiceberg

        return IcebergLake(options, clock)

    def writer(
        self, task: bytes, table: TableSpec, split: Split, attempt: int, progress: SplitProgress | None = None
    ) -> LakeWriter:
        """See `lakeward.hooks.plugins.LakePlugin.writer`."""
        make = UpsertWriter if table.has_primary_key else AppendWriter
        return make(unpack_task(task), table, split, attempt, () if progress is None else progress.files)
