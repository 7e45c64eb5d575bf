"""CSV files as batches of a table's columns; what does not fit is named with its column and row."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import csv

from lakeward.errors import RowError, UsageError, short_repr
from lakeward_source_embedded.csv_records import Records, read_records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakeward.model.tables import TableSpec

_NULLS = ("", "NULL", "null", "\\N")
_WHOLE = csv.ParseOptions(newlines_in_values=True)
_IN_COLUMN = re.compile(r"In CSV column #(\d+): Row #(\d+): (.*)", re.DOTALL)
_IN_ROW = re.compile(r"CSV parse error: Row #(\d+): (.*)", re.DOTALL)
_VALUE = re.compile(r"CSV conversion error to (.+?): invalid value '(.*)'", re.DOTALL)
_FIELDS = re.compile(r"Expected (\d+) columns, got (\d+): (.*)", re.DOTALL)


def read_csv(spec: TableSpec, path: Path, change: str | None) -> Iterator[pa.RecordBatch]:
    """Read a CSV file, batch by batch; text is converted by the table's schema.

    `change` is the name of the column that says insert, update or delete.

    Raises:
        UsageError: the table has a column that CSV cannot hold.
        RowError: names column and row of what does not fit: the line of the file on which it begins, from 1.
    """
    pieces = read_records(path, f"table {spec.path}")
    first = next(pieces, None)
    if first is None:
        message = f"table {spec.path}: expected a header and rows, found an empty file"
        raise RowError(message)
    header, others = first.first()
    names = _names(header)
    options = _options(spec, path, names, change)
    for records in chain([others], pieces):
        try:
            yield from _batches(records.data, names, options)
        except pa.ArrowInvalid as error:
            raise _located(spec, records, names, str(error)) from error


def csv_schema(path: Path) -> pa.Schema:
    """Guess the columns of a CSV file from its first piece that has a row."""
    data = b""
    for records in read_records(path, "CSV"):
        data += records.data
        if Records(data, 1).first()[1].data:
            break
    return csv.read_csv(pa.py_buffer(data), _one_block(data), _WHOLE).schema


def _names(header: bytes) -> list[str]:
    names: list[str] = csv.open_csv(pa.py_buffer(header.rstrip(b"\r\n") + b"\n" * 2), parse_options=_WHOLE).schema.names
    return names


def _one_block(data: bytes, names: list[str] | None = None) -> csv.ReadOptions:
    # On one thread, as only then does Arrow say in which row something does not fit.
    return csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names)


def _batches(data: bytes, names: list[str], options: csv.ConvertOptions) -> list[pa.RecordBatch]:
    if not data.strip(b"\r\n"):
        return []
    batches: list[pa.RecordBatch] = csv.read_csv(
        pa.py_buffer(data), _one_block(data, names), _WHOLE, options
    ).to_batches()
    return batches


def _options(spec: TableSpec, path: Path, names: list[str], change: str | None) -> csv.ConvertOptions:
    for field in spec.schema:
        if pa.types.is_nested(field.type) or pa.types.is_binary(field.type):
            message = f"{path}: column {field.name!r} ({field.type}) cannot be read from CSV; use Parquet or Arrow"
            raise UsageError(message)
    # Columns that the table has not are refused later: what they hold is not looked at.
    types = dict.fromkeys(names, pa.string()) | {field.name: field.type for field in spec.schema}
    if change is not None:
        types.setdefault(change, pa.string())
    return csv.ConvertOptions(
        column_types=types, null_values=_NULLS, strings_can_be_null=True, quoted_strings_can_be_null=False
    )


def _located(spec: TableSpec, records: Records, names: list[str], text: str) -> RowError:
    """Say what does not fit; a row is counted by the line of the file on which it begins."""
    if (found := _IN_COLUMN.fullmatch(text)) is not None:
        number, row, what = found.groups()
        line = records.line_of(int(row))
        return RowError(f"table {spec.path}, column {names[int(number)]!r}, row {line}: {_value(what)}")
    if (found := _IN_ROW.fullmatch(text)) is not None:
        row, what = found.groups()
        return RowError(f"table {spec.path}, row {records.line_of(int(row))}: {_fields(what)}")
    return RowError(f"table {spec.path}, from row {records.line} on: expected CSV, found: {text}")


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
