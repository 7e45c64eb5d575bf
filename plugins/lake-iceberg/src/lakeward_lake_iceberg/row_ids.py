"""The columns of format version 3 in which rows keep their ids, and the commit of their last change, in other files.

A file of new rows has neither: ids follow from the file's first one, and the commit is that of the file. Source:
Iceberg spec, "Row Lineage" and "Reserved Field IDs".
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward_lake_iceberg.parquet_fields import FIELD_ID

ROW_ID, LAST_UPDATED = "_row_id", "_last_updated_sequence_number"
_FIELDS = (
    pa.field(ROW_ID, pa.int64(), metadata={FIELD_ID: b"2147483540"}),
    pa.field(LAST_UPDATED, pa.int64(), metadata={FIELD_ID: b"2147483539"}),
)
ROW_ID_COLUMNS = frozenset(field.name for field in _FIELDS)


def with_row_ids(schema: pa.Schema) -> pa.Schema:
    """Return the schema of data files with both columns at its end."""
    return pa.schema([*schema, *_FIELDS], metadata=schema.metadata)


def with_ids_of_file(batch: pa.RecordBatch, start: int, first_row_id: int | None, sequence: int) -> pa.RecordBatch:
    """Return rows of a file with what they inherit from it, where they do not say it themselves.

    `start` is the position of the first one. Without `first_row_id` the file has no ids yet: its rows get new ones.
    """
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    if first_row_id is not None:
        own = pa.array(np.arange(first_row_id + start, first_row_id + start + len(batch), dtype=np.int64))
        columns[ROW_ID] = pc.coalesce(columns[ROW_ID], own)
    columns[LAST_UPDATED] = pc.coalesce(columns[LAST_UPDATED], pa.scalar(sequence, pa.int64()))
    return pa.RecordBatch.from_arrays([*columns.values()], schema=batch.schema)
