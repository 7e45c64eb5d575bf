"""Finds the partition and the bucket of Paimon in which a writer's rows lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward_lake_paimon.binary_row import decode_row, encode_row, scalar_of, value_of
from lakeward_lake_paimon.datafile import Place
from lakeward_lake_paimon.partitions import partition_folder

if TYPE_CHECKING:
    import pyarrow as pa

    from lakeward.model.splits import Split
    from lakeward.model.tables import TableBucket
    from lakeward_lake_paimon.table_schema import TableSchema

_UNAWARE = 0
"""The bucket of all files of a log table without buckets."""


@dataclass(frozen=True, slots=True)
class PlaceFinder:
    """Where the rows of one split lie: all of them in one partition and one bucket.

    `bucket` is the source's, None where rows of several buckets come. The partition is that of the first row, for a row
    has its values with their types; or `partition`, of a partitioning of the lake's own, `layout`, or of late rows:
    these lie in `lake_bucket`. The partition has `total_buckets` (None: as many as the table).
    """

    schema: TableSchema
    name: str
    bucket: TableBucket | None
    partition: bytes | None = None
    layout: str = ""
    lake_bucket: int = _UNAWARE
    total_buckets: int | None = None

    @classmethod
    def of_split(cls, schema: TableSchema, split: Split, total_buckets: int | None = None) -> PlaceFinder:
        """Return the finder for a split's rows; `total_buckets` as above."""
        return cls(schema, split.split_id, split.bucket, total_buckets=total_buckets)

    @classmethod
    def of_partition(cls, schema: TableSchema, partition: bytes, name: str, layout: str) -> PlaceFinder:
        """Return the finder for the rows of one partition, of any of the source's buckets."""
        return cls(schema, name, None, partition, layout)

    @property
    def constants(self) -> dict[str, pa.Scalar]:
        """The values of the columns that a partitioning has besides the source's."""
        if self.partition is None:
            return {}
        fields = self.schema.named(self.schema.partition_keys)
        values = decode_row(self.partition, [field.kind for field in fields])
        return {field.name: scalar_of(value, field.kind) for field, value in zip(fields, values, strict=True)}

    def place(self, rows: pa.RecordBatch) -> Place:
        """Return where rows lie; there is at least one, in the lake's columns."""
        fields = self.schema.named(self.schema.partition_keys)
        kinds = [field.kind for field in fields]
        total = self.schema.bucket if self.total_buckets is None else self.total_buckets
        if self.partition is not None:
            folder = partition_folder(self.schema, decode_row(self.partition, kinds))
            return Place(folder, self.partition, self.lake_bucket, total, self.name)
        values = [value_of(rows.column(field.name)[0], field.kind) for field in fields]
        bucket = _UNAWARE if total < 0 or self.bucket is None else self.bucket.bucket
        folder = partition_folder(self.schema, values)
        return Place(folder, encode_row(values, kinds), bucket, total, self.name)
