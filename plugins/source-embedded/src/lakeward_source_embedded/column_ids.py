"""Columns by number: a batch that was written before a column was renamed or dropped is read by the numbers.

The numbers are in the metadata of a table's columns, and so in its files. A column keeps its number for as long as it
is there, and no later one of the table gets it. Tables that were made before there were numbers are read by names, and
have no renamed or dropped columns.
"""

from __future__ import annotations

import pyarrow as pa

from lakeward.errors import UsageError
from lakeward.model.column_ids import column_id, with_column_id
from lakeward_source_embedded.columns import widens

_NEXT = b"next_column_id"
"""Metadata of a schema: the number of the next column that is added."""


def numbered(schema: pa.Schema) -> pa.Schema:
    """Return the schema of a new table with a number for each column."""
    fields = [with_column_id(field, number) for number, field in enumerate(schema)]
    return pa.schema(fields, {_NEXT: b"%d" % len(fields)})


def with_column(schema: pa.Schema, field: pa.Field) -> pa.Schema:
    """Return a schema with one column more."""
    following = _next(schema)
    if following is None:
        return schema.append(field)
    return schema.append(with_column_id(field, following)).with_metadata({_NEXT: b"%d" % (following + 1)})


def check_numbered(schema: pa.Schema, what: str) -> None:
    """Refuse to do what needs numbers where there are none.

    Raises:
        UsageError: the table was made by an earlier release.
    """
    if _next(schema) is None:
        message = f"{what}: the table was made by an earlier release, which did not number columns; make a new table"
        raise UsageError(message)


def is_newer(part: pa.Schema, known: pa.Schema) -> bool:
    """Return whether rows have a column that was added after `known` was read; False where they have no numbers."""
    following = _next(known)
    numbers = [number for number in map(column_id, part) if number is not None]
    return following is not None and any(number >= following for number in numbers)


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the columns of `schema`, in its order and of its types; what an older batch lacks is null."""
    by_number = {number: place for place, field in enumerate(batch.schema) if (number := column_id(field)) is not None}
    by_name = {field.name: place for place, field in enumerate(batch.schema) if column_id(field) is None}

    def column(field: pa.Field) -> pa.Array:
        number = column_id(field)
        place = by_number.get(number) if by_number and number is not None else by_name.get(field.name)
        if place is None:
            return pa.nulls(len(batch), field.type)
        found = batch.column(place)
        return found.cast(field.type) if widens(found.type, field.type) else found

    return pa.RecordBatch.from_arrays([column(field) for field in schema], schema=schema)


def is_wider(part: pa.Schema, known: pa.Schema) -> bool:
    """Return whether rows have a column of a type that holds more than the one that is known."""
    types = {column_id(field) if column_id(field) is not None else field.name: field.type for field in part}
    keys = [(column_id(field) if column_id(field) is not None else field.name, field.type) for field in known]
    return any(key in types and widens(kind, types[key]) for key, kind in keys)


def _next(schema: pa.Schema) -> int | None:
    found = (schema.metadata or {}).get(_NEXT)
    return None if found is None else int(found)
