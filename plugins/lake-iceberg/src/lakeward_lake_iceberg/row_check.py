"""Says which rows of a batch do not fit an Iceberg table: its columns, or its partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakeward.errors import RowError
from lakeward.model.lake_rows import RowConverter
from lakeward.model.tables import OFFSET_COLUMN
from lakeward_lake_iceberg.nanoseconds import to_microseconds
from lakeward_lake_iceberg.partitioner import expected_of
from lakeward_lake_iceberg.transforms import transform, unfit_rows

if TYPE_CHECKING:
    from lakeward.model.tables import TableBucket, TableSpec
    from lakeward_lake_iceberg.task import WriterTask


class LayoutRowCheck:
    """See `lakeward.ports.RowCheck`."""

    def __init__(self, task: WriterTask, table: TableSpec, bucket: TableBucket) -> None:
        """Check rows of one bucket."""
        self._table, self._bucket = table, bucket
        self._converter = RowConverter(table, task.arrow_schema(), bucket, coarsen=to_microseconds)
        layout = task.layout if table.lake_partition else ()
        # Of all transforms, only this one can give what no file can have as its partition.
        self._fields = [one for one in layout if one.transform == "truncate" and one.kind.startswith("decimal")]

    def __call__(self, records: pa.RecordBatch) -> dict[int, RowError]:
        """See `lakeward.ports.RowCheck`."""
        found = self._converter.misfits(records)
        if not self._fields:
            return found
        rows = np.setdiff1d(np.arange(records.num_rows), list(found))
        fitting = records if not found else records.take(pa.array(rows))
        for field in self._fields:
            column = self._converter.column(fitting, self._converter.schema.field(field.column))
            for row in unfit_rows(transform(field.transform, field.argument, column)):
                offset = fitting.column(OFFSET_COLUMN)[row].as_py()
                value, expected = column[row].as_py(), expected_of(self._table, field)
                where = self._table.path, self._bucket, offset, field.column
                found.setdefault(int(rows[row]), RowError.at(*where, expected=expected, found=value))
        return dict(sorted(found.items()))
