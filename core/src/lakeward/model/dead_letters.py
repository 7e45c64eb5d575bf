"""Dead letters: rows that do not fit a lake table, as rows of a table of their own beside it (`on_bad_row`)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward.model.batches import batch_schema, log_records
from lakeward.model.tables import NO_TIME_MS, OFFSET_COLUMN, TIMESTAMP_COLUMN, Change, TablePath

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from lakeward.errors import RowError
    from lakeward.model.results import LakeFile
    from lakeward.model.tables import TableBucket, TableSpec

KIND = "dead_letters"
"""`LakeFile.kind` of a file of dead letters; their own lake table has it as `data`."""
_SUFFIX = "__dead_letters"
SCHEMA = pa.schema(
    [
        pa.field("row", pa.binary()),
        pa.field("json", pa.string()),
        pa.field("cause", pa.string()),
        pa.field("code", pa.string()),
        pa.field("column_name", pa.string()),
        pa.field("partition_id", pa.int64()),
        pa.field("bucket", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("source_time", pa.timestamp("us", tz="UTC")),
        pa.field("round", pa.string()),
    ]
)
"""`row` is an Arrow IPC stream of the row, as a source's batch has it; `json` its columns, null where JSON has none.

`partition_id`, `bucket` and `offset` are the source's (-1: a row of a KV snapshot); `source_time` is null if unknown.
"""
LETTERS = batch_schema(SCHEMA)


def path_of(path: TablePath) -> TablePath:
    """Return the name of the table of a table's dead letters."""
    return TablePath(path.database, f"{path.table}{_SUFFIX}")


def table_of(table: TableSpec) -> TableSpec:
    """Return the table of a table's dead letters: append-only, not partitioned, with the id of that table."""
    return replace(
        table,
        path=path_of(table.path),
        schema_id=1,
        schema=SCHEMA,
        primary_key=(),
        partition_keys=(),
        bucket_key=(),
        properties={},
        lake_partition=(),
        lake_properties={},
        left_out=(),
        system_columns=False,
        lake_format="",
        union_read=False,
    )


def letters_of(
    records: pa.RecordBatch, errors: Collection[RowError], bucket: TableBucket, round_name: str
) -> pa.RecordBatch:
    """Return the dead letters of records, as a source's batch of their own table; an error for each record."""
    count = records.num_rows
    single = [records.slice(row, 1) for row in range(count)]
    # An IPC stream is a schema and then batches; its end needs no mark. A writer for each row takes much longer.
    schema = records.schema.serialize().to_pybytes()
    times = records.column(TIMESTAMP_COLUMN).cast(pa.int64()).to_pylist()
    columns = [
        [schema + record.serialize().to_pybytes() for record in single],
        [_in_json(record) for record in single],
        [str(error) for error in errors],
        [error.code for error in errors],
        [error.column for error in errors],
        [bucket.partition_id] * count,
        [bucket.bucket] * count,
        records.column(OFFSET_COLUMN).to_pylist(),
        [None if time == NO_TIME_MS * 1000 else time for time in times],
        [round_name] * count,
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    rows = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    return log_records(LETTERS, rows, Change.APPEND, 0, NO_TIME_MS)


def split_files(files: Iterable[LakeFile]) -> tuple[tuple[LakeFile, ...], tuple[LakeFile, ...]]:
    """Return the files of the table itself, and those of its dead letters."""
    every = tuple(files)
    return tuple(one for one in every if one.kind != KIND), tuple(one for one in every if one.kind == KIND)


def _in_json(record: pa.RecordBatch) -> str | None:
    """Return the user's columns as a JSON object; None where a value is not one of Python's, such as broken text."""
    try:
        row = record.to_pylist()[0]
    except (ValueError, OverflowError):
        return None
    return json.dumps({name: value for name, value in row.items() if not name.startswith("__")}, default=str)
