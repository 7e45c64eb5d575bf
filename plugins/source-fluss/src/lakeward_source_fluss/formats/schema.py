"""A Fluss table's schema: its JSON form, its Arrow form, and how an older one is seen today.

Source: fluss.md, "Tables and types".
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from lakeward.errors import NewerSourceError, SchemaMismatchError
from lakeward.model.column_ids import with_column_id
from lakeward_source_fluss.formats.types import FlussField, number, parse_type, text_or_none

_MAX_COLUMNS = 1 << 15
_MAX_ID = (1 << 31) - 1
_VERSION = 1
_WHERE = "Fluss schema"


@dataclass(frozen=True)
class FlussSchema:
    """The columns of a table under one schema id, in order, and its primary key (empty for a log table).

    Columns have their ids as numbers that stay when they are renamed (`lakeward.model.column_ids`).
    """

    columns: tuple[FlussField, ...]
    primary_key: tuple[str, ...] = ()

    def to_arrow(self, *, logged: bool = False) -> pa.Schema:
        """Return the Arrow schema, one field per column, with comments as metadata. `logged` as for `FlussType`."""
        return self._logged if logged else self._arrow

    # Each batch of a log asks for both, and small batches are mostly such work.
    @cached_property
    def _arrow(self) -> pa.Schema:
        return pa.schema([with_column_id(column.to_arrow(), column.field_id) for column in self.columns])

    @cached_property
    def _logged(self) -> pa.Schema:
        return pa.schema([column.to_arrow(logged=True) for column in self.columns])

    def seen_as(self, current: FlussSchema) -> FlussSchema:
        """Return this older schema, in its order, with its columns named as in the current one, matched by column id.

        A column that the current schema has no more keeps its place (its bytes must be skipped) under a name that no
        column can have. Decode with the result, and every value goes where it belongs, whatever was renamed.
        """
        names = {column.field_id: column.name for column in current.columns}
        columns = tuple(
            replace(column, name=names.get(column.field_id, f"\0dropped-{position}"))
            for position, column in enumerate(self.columns)
        )
        return FlussSchema(columns, self.primary_key)


def parse_schema(schema_json: bytes | str) -> FlussSchema:
    """Read the JSON, UTF-8, of GET_TABLE_SCHEMA, or the `schema` object inside a table's JSON.

    Raises:
        NewerSourceError: a version of the format, or a data type, that is not known here.
        SchemaMismatchError: not a whole schema; says what was found.
    """
    try:
        value = json.loads(schema_json)
    except (ValueError, RecursionError) as broken:
        raise _refusal(str(broken), "a JSON object") from broken
    if not isinstance(value, dict):
        raise _refusal(value, "a JSON object")
    if value.get("version", _VERSION) != _VERSION:
        raise NewerSourceError.at(_WHERE, f"version {_VERSION}", value.get("version"))
    columns = _columns(value.get("columns"))
    return FlussSchema(columns, _primary_key(value.get("primary_key") or [], columns))


def _columns(value: object) -> tuple[FlussField, ...]:
    if not isinstance(value, list) or not 0 < len(value) < _MAX_COLUMNS:
        raise _refusal(value, "a list of columns")
    columns = tuple(_column(column, position) for position, column in enumerate(value))
    if len({column.name for column in columns}) != len(columns):
        raise _refusal([column.name for column in columns], "columns of different names")
    return columns


def _column(value: object, position: int) -> FlussField:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise _refusal(value, "a column with a name")
    column_type = parse_type(value.get("data_type"))
    # Schemas of 0.8 have no ids: there the position is the id.
    return FlussField(
        value["name"], column_type, text_or_none(value, "comment"), number(value, "id", position, (0, _MAX_ID))
    )


def _primary_key(value: object, columns: tuple[FlussField, ...]) -> tuple[str, ...]:
    names = {column.name for column in columns}
    if not isinstance(value, list) or not all(isinstance(name, str) and name in names for name in value):
        raise _refusal(value, "a primary key of the schema's columns")
    return tuple(value)


def _refusal(found: object, expected: str) -> SchemaMismatchError:
    return SchemaMismatchError(f"{_WHERE}: expected {expected}, found {found!r:.200}")
