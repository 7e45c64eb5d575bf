"""Errors for a record that can never be decoded or written: its table is suspended, and the error names the record."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward.errors import RowError
from lakeward.model.batches import find_failing
from lakeward.model.tables import BUCKET_COLUMN, OFFSET_COLUMN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakeward.model.splits import Split
    from lakeward.model.tables import TableSpec

_SPANS = 8
"""Buckets that an error names at most."""
UNFIT = (
    pa.ArrowInvalid,
    pa.ArrowTypeError,
    pa.ArrowNotImplementedError,
    pa.ArrowCapacityError,
    ArithmeticError,
    UnicodeError,
)
"""The exceptions that a value of a wrong type or form raises; the same value raises them each time."""


def unreadable(table: TableSpec, split: Split, position: int, error: Exception) -> RowError:
    """Return the error of records that the source's reader could not decode; it raised `error`, one of `UNFIT`.

    `position` is as in `SplitProgress`: the offset, or the number of rows, up to which records could be decoded.
    """
    where = f"table {table.path}, bucket {split.bucket}, split {split.split_id}"
    return RowError(f"{where}: records from {position} on cannot be decoded: {type(error).__name__}: {error}")


@contextmanager
def naming_rows(table: TableSpec, split: Split, records: pa.RecordBatch | None = None) -> Iterator[None]:
    """Turn an exception of `UNFIT` into an error that names bucket, offset, column and value.

    `records` are those that are being written; None = some records of earlier batches.

    Raises:
        RowError: instead of one of `UNFIT`.
    """
    try:
        yield
    except UNFIT as error:
        found = None if records is None else _damaged(table, lambda _row: split.bucket, records)
        if found is None:
            found = RowError(
                f"table {table.path}, bucket {split.bucket}, {_span(split, records)}: "
                f"cannot be written: {type(error).__name__}: {error}"
            )
        raise found from error


@contextmanager
def naming_exchanged_rows(table: TableSpec, records: pa.RecordBatch | None = None) -> Iterator[None]:
    """Do as `naming_rows` for rows that came through channels, from many buckets; the records have their buckets.

    Raises:
        RowError: instead of one of `UNFIT`.
    """
    try:
        yield
    except UNFIT as error:
        found = None
        if records is not None:
            buckets = records.column(BUCKET_COLUMN)
            found = _damaged(table, lambda row: buckets[row].as_py(), records)
        if found is None:
            where = "some of the rows before" if records is None else _spans(records)
            found = RowError(f"table {table.path}, {where}: cannot be written: {type(error).__name__}: {error}")
        raise found from error


def _spans(records: pa.RecordBatch) -> str:
    """Return the lowest and the highest offset of each bucket, in words."""
    table = pa.table({name: records.column(name) for name in (BUCKET_COLUMN, OFFSET_COLUMN)})
    spans = table.group_by(BUCKET_COLUMN).aggregate([(OFFSET_COLUMN, "min"), (OFFSET_COLUMN, "max")])
    rows = spans.sort_by(BUCKET_COLUMN).select([BUCKET_COLUMN, f"{OFFSET_COLUMN}_min", f"{OFFSET_COLUMN}_max"])
    named = [tuple(row.values()) for row in rows.slice(0, _SPANS).to_pylist()]
    more = f" and {len(rows) - _SPANS} more buckets" if len(rows) > _SPANS else ""
    return "; ".join(f"bucket {bucket}, offsets {first} to {last}" for bucket, first, last in named) + more


def _span(split: Split, records: pa.RecordBatch | None) -> str:
    if records is None or not records.num_rows:
        return f"split {split.split_id}"
    offsets = records.column(OFFSET_COLUMN)
    return f"split {split.split_id}, offsets {offsets[0].as_py()} to {offsets[-1].as_py()}"


def _damaged(table: TableSpec, bucket: Callable[[int], object], records: pa.RecordBatch) -> RowError | None:
    """Find a value that is invalid for its type, such as text that is not UTF-8; None if there is none."""
    for name, column in zip(records.schema.names, records.columns, strict=True):
        if _is_valid(column):
            continue
        row = _first_damaged(column)
        offset = records.column(OFFSET_COLUMN)[row].as_py()
        expected = f"a value of type {column.type}"
        found = raw_value(column.slice(row, 1))
        return RowError.at(table.path, bucket(row), offset, name, expected=expected, found=found)
    return None


def _first_damaged(column: pa.Array) -> int:
    return find_failing(len(column), lambda first, count: not _is_valid(column.slice(first, count)))


def _is_valid(column: pa.Array) -> bool:
    try:
        column.validate(full=True)
    except UNFIT:
        return False
    return True


def raw_value(value: pa.Array) -> object:
    """Return one value, text that is no UTF-8 as its bytes."""
    if pa.types.is_string(value.type):
        value = value.view(pa.binary())
    try:
        return value[0].as_py()
    except (ValueError, ArithmeticError) as error:
        return f"<{error}>"
