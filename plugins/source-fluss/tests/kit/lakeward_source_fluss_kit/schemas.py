"""Schemas as clients write them and as servers project them; the product only reads whole ones."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lakeward_source_fluss.formats.schema import FlussSchema

if TYPE_CHECKING:
    from lakeward_source_fluss.formats.types import FlussType

_VERSION = 1


def project(schema: FlussSchema, positions: tuple[int, ...]) -> FlussSchema:
    """Return only the columns at these positions, as a server sends them when it is asked to project."""
    return FlussSchema(tuple(schema.columns[position] for position in positions))


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
