"""Late rows: those of partitions that the source has dropped come together, and each says itself where it belongs.

They lie in the partition that their own columns name, in the bucket in which the source had them. If the table was
given another count of buckets, a partition keeps the one it has: then the bucket is that of Paimon's bucket function.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from lakeward.errors import LakeError
from lakeward.model.lake_rows import RowConverter
from lakeward.model.tables import BUCKET_COLUMN
from lakeward.ports import PartitionedRows
from lakeward_lake_paimon.binary_row import encode_row, value_of
from lakeward_lake_paimon.bucket_function import bucket_key, bucket_of
from lakeward_lake_paimon.detail import unpack_detail
from lakeward_lake_paimon.places import PlaceFinder

if TYPE_CHECKING:
    import pyarrow as pa

    from lakeward.model.results import LakeFile
    from lakeward.model.tables import TableSpec
    from lakeward_lake_paimon.kinds import Field
    from lakeward_lake_paimon.task import WriterTask

_BUCKET = struct.Struct(">i")


class LateRowsPartitioner:
    """See `lakeward.ports.Partitioner`. A key is a bucket and the row of a partition, as a manifest holds it."""

    def __init__(self, task: WriterTask, table: TableSpec) -> None:
        """Keep where rows may lie."""
        schema = task.table_schema
        self._total = schema.bucket
        self._counts = task.bucket_counts
        self._partition_fields = schema.named(schema.partition_keys)
        self._key_fields = schema.named(bucket_key(schema))
        self._converter = RowConverter(table, schema.arrow_schema, None)

    def partition(self, records: pa.RecordBatch) -> PartitionedRows:
        """See `lakeward.ports.Partitioner.partition`."""
        numbers, found = self._distinct(records, self._partition_fields)
        kinds = [field.kind for field in self._partition_fields]
        rows = [encode_row(values, kinds) for values in found]
        buckets = self._buckets(records, numbers, rows)
        pairs, codes = np.unique(np.stack([numbers, buckets], axis=1), axis=0, return_inverse=True)
        keys = tuple(_BUCKET.pack(bucket) + rows[number] for number, bucket in pairs.tolist())
        return PartitionedRows(codes.reshape(-1).astype(np.int32), keys)

    @staticmethod
    def partition_of(file: LakeFile) -> bytes:
        """See `lakeward.ports.Partitioner.partition_of`."""
        detail = unpack_detail(file.detail)
        if detail.layout:
            message = f"{file.path}: expected a file in the source's layout, found one partitioned by {detail.layout}"
            raise LakeError(message)
        return _BUCKET.pack(detail.bucket) + detail.partition

    def _buckets(
        self, records: pa.RecordBatch, numbers: np.ndarray[Any, Any], partitions: list[bytes]
    ) -> np.ndarray[Any, Any]:
        """Return the bucket of each row; `numbers` says in which of the partitions it is."""
        if self._total < 0:
            return np.zeros(records.num_rows, dtype=np.int64)
        if not self._counts:
            return np.asarray(records.column(BUCKET_COLUMN), dtype=np.int64)
        counts = [self._counts.get(partition, self._total) for partition in partitions]
        keys, found = self._distinct(records, self._key_fields)
        kinds = [field.kind for field in self._key_fields]
        pairs, places = np.unique(np.stack([keys, numbers], axis=1), axis=0, return_inverse=True)
        buckets = [bucket_of(found[key], kinds, counts[number]) for key, number in pairs.tolist()]
        return np.array(buckets, dtype=np.int64)[places.reshape(-1)]

    def _distinct(
        self, records: pa.RecordBatch, fields: tuple[Field, ...]
    ) -> tuple[np.ndarray[Any, Any], list[tuple[Any, ...]]]:
        """Return what some columns of rows hold together, each once, and for each row which of these it has."""
        numbers = np.zeros(records.num_rows, dtype=np.int64)
        found: list[tuple[Any, ...]] = [()]
        for field in fields:
            values = self._converter.column(records, self._converter.schema.field(field.name))
            encoded = pc.dictionary_encode(values, null_encoding="encode")
            distinct = [value_of(value, field.kind) for value in encoded.dictionary]
            pairs, numbers = np.unique(numbers * len(distinct) + encoded.indices.to_numpy(), return_inverse=True)
            found = [(*found[pair // len(distinct)], distinct[pair % len(distinct)]) for pair in pairs.tolist()]
        return numbers, found


def finder_of_late_rows(task: WriterTask, key: bytes, name: str) -> PlaceFinder:
    """Return the finder for late rows with one key; `name` is a part of each file's name."""
    (bucket,), partition = _BUCKET.unpack_from(key), key[_BUCKET.size :]
    total = task.bucket_counts.get(partition, task.table_schema.bucket)
    return PlaceFinder(task.table_schema, name, None, partition, lake_bucket=bucket, total_buckets=total)
