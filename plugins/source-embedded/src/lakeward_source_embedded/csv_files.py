"""CSV files as batches of a table's columns; what does not fit is named with its column and row."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import csv

from lakeward.errors import RowError, UsageError, short_repr

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakeward.model.tables import TableSpec

_NULLS = ("", "NULL", "null", "\\N")
_BLOCK = 1 << 20
_BLOCK_MOST = 1 << 30
"""A block holds at least one row; rows are refused far below this (`inputs`)."""
_GROWTH = 8
_TOO_LONG = "straddling object"
_IN_COLUMN = re.compile(r"In CSV column #(\d+): Row #(\d+): (.*)", re.DOTALL)
_IN_ROW = re.compile(r"CSV parse error: Row #(\d+): (.*)", re.DOTALL)
_VALUE = re.compile(r"CSV conversion error to (.+?): invalid value '(.*)'", re.DOTALL)
_FIELDS = re.compile(r"Expected (\d+) columns, got (\d+): (.*)", re.DOTALL)


def read_csv(spec: TableSpec, path: Path, change: str | None) -> Iterator[pa.RecordBatch]:
    """Read a CSV file, batch by batch.

    Args:
        spec: the table; text is converted by its schema.
        path: of the file.
        change: the name of the column that says insert, update or delete.

    Raises:
        UsageError: the table has a column that CSV cannot hold.
        RowError: names column and row of what does not fit. The header is row 1.
    """
    options = _options(spec, path, change)
    block, done = _BLOCK, 0
    while True:
        try:
            for batch in _from(csv.open_csv(path, csv.ReadOptions(block_size=block), convert_options=options), done):
                done += len(batch)
                yield batch
        except pa.ArrowInvalid as error:
            if _TOO_LONG not in str(error) or block == _BLOCK_MOST:
                raise _located(spec, path, block, options, error) from error
            block = min(block * _GROWTH, _BLOCK_MOST)
        else:
            return


def csv_schema(path: Path) -> pa.Schema:
    """Guess the columns of a CSV file from its first block; a longer first row makes the block larger."""
    block = _BLOCK
    while True:
        try:
            with csv.open_csv(path, csv.ReadOptions(block_size=block)) as reader:
                return reader.schema
        except pa.ArrowInvalid as error:
            if _TOO_LONG not in str(error) or block == _BLOCK_MOST:
                raise
            block = min(block * _GROWTH, _BLOCK_MOST)


def _options(spec: TableSpec, path: Path, change: str | None) -> csv.ConvertOptions:
    for field in spec.schema:
        if pa.types.is_nested(field.type) or pa.types.is_binary(field.type):
            message = f"{path}: column {field.name!r} ({field.type}) cannot be read from CSV; use Parquet or Arrow"
            raise UsageError(message)
    types = {field.name: field.type for field in spec.schema}
    if change is not None:
        types.setdefault(change, pa.string())
    return csv.ConvertOptions(
        column_types=types, null_values=_NULLS, strings_can_be_null=True, quoted_strings_can_be_null=False
    )


def _from(reader: csv.CSVStreamingReader, first: int) -> Iterator[pa.RecordBatch]:
    """Read on from a row; those before it were given out by a reader with smaller blocks."""
    with reader:
        for batch in reader:
            if first < len(batch):
                yield batch.slice(first)
            first = max(0, first - len(batch))


def _located(spec: TableSpec, path: Path, block: int, options: csv.ConvertOptions, error: pa.ArrowInvalid) -> RowError:
    """Read the file once more on one thread: only then does Arrow count rows."""
    text = str(error)
    if text.startswith("Empty CSV file"):
        return RowError(f"table {spec.path}: expected a header and rows, found an empty file")
    try:
        alone = csv.ReadOptions(use_threads=False, block_size=block)
        with csv.open_csv(path, alone, convert_options=options) as reader:
            for _ in reader:
                pass
    except pa.ArrowInvalid as again:
        text = str(again)
    if (found := _IN_COLUMN.fullmatch(text)) is not None:
        number, row, what = found.groups()
        return RowError(f"table {spec.path}, column {_column(path, int(number))}, row {row}: {_value(what)}")
    if (found := _IN_ROW.fullmatch(text)) is not None:
        row, what = found.groups()
        return RowError(f"table {spec.path}, row {row}: {_fields(what)}")
    return RowError(f"table {spec.path}: expected CSV, found: {text}")


def _column(path: Path, number: int) -> str:
    """Return the name of a column; the header alone is read, as the rows do not fit."""
    with path.open("rb") as file:
        header = file.readline()
    schema = csv.open_csv(pa.py_buffer(header.rstrip(b"\r\n") + b"\n" * 2)).schema
    return repr(schema.names[number])


def _value(what: str) -> str:
    if (found := _VALUE.fullmatch(what)) is not None:
        return f"expected {found[1]}, found {short_repr(found[2])}"
    if "invalid UTF8" in what:
        return "expected text in UTF-8, found other bytes"
    return f"expected a value of the column, found: {what}"


def _fields(what: str) -> str:
    if (found := _FIELDS.fullmatch(what)) is not None:
        return f"expected {found[1]} columns, found {found[2]}: {short_repr(found[3])}"
    return f"expected a row, found: {what}"
