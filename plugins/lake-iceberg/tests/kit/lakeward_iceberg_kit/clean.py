"""Lake tables without system columns, as Fluss 1.0 makes them: by its coordinator, or as mirrors."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from lakeward_lake_iceberg.lake import IcebergLake
from lakeward_lake_iceberg.plugin import IcebergLakePlugin

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from lakeward.model.identity import Incarnation
    from lakeward.model.results import LakeHead
    from lakeward.model.tables import TableSpec
    from lakeward.ports import Clock
    from lakeward_lake_iceberg.options import IcebergOptions

DAILY = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("day", pa.string(), nullable=False),
    ]
)
"""Columns of the tables here; those without partitions lack the last one."""


def create_as_fluss(catalog: Catalog, table: TableSpec) -> None:
    """Create the lake table of a source's table of the columns of `DAILY`, as the coordinator of Fluss 1.0 does."""
    fields = [NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType(), required=False)]
    divided = [PartitionField(3, 1000, IdentityTransform(), "day")] if table.partition_keys else []
    if table.partition_keys:
        fields.append(NestedField(3, "day", StringType(), required=True))
    if table.bucket_key:
        divided.append(PartitionField(1, 1000 + len(divided), BucketTransform(table.buckets), "id_bucket"))
    keys = [field.field_id for field in fields if field.name in table.primary_key]
    verbs = ("delete", "update", "merge") if keys else ()
    catalog.create_namespace_if_not_exists(table.path.database)
    catalog.create_table(
        str(table.path),
        Schema(*fields, identifier_field_ids=keys),
        partition_spec=PartitionSpec(*divided),
        properties={f"write.{verb}.mode": "merge-on-read" for verb in verbs}
        | {"fluss.table.datalake.enabled": "true", "fluss.table.datalake.format": "iceberg"},
    )


class CleanLake(IcebergLake):
    """Makes each of its tables without system columns."""

    def open_table(self, table: TableSpec, incarnation: Incarnation) -> LakeHead:
        """See `IcebergLake.open_table`."""
        return super().open_table(replace(table, system_columns=False), incarnation)


class CleanPlugin(IcebergLakePlugin):
    """The plugin with such a lake."""

    def open(self, options: IcebergOptions, clock: Clock) -> CleanLake:
        """See `IcebergLakePlugin.open`."""
        return CleanLake(options, clock)
