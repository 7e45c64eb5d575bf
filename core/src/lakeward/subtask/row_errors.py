"""Errors for a record that can never be decoded or written: its table is suspended, and the error names the record."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward.errors import RowError
from lakeward.model.batches import find_failing
from lakeward.model.tables import OFFSET_COLUMN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.model.splits import Split
    from lakeward.model.tables import TableSpec

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
    """Return the error of records that the source's reader could not decode.

    Args:
        table: the table.
        split: what was read.
        position: as in `SplitProgress`: the offset, or the number of rows, up to which records could be decoded.
        error: what the reader raised, one of `UNFIT`.
    """
    where = f"table {table.path}, bucket {split.bucket}, split {split.split_id}"
    return RowError(f"{where}: records from {position} on cannot be decoded: {type(error).__name__}: {error}")


@contextmanager
def naming_rows(table: TableSpec, split: Split, records: pa.RecordBatch | None = None) -> Iterator[None]:
    """Turn an exception of `UNFIT` into an error that names bucket, offset, column and value.

    Args:
        table: the table.
        split: what is being written.
        records: the records that are being written; None = some records of earlier batches.

    Raises:
        RowError: instead of one of `UNFIT`.
    """
    try:
        yield
    except UNFIT as error:
        found = None if records is None else _damaged(table, split, records)
        if found is None:
            found = RowError(
                f"table {table.path}, bucket {split.bucket}, {_span(split, records)}: "
                f"cannot be written: {type(error).__name__}: {error}"
            )
        raise found from error


def _span(split: Split, records: pa.RecordBatch | None) -> str:
    if records is None or not records.num_rows:
        return f"split {split.split_id}"
    offsets = records.column(OFFSET_COLUMN)
    return f"split {split.split_id}, offsets {offsets[0].as_py()} to {offsets[-1].as_py()}"


def _damaged(table: TableSpec, split: Split, records: pa.RecordBatch) -> RowError | None:
    """Find a value that is invalid for its type, such as text that is not UTF-8; None if there is none."""
    for name, column in zip(records.schema.names, records.columns, strict=True):
        if _is_valid(column):
            continue
        row = _first_damaged(column)
        offset = records.column(OFFSET_COLUMN)[row].as_py()
        expected = f"a value of type {column.type}"
        found = _raw(column.slice(row, 1))
        return RowError.at(table.path, split.bucket, offset, name, expected=expected, found=found)
    return None


def _first_damaged(column: pa.Array) -> int:
    return find_failing(len(column), lambda first, count: not _is_valid(column.slice(first, count)))


def _is_valid(column: pa.Array) -> bool:
    try:
        column.validate(full=True)
    except UNFIT:
        return False
    return True


def _raw(value: pa.Array) -> object:
    """Return one value, text that is no UTF-8 as its bytes."""
    if pa.types.is_string(value.type):
        value = value.view(pa.binary())
    try:
        return value[0].as_py()
    except (ValueError, ArithmeticError) as error:
        return f"<{error}>"
