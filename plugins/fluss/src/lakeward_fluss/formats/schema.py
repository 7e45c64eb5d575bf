"""A Fluss table's schema: its JSON form (facts: Fluss 1.9), its Arrow form, and how an older one is seen today."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import pyarrow as pa

from lakeward.errors import SchemaMismatchError
from lakeward_fluss.formats.types import FlussField, FlussType, number, parse_type, text_or_none

_MAX_COLUMNS = 1 << 15
_MAX_ID = (1 << 31) - 1
_VERSION = 1


@dataclass(frozen=True, slots=True)
class FlussSchema:
    """The columns of a table under one schema id, in order, and its primary key (empty for a log table)."""

    columns: tuple[FlussField, ...]
    primary_key: tuple[str, ...] = ()

    def to_arrow(self, *, logged: bool = False) -> pa.Schema:
        """Return the Arrow schema, one field per column, with comments as metadata. `logged` as for `FlussType`."""
        return pa.schema([column.to_arrow(logged=logged) for column in self.columns])

    def project(self, positions: tuple[int, ...]) -> FlussSchema:
        """Return only the columns at these positions, as a server sends them when it is asked to project."""
        return FlussSchema(tuple(self.columns[position] for position in positions), ())

    def seen_as(self, current: FlussSchema) -> FlussSchema:
        """Return this older schema with its columns named as in the current one, matched by column id.

        A column that the current schema has no more keeps its place (its bytes must be skipped) under a name that no
        column can have. Decode with the result, and every value goes where it belongs, whatever was renamed.

        Args:
            current: the table's schema of today.

        Returns:
            The same columns in the same order.
        """
        names = {column.field_id: column.name for column in current.columns}
        columns = tuple(
            replace(column, name=names.get(column.field_id, f"\0dropped-{position}"))
            for position, column in enumerate(self.columns)
        )
        return FlussSchema(columns, self.primary_key)


def parse_schema(schema_json: bytes | str) -> FlussSchema:
    """Read the JSON of GET_TABLE_SCHEMA, or the `schema` object inside a table's JSON.

    Args:
        schema_json: UTF-8 JSON.

    Returns:
        The schema.

    Raises:
        SchemaMismatchError: not a schema that Lakeward understands; says what was found.
    """
    try:
        value = json.loads(schema_json)
    except (ValueError, RecursionError) as broken:
        raise _refusal(str(broken), "a JSON object") from broken
    if not isinstance(value, dict):
        raise _refusal(value, "a JSON object")
    if value.get("version", _VERSION) != _VERSION:
        raise _refusal(value.get("version"), f"version {_VERSION}")
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


def dump_schema(schema: FlussSchema) -> bytes:
    """Return the JSON of a schema, as CREATE_TABLE takes it inside a table's JSON."""
    columns = [
        {"name": column.name, "data_type": _dump_type(column.type), "id": position}
        | ({} if column.comment is None else {"comment": column.comment})
        for position, column in enumerate(schema.columns)
    ]
    value = {"version": _VERSION, "columns": columns, "highest_field_id": _number_fields(columns)}
    if schema.primary_key:
        value["primary_key"] = list(schema.primary_key)
    return json.dumps(value).encode("utf-8")


def _dump_type(kind: FlussType) -> dict[str, object]:
    sizes = {"length": kind.length, "precision": kind.precision, "scale": kind.scale}
    value: dict[str, object] = {"type": kind.kind.value}
    value |= {key: sizes[key] for key in _SIZE_KEYS.get(kind.kind.value, ())}
    if not kind.nullable:
        value["nullable"] = False
    return value | _dump_children(kind)


_SIZE_KEYS = {
    "CHAR": ("length",),
    "BINARY": ("length",),
    "DECIMAL": ("precision", "scale"),
    "TIME_WITHOUT_TIME_ZONE": ("precision",),
    "TIMESTAMP_WITHOUT_TIME_ZONE": ("precision",),
    "TIMESTAMP_WITH_LOCAL_TIME_ZONE": ("precision",),
}


def _dump_children(kind: FlussType) -> dict[str, object]:
    children = [_dump_type(child.type) for child in kind.children]
    match kind.kind.value:
        case "ARRAY":
            return {"element_type": children[0]}
        case "MAP":
            return {"key_type": children[0], "value_type": children[1]}
        case "ROW":
            fields = zip(kind.children, children, strict=True)
            return {"fields": [{"name": field.name, "field_type": inner} for field, inner in fields]}
        case _:
            return {}


def _number_fields(columns: list[dict[str, object]]) -> int:
    """Give each field of a nested row an id after the columns' own; return the highest id."""
    highest = len(columns) - 1
    waiting: list[object] = [column["data_type"] for column in columns]
    while waiting:
        value = waiting.pop(0)
        if not isinstance(value, dict):
            continue
        waiting += [value.get(key) for key in ("element_type", "key_type", "value_type")]
        for field in value.get("fields", ()):
            highest += 1
            field["field_id"] = highest
            waiting.append(field["field_type"])
    return highest


def _refusal(found: object, expected: str) -> SchemaMismatchError:
    return SchemaMismatchError(f"Fluss schema: expected {expected}, found {found!r:.200}")
