"""Reads the rows of one snapshot by pyiceberg and pyarrow: nothing of Lakeward's own writers and key index is used."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from lakeward.errors import LakeError
from lakeward.ports.lake import LOST_COLUMNS
from lakeward_lake_iceberg.file_rows import file_rows, read_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.table import Table


def snapshot_rows(table: Table, snapshot_id: int) -> Iterator[pa.RecordBatch]:
    """Yield the live rows of a retained snapshot, first a batch without rows.

    One data file is read after the other, a batch at a time: `DataScan.to_arrow_batch_reader` starts to read all of
    them at once and holds what nobody has taken yet. Columns are those that the snapshot has and readers see now
    (`table` is as it is now): a scan of pyiceberg's would also yield what somebody dropped or renamed since.

    Raises:
        LakeError: the snapshot, or a file of it, is gone or cannot be read.
    """
    what = f"{'.'.join(table.name())}: snapshot {snapshot_id}"
    if table.metadata.snapshot_by_id(snapshot_id) is None:
        message = f"{what} is not there: it has expired or was removed meanwhile; try again"
        raise LakeError(message)
    with read_errors(what):
        scan = table.scan(snapshot_id=snapshot_id)
        schema = _readable(table, scan.projection())
        columns = schema_to_pyarrow(schema, include_field_ids=False)
        tasks = scan.plan_files()
    known = columns.with_metadata({LOST_COLUMNS: json.dumps(_lost_columns(table)).encode()})
    yield pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in known], schema=known)
    for task in tasks:
        with read_errors(f"{'.'.join(table.name())}: file {task.file.file_path} of snapshot {snapshot_id}"):
            yield from file_rows(table, schema, task)


def _readable(table: Table, snapshot: Schema) -> Schema:
    """Return the fields that the table has now under the names of a snapshot's columns.

    One that was dropped and added again is another field: readers find null in it.
    """
    names = {field.name for field in snapshot.fields}
    return Schema(*(field for field in table.schema().fields if field.name in names))


def _lost_columns(table: Table) -> dict[str, str]:
    """Return each column that an earlier schema has and the present one has not, and what became of it.

    Lakeward only ever adds columns. All schemas count, as in `check_columns`: whoever dropped a column may have
    committed since, and the newest snapshot's schema then lacks it, too.
    """
    present = {field.field_id: field.name for field in table.schema().fields}
    names = set(present.values())
    lost: dict[str, str] = {}
    for schema in sorted(table.metadata.schemas, key=lambda one: one.schema_id):
        for field in schema.fields:
            if field.name not in names:
                now = present.get(field.field_id)
                lost[field.name] = "somebody else dropped it" if now is None else f"somebody else renamed it to {now!r}"
    return lost
