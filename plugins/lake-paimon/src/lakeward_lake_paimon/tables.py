"""Creates lake tables, adopts and evolves existing ones, and renames those of a table that was dropped."""

from __future__ import annotations

import secrets
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

import msgspec

from lakeward.errors import CommitConflictError, FencedError, LakeError, TableGoneError
from lakeward_lake_paimon.columns import Alteration, altered, column_plan, next_columns, widened_columns
from lakeward_lake_paimon.fitting import check_fits, check_kind, check_lost, check_place, missing_fields
from lakeward_lake_paimon.table import Owner, Table, owner_path, read_owner
from lakeward_lake_paimon.table_schema import SYSTEM_COLUMNS, configured_options, new_schema, read_schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.identity import Incarnation
    from lakeward.model.tables import TablePath, TableSpec
    from lakeward_lake_paimon.catalogs import Catalog
    from lakeward_lake_paimon.kinds import Field, Kind
    from lakeward_lake_paimon.table_schema import TableSchema


_TRIES = 10
_ASIDE = "__dropped_"


class Warehouse:
    """The tables of a catalog."""

    def __init__(self, catalog: Catalog, wall_ms: Callable[[], int]) -> None:
        """Keep which one it is; `wall_ms` returns the time of now, in ms since 1970."""
        self.catalog = catalog
        self.storage = catalog.storage
        self._wall_ms = wall_ms

    def location(self, path: TablePath) -> str:
        """Return a table's folder.

        Raises:
            TableGoneError: the catalog has no such table.
        """
        found = self.catalog.find(path)
        if found is None:
            message = f"{path}: the lake has no such table"
            raise TableGoneError(message)
        return found

    def load(self, path: TablePath) -> Table | None:
        """Read a table, None if it is not there."""
        location = self.catalog.find(path)
        return None if location is None else Table.load(self.storage, location, path)

    def open(self, spec: TableSpec, incarnation: Incarnation) -> Table:
        """Return the lake table of a source's table, made to fit.

        Raises:
            FencedError: a later start of the same service has created or stamped the table.
            SchemaMismatchError: they do not fit; says what differs.
            StorageError: the warehouse cannot be written.
            CommitConflictError: another program keeps changing the table.
        """
        check_place(spec, placed=self.catalog.places)
        for _ in range(_TRIES):
            table = self.load(spec.path)
            if table is None:
                self._create(spec, incarnation)
                continue
            _refuse_overtaken(table, spec, incarnation)
            if table.owner is not None and table.owner.table_id != spec.table_id:
                self._set_aside(table, spec, table.owner)
            elif self._fit(table, spec, incarnation):
                return table
        message = f"{spec.path}: the lake table was changed by somebody else {_TRIES} times in a row"
        raise CommitConflictError(message)

    def _create(self, spec: TableSpec, incarnation: Incarnation) -> None:
        """Make the table; a race that was lost is no error."""
        schema = new_schema(spec, system_columns=spec.system_columns is not False, time_ms=self._wall_ms())
        check_fits(spec, schema)
        self.catalog.create(spec.path, schema, msgspec.json.encode(_owner(spec, incarnation)))

    def _set_aside(self, table: Table, spec: TableSpec, owner: Owner) -> None:
        """Rename the table of an earlier table id; its data stays. A race that was lost is no error.

        A rename that is late or repeated finds its target name taken, as that contains the old table's id. One that
        hit another table nevertheless is undone.

        Raises:
            LakeError: the table there belongs to a later table id.
        """
        if owner.table_id > spec.table_id:
            message = (
                f"{spec.path}: the lake table belongs to table id {owner.table_id}, later than {spec.table_id}, and is "
                "not set aside for it. If the source was made anew and counts from the start again, rename that lake "
                "table"
            )
            raise LakeError(message)
        if not self.catalog.renames:
            message = (
                f"{spec.path}: the lake table belongs to table id {owner.table_id}, now it is {spec.table_id}, and a "
                f"store cannot rename it. Copy {table.location} elsewhere, delete it there, and the table is made anew"
            )
            raise LakeError(message)
        aside = replace(spec.path, table=f"{spec.path.table}{_ASIDE}{owner.table_id}")
        found = self._owner_at(aside)
        if found is not None and found.uuid != owner.uuid:
            # A start that was paused has created the old table again.
            aside = replace(aside, table=f"{aside.table}_{owner.uuid[:8]}")
        if not self.catalog.rename(spec.path, aside.table):
            return
        moved = self._owner_at(aside)
        if moved is None or moved.uuid != owner.uuid:
            self.catalog.rename(aside, spec.path.table)
            message = f"{spec.path}: another table came in the way while that of table id {owner.table_id} was renamed"
            raise CommitConflictError(message)

    def _owner_at(self, path: TablePath) -> Owner | None:
        location = self.catalog.find(path)
        return None if location is None else read_owner(self.storage, location)

    def _fit(self, table: Table, spec: TableSpec, incarnation: Incarnation) -> bool:
        """Make the lake table fit; return whether nothing had to be changed."""
        check_kind(table.schema, spec)
        plan = column_plan(spec, table.schema)
        change = None
        if plan is not None:
            change = next_columns(spec, table.schema, plan)
            spec = spec.with_names(plan.names)
        # Nothing is changed, or noted, of a table that will not fit then.
        following = table.schema if change is None else altered(table.schema, change)
        wider = Alteration(widened=widened_columns(spec, following))
        check_fits(spec, altered(following, wider))
        if change is not None:
            self.catalog.alter(table, self._next_schema(following), change)
            return False
        if wider.widened:
            self.catalog.alter(table, self._next_schema(altered(table.schema, wider)), wider)
            return False
        added = missing_fields(table.schema, spec)
        if added:
            earlier = [read_schema(self.storage, table.location, number) for number in range(table.schema.id)]
            check_lost(spec, added, table.schema, earlier)
            self._add(table, added)
            return False
        if wanted := self._other_options(table, spec):
            change = Alteration(options=wanted)
            self.catalog.alter(table, self._next_schema(altered(table.schema, change)), change)
            return False
        if table.owner is None:
            # Another service, or Fluss's coordinator, has made it.
            owner = msgspec.json.encode(_owner(spec, incarnation, table.next_id - 1))
            self.storage.create(owner_path(table.location), owner, "owner")
            return False
        return True

    def _add(self, table: Table, added: list[Field]) -> None:
        """Write the next schema, as Fluss's coordinator does: new columns are the last, or before `__bucket`."""
        schema = table.schema
        ids = count(schema.highest_field_id + 1)
        numbered = [_renumbered(field, ids) for field in added]
        own = [field for field in schema.fields if field.name not in SYSTEM_COLUMNS]
        system = [field for field in schema.fields if field.name in SYSTEM_COLUMNS]
        fields = (*own, *numbered, *system)
        changed = replace(schema, fields=fields, highest_field_id=next(ids) - 1)
        self.catalog.alter(table, self._next_schema(changed), Alteration(numbered))

    def _next_schema(self, changed: TableSchema) -> TableSchema:
        return replace(changed, id=changed.id + 1, time_ms=self._wall_ms())

    @staticmethod
    def _other_options(table: Table, spec: TableSpec) -> dict[str, str]:
        """Return the configured options that the table has not.

        Raises:
            SchemaMismatchError: with one of them the table could not be written here.
        """
        there = table.schema.options
        wanted = {key: value for key, value in configured_options(spec).items() if there.get(key) != value}
        if wanted:
            check_fits(spec, replace(table.schema, options={**there, **wanted}))
        return wanted


def _renumbered(field: Field, ids: count[int]) -> Field:
    """Give a new column, and what is in it, the table's next ids."""
    number = next(ids)
    return replace(field, id=number, kind=_renumbered_kind(field.kind, ids))


def _renumbered_kind(kind: Kind, ids: count[int]) -> Kind:
    if kind.fields:
        return replace(kind, fields=tuple(_renumbered(one, ids) for one in kind.fields))
    return replace(kind, children=tuple(_renumbered_kind(one, ids) for one in kind.children))


def _owner(spec: TableSpec, incarnation: Incarnation, since: int = 0) -> Owner:
    return Owner(1, spec.table_id, secrets.token_hex(16), str(incarnation), since)


def _refuse_overtaken(table: Table, spec: TableSpec, incarnation: Incarnation) -> None:
    """Refuse if a later start of the same service has created or stamped this table."""
    opener = None if table.owner is None else table.owner.opener
    for found in (table.stamp, opener):
        if found is not None and found.succeeds(incarnation):
            message = f"{spec.path}: a later start of this service, {found}, has taken the table over"
            raise FencedError(message, by=str(found))
