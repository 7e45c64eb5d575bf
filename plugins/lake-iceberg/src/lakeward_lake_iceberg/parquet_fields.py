"""Finds the columns of a Parquet file by Iceberg's field ids.

Names do not tell them: other engines write `order-id` as `order_x2Did`, and the path `a.b` is that of a column of this
name as well as of the field `b` of a column `a`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FIELD_ID = b"PARQUET:field_id"


def columns_by_id(schema: pa.Schema) -> dict[int, int]:
    """Map the field id of each primitive field, at any depth, to the position of its column in the file.

    The schema is as pyarrow reads it from a file's footer.
    """
    leaves = (leaf for field in schema for leaf in _leaves(field))
    found = ((field_id_of(leaf), position) for position, leaf in enumerate(leaves))
    return {field_id: position for field_id, position in found if field_id is not None}


def top_columns(schema: pa.Schema, wanted: Mapping[str, int]) -> dict[str, int]:
    """Map the names of primitive columns to their positions in a file, those that it lacks left out.

    The schema is as pyarrow reads it from a file's footer. `wanted` has names and field ids; a file without any field
    id was not written for Iceberg: there the names count.
    """
    positions = columns_by_id(schema)
    if positions:
        return {name: positions[field_id] for name, field_id in wanted.items() if field_id in positions}
    leaves = [(field.name, leaf is field) for field in schema for leaf in _leaves(field)]
    return {name: place for place, (name, top) in enumerate(leaves) if top and name in wanted}


def field_id_of(field: pa.Field) -> int | None:
    """Return a field's id, None where it has none."""
    text = (field.metadata or {}).get(FIELD_ID)
    return None if text is None else int(text)


def _leaves(field: pa.Field) -> Iterable[pa.Field]:
    """Return the primitive fields of a field, in the order of their columns; itself if it is one."""
    kind = field.type
    if not pa.types.is_nested(kind):
        return (field,)
    return (leaf for number in range(kind.num_fields) for leaf in _leaves(kind.field(number)))
