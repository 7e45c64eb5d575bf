"""Which columns of a lake table are those of the source, and what they are called on either side.

A table option says it (`lakeward.model.column_ids`). It is written once a table of a source with ids of columns is
mirrored: as the next schema, as the catalog chooses the ids of a new table. Tables of the mode `tier` are the server's
to alter, and have none.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING

from lakeward.model.column_ids import COLUMNS_PROPERTY, plan_columns, read_columns, store_columns
from lakeward_lake_paimon.fitting import becomes_wider, fixed_columns, refuse
from lakeward_lake_paimon.table_schema import user_field

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakeward.model.column_ids import ColumnPlan, KnownColumn
    from lakeward.model.tables import TableSpec
    from lakeward_lake_paimon.kinds import Field, Kind
    from lakeward_lake_paimon.table_schema import TableSchema


@dataclass(frozen=True, slots=True)
class Alteration:
    """What makes one schema of a table the next one.

    `added` are columns, `options` other values of options; `renamed` has new names by the old ones, and columns that
    become nullable are `relaxed`, by the names that they have before. `widened` has types that hold more.
    """

    added: Sequence[Field] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    relaxed: Sequence[str] = ()
    widened: Mapping[str, Kind] = field(default_factory=dict)


def known_columns(schema: TableSchema, where: str) -> dict[int, KnownColumn]:
    """Return the columns that a table follows by the source's ids; `where` names it in errors.

    Raises:
        SchemaMismatchError: what says so is damaged.
    """
    return read_columns(schema.options.get(COLUMNS_PROPERTY), where)


def field_names(schema: TableSchema) -> dict[int, str]:
    """Return the names of columns by their ids."""
    return {one.id: one.name for one in schema.fields}


def column_plan(spec: TableSpec, schema: TableSchema) -> ColumnPlan | None:
    """Return how the columns of the source are to be called, None where that is not for us to say.

    Raises:
        SchemaMismatchError: as `plan_columns`, or Paimon keeps the name of a column that the source has renamed.
    """
    known = known_columns(schema, str(spec.path))
    if spec.union_read and not known:
        return None
    plan = plan_columns(spec, known, field_names(schema))
    names = field_names(schema)
    fixed = fixed_columns(spec, schema)
    for field_id, name in plan.renames.items():
        if {names[field_id], name} & fixed:
            found = (
                f"{names[field_id]!r}, which the source has renamed, in a key or a partitioning, where Paimon keeps "
                f"names. Rename {name!r} back to {names[field_id]!r} in the source, then `lakeward tables resume`"
            )
            refuse(spec, f"column {name!r}", found)
    return plan


def next_columns(spec: TableSpec, schema: TableSchema, plan: ColumnPlan) -> Alteration | None:
    """Return what has to become of columns that are there, None for nothing.

    They get the names that the source has given them. One that the source has no more becomes nullable.
    """
    names = field_names(schema)
    ours = {one.field_id for one in plan.known.values()}
    wanted = {plan.names.get(column.name, column.name) for column in spec.schema}
    gone = [one for one in schema.fields if one.id in ours and one.name not in wanted and one.id not in plan.renames]
    relaxed = tuple(one.name for one in gone if not one.kind.nullable)
    renamed = {names[field_id]: name for field_id, name in plan.renames.items()}
    stored = store_columns(plan.known)
    options = {COLUMNS_PROPERTY: stored} if plan.known and schema.options.get(COLUMNS_PROPERTY) != stored else {}
    return Alteration((), options, renamed, relaxed) if renamed or relaxed or options else None


def widened_columns(spec: TableSpec, schema: TableSchema) -> Mapping[str, Kind]:
    """Return the types of columns that the source has made wider, where the lake table may follow it.

    A table that the source's clients read together with their log is the server's to alter.
    """
    if spec.union_read or not spec.may_widen:
        return {}
    there, fixed, ids = {one.name: one.kind for one in schema.fields}, fixed_columns(spec, schema), count(0)
    found = {}
    for column in spec.schema:
        kind, wanted = there.get(column.name), user_field(spec, column, ids).kind
        if kind is not None and column.name not in fixed and becomes_wider(kind, wanted):
            found[column.name] = replace(wanted, nullable=kind.nullable)
    return found


def altered(schema: TableSchema, change: Alteration) -> TableSchema:
    """Return a schema with other names, types, columns that are nullable, and options; `added` is not looked at."""

    def one(column: Field) -> Field:
        kind = change.widened.get(column.name, column.kind)
        kind = replace(kind, nullable=True) if column.name in change.relaxed else kind
        return replace(column, name=change.renamed.get(column.name, column.name), kind=kind)

    return replace(schema, fields=tuple(map(one, schema.fields)), options={**schema.options, **change.options})
