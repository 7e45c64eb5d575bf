"""Lake tables in the newest format version: with deletion vectors, and with row ids."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakeward_lake_iceberg.lake import IcebergLake
from lakeward_lake_iceberg.plugin import IcebergLakePlugin

if TYPE_CHECKING:
    from lakeward.model.identity import Incarnation
    from lakeward.model.results import LakeHead
    from lakeward.model.tables import TableSpec
    from lakeward.ports import Clock
    from lakeward_lake_iceberg.options import IcebergOptions


class NewestLake(IcebergLake):
    """Makes each of its tables in format version 3."""

    def open_table(self, table: TableSpec, incarnation: Incarnation) -> LakeHead:
        """See `IcebergLake.open_table`."""
        wanted = {**table.lake_properties, "format-version": "3"}
        return super().open_table(replace(table, lake_properties=wanted), incarnation)


class NewestPlugin(IcebergLakePlugin):
    """Opens `NewestLake`."""

    def open(self, options: IcebergOptions, clock: Clock) -> NewestLake:
        """See `IcebergLakePlugin.open`."""
        return NewestLake(options, clock)
