"""Reads the rows of one snapshot by pyiceberg alone: nothing of Lakeward's own writers and key index is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files, schema_to_pyarrow

from lakeward.errors import LakeError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.table import Table


def snapshot_rows(table: Table, snapshot_id: int) -> Iterator[pa.RecordBatch]:
    """Yield the live rows of a snapshot, first a batch without rows.

    One data file is read after the other, a batch at a time: `DataScan.to_arrow_batch_reader` starts to read all of
    them at once and holds what nobody has taken yet.

    Args:
        table: as it is now.
        snapshot_id: one of its retained snapshots.

    Raises:
        LakeError: the snapshot, or a file of it, is gone or cannot be read.
    """
    try:
        scan = table.scan(snapshot_id=snapshot_id)
        schema = scan.projection()
        columns = schema_to_pyarrow(schema, include_field_ids=False)
        yield pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in columns], schema=columns)
        reader = ArrowScan(table.metadata, table.io, schema, AlwaysTrue())
        for task in scan.plan_files():
            deletes = _read_all_delete_files(table.io, [task])
            yield from reader._record_batches_from_scan_tasks_and_deletes([task], deletes)  # noqa: SLF001 - see above
    except (OSError, ValueError, NotImplementedError) as failed:
        name = ".".join(table.name())
        message = f"{name}: snapshot {snapshot_id} cannot be read: {failed}; if it has expired meanwhile, try again"
        raise LakeError(message) from failed
