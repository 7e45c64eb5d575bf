"""Derives a table's columns from a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward.errors import UsageError
from lakeward_source_embedded.inputs import JSON_LINES

if TYPE_CHECKING:
    from pathlib import Path

_NEAREST = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.null(): pa.string(),
}
"""Types that files have and tables do not, and the type that holds all their values."""


def columns_like(file: Path, change_column: str | None) -> pa.Schema:
    """Read the columns of a file, as a schema in types that a table can have; without metadata of other programs.

    `file` ends in .parquet, .csv, .jsonl, .ndjson, .json, .arrow, .feather, .ipc or .arrows; types of CSV and JSON are
    guessed from the first block.
    `change_column` is no part of the table, None where there is none.

    Raises:
        UsageError: no such file or column, an unknown ending, or a type that no table can hold.
    """
    schema = _schema_of(file)
    if change_column is not None and change_column not in schema.names:
        message = f"{file}: expected a column {change_column!r}, found {', '.join(schema.names)}"
        raise UsageError(message)
    return pa.schema(_field(file, field) for field in schema if field.name != change_column)


def _schema_of(file: Path) -> pa.Schema:
    readers = {".parquet": _parquet, ".pq": _parquet, ".csv": _csv}
    readers |= dict.fromkeys(JSON_LINES, _json)
    readers |= dict.fromkeys((".arrow", ".ipc", ".feather", ".arrows"), _arrow)
    reader = readers.get(file.suffix.lower())
    if reader is None:
        message = f"{file}: expected a name that ends in {', '.join(readers)}"
        raise UsageError(message)
    try:
        return reader(file)
    except FileNotFoundError as error:
        message = f"{file}: expected a file, found none"
        raise UsageError(message) from error
    except (pa.ArrowException, OSError) as error:
        message = f"{file}: cannot be read as {file.suffix.lower()[1:]}: {error}"
        raise UsageError(message) from error


def _parquet(file: Path) -> pa.Schema:
    import pyarrow.parquet as pq  # noqa: PLC0415 - only who names such a file pays for it

    return pq.read_schema(file)


def _csv(file: Path) -> pa.Schema:
    from lakeward_source_embedded.csv_files import csv_schema  # noqa: PLC0415 - only who names such a file pays for it

    return csv_schema(file)


def _json(file: Path) -> pa.Schema:
    from lakeward_source_embedded.json_rows import json_schema  # noqa: PLC0415 - only who names such a file pays for it

    return json_schema(file)


def _arrow(file: Path) -> pa.Schema:
    with pa.OSFile(str(file)) as source:
        try:
            return pa.ipc.open_file(source).schema
        except pa.ArrowInvalid:
            source.seek(0)
            return pa.ipc.open_stream(source).schema


def _field(file: Path, field: pa.Field) -> pa.Field:
    return pa.field(field.name, _type(file, field.name, field.type), nullable=field.nullable)


def _type(file: Path, name: str, found: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(found):
        return _type(file, name, found.value_type)
    if pa.types.is_timestamp(found) and found.tz not in {None, "UTC"}:
        return pa.timestamp(found.unit, tz="UTC")
    if pa.types.is_large_list(found) or pa.types.is_list(found):
        inner = found.value_field
        return pa.list_(inner.with_type(_type(file, name, inner.type)))
    if pa.types.is_struct(found):
        return pa.struct([_field(file, child) for child in found])
    if found == pa.uint64():
        message = f"{file}: column {name!r}: uint64 holds numbers that no column type does; use --columns"
        raise UsageError(message)
    return _NEAREST.get(found, found)
