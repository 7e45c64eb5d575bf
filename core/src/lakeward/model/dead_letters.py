"""Dead letters: rows that do not fit a lake table, as rows of a table of their own beside it (`on_bad_row`)."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.model.batches import batch_schema, log_records
from lakeward.model.splits import SnapshotSplit
from lakeward.model.tables import NO_TIME_MS, OFFSET_COLUMN, RESERVED_COLUMNS, TIMESTAMP_COLUMN, Change, TablePath

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import datetime

    from lakeward.errors import RowError
    from lakeward.model.results import LakeFile
    from lakeward.model.splits import Split
    from lakeward.model.tables import TableSpec

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
        pa.field("log_offset", pa.int64()),
    ]
)
"""`row` is an Arrow IPC stream of the row, as a source's batch has it; `json` its columns, null where JSON has none.

`partition_id`, `bucket` and `offset` are the source's (-1: a row of a KV snapshot); `source_time` is null if unknown.
`log_offset` is that of the snapshot, and null in a row of a log, or where an earlier release wrote the letter.
"""
LETTERS = batch_schema(SCHEMA)
_IDENTITY = ("partition_id", "bucket", "offset", "round", "row")
DIGEST_BYTES = 16
_NO_VALUE = object()


def path_of(path: TablePath) -> TablePath:
    """Return the name of the table of a table's dead letters."""
    return TablePath(path.database, f"{path.table}{_SUFFIX}")


def owner_of(path: TablePath) -> TablePath | None:
    """Return the table whose dead letters a table of this name would have; None: it is no such name."""
    owner = path.table.removesuffix(_SUFFIX)
    return TablePath(path.database, owner) if owner and owner != path.table else None


def table_of(table: TableSpec) -> TableSpec:
    """Return the table of a table's dead letters: append-only, not partitioned, with the id of that table."""
    return replace(
        table,
        path=path_of(table.path),
        lake_path=None if table.lake_path is None else path_of(table.lake_path),
        schema_id=1,
        schema=SCHEMA,
        primary_key=(),
        partition_keys=(),
        bucket_key=(),
        properties={},
        lake_partition=(),
        lake_properties={},
        left_out=(),
        lake_columns={},
        system_columns=False,
        lake_format="",
        may_widen=True,
        keeps_types=False,
        read_schema=None,
        union_read=False,
    )


def letters_of(records: pa.RecordBatch, errors: Collection[RowError], split: Split, round_name: str) -> pa.RecordBatch:
    """Return the dead letters of a split's records, as a source's batch of their own table; an error for each."""
    bucket = split.bucket
    count = records.num_rows
    times = records.column(TIMESTAMP_COLUMN).cast(pa.int64()).to_pylist()
    columns = [
        _in_streams(records),
        _in_json(records),
        [str(error) for error in errors],
        [error.code for error in errors],
        [error.column for error in errors],
        [bucket.partition_id] * count,
        [bucket.bucket] * count,
        records.column(OFFSET_COLUMN).to_pylist(),
        [None if time == NO_TIME_MS * 1000 else time for time in times],
        [round_name] * count,
        [split.log_offset if isinstance(split, SnapshotSplit) else None] * count,
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    rows = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    return as_source(rows)


def as_source(letters: pa.RecordBatch) -> pa.RecordBatch:
    """Return letters as a source's batch of their own table, which a writer takes."""
    return log_records(batch_schema(letters.schema), letters, Change.APPEND, 0, NO_TIME_MS)


def read_back(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return letters that a lake gives, in the columns that they were written in; those of others stay.

    A column that the lake's table has not, as an earlier release made it, is missing here too.
    """
    own = [field for field in SCHEMA if field.name in rows.schema.names]
    others = [field for field in rows.schema if field.name not in {*SCHEMA.names, *RESERVED_COLUMNS}]
    schema = pa.schema([*own, *others])
    columns = [rows.column(field.name).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Which letters are meant; None: whatever they have. A time is that of the source, in UTC."""

    column: str | None = None
    code: str | None = None
    before: datetime | None = None

    def of(self, letters: pa.RecordBatch) -> pa.RecordBatch:
        """Return those that are meant; one whose time nobody knows is before none."""
        for name, wanted in (("column_name", self.column), ("code", self.code)):
            if wanted is not None:
                letters = letters.filter(pc.equal(letters.column(name), wanted))
        if self.before is not None:
            letters = letters.filter(pc.less(letters.column("source_time"), self.before))
        return letters


class Reason(NamedTuple):
    """Why a letter is one: its columns of these names; `column_name` is None where it stays as it was."""

    cause: str
    code: str
    column_name: str | None = None


class ReplayRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The newest request to replay letters of a table, and how often any was `asked` for; fields as `LetterFilter`."""

    asked: int = 0
    column: str | None = None
    code: str | None = None

    def again(self, wanted: LetterFilter) -> ReplayRequest:
        """Return the next request."""
        return ReplayRequest(self.asked + 1, wanted.column, wanted.code)

    @property
    def wanted(self) -> LetterFilter:
        """Which letters are meant."""
        return LetterFilter(self.column, self.code)


NEVER_ASKED = ReplayRequest()


def digests(letters: pa.RecordBatch) -> list[bytes]:
    """Return what tells each letter from all others, whatever its cause is said to be: `DIGEST_BYTES` bytes."""
    return [
        blake2b(repr(values[:-1]).encode() + values[-1], digest_size=DIGEST_BYTES).digest()
        for values in zip(*(letters.column(name).to_pylist() for name in _IDENTITY), strict=True)
    ]


def split_files(files: Iterable[LakeFile]) -> tuple[tuple[LakeFile, ...], tuple[LakeFile, ...]]:
    """Return the files of the table itself, and those of its dead letters."""
    every = tuple(files)
    return tuple(one for one in every if one.kind != KIND), tuple(one for one in every if one.kind == KIND)


def _in_streams(records: pa.RecordBatch) -> list[bytes]:
    """Return an Arrow IPC stream of each row: a schema and then a batch; its end needs no mark."""
    written, ends = pa.BufferOutputStream(), []
    # One writer for all of them: one for each row, or a batch that is serialized by itself, takes longer.
    with pa.ipc.new_stream(written, records.schema) as stream:
        for row in range(records.num_rows):
            stream.write_batch(records.slice(row, 1))
            ends.append(written.tell())
    together = written.getvalue().to_pybytes()
    schema = records.schema.serialize().to_pybytes()
    return [schema + together[begin:end] for begin, end in pairwise([len(schema), *ends])]


def _in_json(records: pa.RecordBatch) -> list[str | None]:
    """Return each row's columns of the user as a JSON object; None where a value is not one of Python's."""
    names = [name for name in records.schema.names if not name.startswith("__")]
    rows = zip(*(_values(records.column(name)) for name in names), strict=True)
    return [
        None if any(one is _NO_VALUE for one in row) else json.dumps(dict(zip(names, row, strict=True)), default=str)
        for row in rows
    ]


def _values(column: pa.Array) -> list[object]:
    """Return the values of a column, `_NO_VALUE` for one that Python does not have, such as broken text."""
    try:
        values: list[object] = column.to_pylist()
    except (ValueError, OverflowError):
        return [_value(one) for one in column]
    return values


def _value(one: pa.Scalar) -> object:
    try:
        return one.as_py()
    except (ValueError, OverflowError):
        return _NO_VALUE
