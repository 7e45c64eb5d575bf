"""Columns are followed by the ids that the source and the lake give them, whatever they are called on either side.

A source that has ids puts them into the metadata of its columns (`COLUMN_ID`). A lake keeps in a property of its table
which of its fields each of them is, and what it was called in the source then (`KnownColumn`). From these follows who
has renamed a column since: the source, and the lake's column is renamed as well, or somebody else in the lake, and rows
go to the column under its new name.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from lakeward.errors import CommitConflictError, SchemaMismatchError
from lakeward.model.results import LakeColumn

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from lakeward.model.results import LakeHead
    from lakeward.model.tables import TableSpec

COLUMN_ID = b"column_id"
"""Metadata of a column of `TableSpec.schema`: the number by which the source knows it, whatever its name is."""
COLUMNS_PROPERTY = "lakeward.columns"
"""Property of a lake table: see `store_columns`."""


class KnownColumn(NamedTuple):
    """A column of the source that a lake table has: the lake's id of its field, and its name in the source then."""

    field_id: int
    name: str


def column_id(field: pa.Field) -> int | None:
    """Return the number by which the source knows a column; None: it has none."""
    found = (field.metadata or {}).get(COLUMN_ID)
    return None if found is None else int(found)


def with_column_id(field: pa.Field, number: int) -> pa.Field:
    """Return a column with the number by which the source knows it."""
    return field.with_metadata({**(field.metadata or {}), COLUMN_ID: b"%d" % number})


def store_columns(known: Mapping[int, KnownColumn]) -> str:
    """Return the columns as the lake's property holds them: JSON, by the source's id the lake's id and the name."""
    return json.dumps({str(number): list(one) for number, one in sorted(known.items())}, separators=(",", ":"))


def read_columns(text: str | None, where: str) -> dict[int, KnownColumn]:
    """Return the columns in the lake's property; none where it has no such property.

    Raises:
        SchemaMismatchError: it is damaged; `where` names the table.
    """
    try:
        stored = json.loads(text or "{}")
        return {int(number): KnownColumn(int(field_id), str(name)) for number, (field_id, name) in stored.items()}
    except (ValueError, TypeError, AttributeError) as damaged:
        message = f"{where}: property {COLUMNS_PROPERTY}: expected JSON that Lakeward wrote, found {text!r:.200}"
        raise SchemaMismatchError(message) from damaged


def columns_by_id(known: Mapping[int, KnownColumn], fields: Mapping[int, str]) -> dict[int, LakeColumn]:
    """Return what `LakeHead.by_id` says of a lake table with these fields, by the lake's id the name."""
    return {
        number: LakeColumn(fields[one.field_id], one.name) for number, one in known.items() if one.field_id in fields
    }


def lake_columns(schema: pa.Schema, by_id: Mapping[int, LakeColumn]) -> dict[str, str]:
    """Return the lake's names of columns that are called otherwise in the source; `by_id` is that of `LakeHead`."""
    ids = {field.name: column_id(field) for field in schema}
    known = {name: by_id[number].name for name, number in ids.items() if number is not None and number in by_id}
    return {name: lake_name for name, lake_name in known.items() if lake_name != name}


def check_names_stayed(table: TableSpec, head: LakeHead, by_id: Mapping[int, LakeColumn]) -> None:
    """Check that the lake table's columns are called as they were when a round began with `head`.

    Raises:
        CommitConflictError: somebody has renamed one since; the next round goes by the new name.
    """
    if by_id != head.by_id:
        message = f"{table.path}: columns of the lake table were renamed after the round had begun"
        raise CommitConflictError(message)


def written_columns(table: TableSpec) -> tuple[str, ...]:
    """Return the columns of a table's rows as a checkpoint has them: the lake's names, with the source's ids."""
    ids = [(column_id(field), field.name) for field in table.as_written.schema]
    return tuple(name if number is None else f"{number}:{name}" for number, name in ids)


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """What becomes of the names of a lake table's columns.

    `renames` has new names by the lake's id, those that the source has given. `names` are the lake's names of columns
    after that, by the source's; only those that differ. `known` is what the lake is to keep; it lacks columns that have
    yet to be added.
    """

    renames: Mapping[int, str]
    names: Mapping[str, str]
    known: Mapping[int, KnownColumn]


def plan_columns(table: TableSpec, known: Mapping[int, KnownColumn], fields: Mapping[int, str]) -> ColumnPlan:
    """Plan for a table as the source has it; `fields` are the lake table's, by the lake's id the name.

    A column that is not known is the one of its name, unless that is another one of the source: one that was dropped
    there and comes back has a new id. Names that somebody else has given are followed where the source's clients do not
    read the lake table by the source's.

    Raises:
        SchemaMismatchError: a name that the source has given is that of another column of the lake table.
    """
    ids = {number: field.name for field in table.schema if (number := column_id(field)) is not None}

    def is_here(one: KnownColumn, name: str) -> bool:
        """Return whether a column is still the one that it was: somebody may have put another one in its place."""
        now = fields.get(one.field_id)
        replaced = table.union_read and now not in {name, one.name} and name in fields.values()
        return now is not None and not replaced

    here = {number: known[number] for number, name in ids.items() if number in known and is_here(known[number], name)}
    renames: dict[int, str] = {}
    names: dict[str, str] = {}
    for number, one in here.items():
        name, now = ids[number], fields[one.field_id]
        if now == one.name != name:
            renames[one.field_id] = name
        elif now != name and not table.union_read:
            names[name] = now
    _check_free(table, renames, fields)
    _check_apart(table, names, {name for number, name in ids.items() if number not in here})
    taken = {one.field_id for one in here.values()}
    by_name = {name: field_id for field_id, name in {**fields, **renames}.items() if field_id not in taken}
    found = {number: by_name[name] for number, name in ids.items() if number not in here and name in by_name}
    again = set(found.values())
    kept = {number: one for number, one in known.items() if one.field_id not in again}
    now_known = {number: KnownColumn(one.field_id, ids[number]) for number, one in here.items()}
    added = {number: KnownColumn(field_id, ids[number]) for number, field_id in found.items()}
    return ColumnPlan(renames, names, kept | now_known | added)


def _check_free(table: TableSpec, renames: Mapping[int, str], fields: Mapping[int, str]) -> None:
    """Check that no other column of the lake table has a name that one is to get."""
    left = {name for field_id, name in fields.items() if field_id not in renames}
    for field_id, name in renames.items():
        if name in left:
            message = (
                f"{table.path}: the lake table does not fit: the source has renamed column {fields[field_id]!r} to "
                f"{name!r}, and the lake table has another column of that name. Rename that one (in Spark: ALTER TABLE "
                f"{table.path} RENAME COLUMN `{name}` TO ...) or drop it, then `lakeward tables resume`"
            )
            raise SchemaMismatchError(message)


def _check_apart(table: TableSpec, names: Mapping[str, str], others: set[str]) -> None:
    """Check that no new column of the source has a name that somebody else has given to another one in the lake."""
    for source_name, name in names.items():
        if name in others:
            message = (
                f"{table.path}: the lake table does not fit: the source has a column {name!r}, and in the lake table "
                f"somebody else has renamed {source_name!r} to that. Rename it once more (in Spark: ALTER TABLE "
                f"{table.path} RENAME COLUMN `{name}` TO `{source_name}`), then `lakeward tables resume`"
            )
            raise SchemaMismatchError(message)
