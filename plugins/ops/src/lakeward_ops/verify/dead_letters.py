"""The records that are dead letters: the lake table does not have them, and need not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakeward.model.dead_letters import path_of
from lakeward.model.tables import OFFSET_COLUMN
from lakeward_ops.verify.row_keys import row_numbers
from lakeward_ops.verify.values import cast_plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from lakeward.model.tables import TableBucket, TableSpec
    from lakeward.ports import ReadableLake

    Place = tuple[int | None, int]
    """Partition id and bucket."""


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Those of one table: by their offsets, or by their keys where it has a primary key.

    A key that has a dead letter is not compared: an older version of it may be in the lake, or a newer one.
    """

    count: int
    offsets: Mapping[Place, npt.NDArray[np.int64]]
    keys: pa.Table
    """The columns of the primary key, of the types in which they are compared; none without a primary key."""

    @classmethod
    def read(cls, lake: ReadableLake, table: TableSpec, snapshot_id: int | None, schema: pa.Schema) -> DeadLetters:
        """Read those of a table as of a snapshot of their own, None: it has none.

        `schema` has the columns that are compared, and their types.

        Raises:
            LakeError: they cannot be read.
        """
        fields = pa.schema([schema.field(name) for name in table.primary_key])
        places: dict[Place, list[int]] = {}
        keys, count = [fields.empty_table()], 0
        if snapshot_id is None:
            return cls(0, {}, keys[0])
        for batch in lake.read_rows(path_of(table.in_lake.path), snapshot_id):
            count += batch.num_rows
            columns = [batch.column(name).to_pylist() for name in ("partition_id", "bucket", "offset", "row")]
            for partition, bucket, offset, row in zip(*columns, strict=True):
                places.setdefault((partition, bucket), []).append(offset)
                if fields:
                    keys.append(_plain_keys(pa.ipc.open_stream(row).read_all(), fields, table.lake_columns))
        offsets = {place: np.unique(np.array(found, dtype=np.int64)) for place, found in places.items()}
        return cls(count, offsets, pa.concat_tables(keys))

    def without(self, records: pa.RecordBatch, bucket: TableBucket) -> pa.RecordBatch:
        """Return the records of a bucket of the source that are none."""
        if self.keys.num_columns:
            return self.other_keys(records)
        found = self.offsets.get((bucket.partition_id, bucket.bucket))
        if found is None:
            return records
        return records.filter(pa.array(~np.isin(records.column(OFFSET_COLUMN).to_numpy(), found)))

    def other_keys(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of either side whose key has no dead letter."""
        if not self.keys.num_rows or not rows.num_rows:
            return rows
        theirs = [column.combine_chunks() for column in self.keys.columns]
        ours = [cast_plain(rows.column(field.name), field.type, exact=True) for field in self.keys.schema]
        numbers, known = row_numbers([ours, theirs])
        return rows.filter(pa.array(~np.isin(numbers, known)))


def _plain_keys(row: pa.Table, fields: pa.Schema, lake_columns: Mapping[str, str]) -> pa.Table:
    """Return the key of a letter's row, whose columns are called as in the source, or as in the lake table."""
    called = [one.name if one.name in row.schema.names else lake_columns.get(one.name, one.name) for one in fields]
    found = [row.column(name).combine_chunks() for name in called]
    columns = [cast_plain(column, field.type, exact=True) for column, field in zip(found, fields, strict=True)]
    return pa.Table.from_arrays(columns, schema=fields)
