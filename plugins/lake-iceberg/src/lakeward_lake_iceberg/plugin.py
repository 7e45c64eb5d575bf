"""The entry point `iceberg` of group `lakeward.lake`."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakeward_lake_iceberg.options import IcebergOptions
from lakeward_lake_iceberg.task import unpack_task
from lakeward_lake_iceberg.upserts import UpsertWriter
from lakeward_lake_iceberg.writer import AppendWriter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakeward.hooks.demo import SharedCatalog
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

        # What pyiceberg logs below a warning is of no use to an operator.
        logging.getLogger("pyiceberg").setLevel(max(logging.WARNING, logging.getLogger().level))
        return IcebergLake(options, clock)

    def writer(
        self, task: bytes, table: TableSpec, split: Split, attempt: int, progress: SplitProgress | None = None
    ) -> LakeWriter:
        """See `lakeward.hooks.plugins.LakePlugin.writer`."""
        make = UpsertWriter if table.has_primary_key else AppendWriter
        return make(unpack_task(task), table, split, attempt, () if progress is None else progress.files)

    @contextmanager
    def share_catalog(self, warehouse: Path) -> Iterator[SharedCatalog]:
        """See `lakeward.hooks.demo.SharedLake`. It is the same catalog that `catalog = "sql"` has there."""
        from lakeward.hooks.demo import SharedCatalog  # noqa: PLC0415 - workers do without
        from lakeward_lake_iceberg.rest_server import RestCatalogServer  # noqa: PLC0415 - as above

        with RestCatalogServer.running(warehouse) as server:
            options = {"catalog": "rest", "uri": server.uri, "warehouse": server.warehouse}
            yield SharedCatalog(server.uri, server.warehouse, options)
