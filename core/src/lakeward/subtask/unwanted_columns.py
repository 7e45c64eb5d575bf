"""Finds rows with a value in a column that the contract of their table does not let in (`discard_row`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lakeward.errors import RowError
from lakeward.model.tables import OFFSET_COLUMN
from lakeward.subtask.row_errors import raw_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from lakeward.model.tables import TableBucket, TableSpec
    from lakeward.ports import RowCheck

_EXPECTED = "null, as the table's contract lets no new column in (schema.columns = 'discard_row')"


class UnwantedColumns:
    """See `lakeward.ports.RowCheck`: what the lake refuses, and then rows with a value in such a column."""

    def __init__(self, table: TableSpec, bucket: TableBucket, lake: RowCheck) -> None:
        """Check rows of one bucket, in the columns that they are read with; `lake` is the lake's own check."""
        self._where = table.path, bucket
        self._names = [name for name in table.as_read.schema.names if name not in table.schema.names]
        self._lake = lake

    def __call__(self, records: pa.RecordBatch, /) -> Mapping[int, RowError]:
        """See `lakeward.ports.RowCheck`."""
        found = dict(self._lake(records))
        for name in self._names:
            column = records.column(name)
            if column.null_count == len(column):
                continue
            for row in np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False)).tolist():
                if row not in found:
                    offset, value = records.column(OFFSET_COLUMN)[row].as_py(), raw_value(column.slice(row, 1))
                    found[row] = RowError.at(*self._where, offset, name, expected=_EXPECTED, found=value)
        return dict(sorted(found.items()))
