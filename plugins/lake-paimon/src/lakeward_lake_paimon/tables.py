"""Creates lake tables, adopts and evolves existing ones, and renames those of a table that was dropped."""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

import msgspec

from lakeward.errors import CommitConflictError, FencedError, LakeError
from lakeward_lake_paimon.fitting import check_fits, check_kind, missing_fields
from lakeward_lake_paimon.storage import TEMPORARY
from lakeward_lake_paimon.table import Owner, Table, owner_path, read_owner
from lakeward_lake_paimon.table_schema import SYSTEM_COLUMNS, new_schema, schema_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.identity import Incarnation
    from lakeward.model.tables import TablePath, TableSpec
    from lakeward_lake_paimon.kinds import Field, Kind
    from lakeward_lake_paimon.storage import Storage


_TRIES = 10
_ASIDE = "__dropped_"


class Warehouse:
    """The tables of a filesystem catalog: `WAREHOUSE/DATABASE.db/TABLE`."""

    def __init__(self, storage: Storage, root: str, wall_ms: Callable[[], int]) -> None:
        """Keep where it is; `wall_ms` returns the time of now, in ms since 1970."""
        self.storage = storage
        self.root = root
        self._wall_ms = wall_ms

    def location(self, path: TablePath) -> str:
        """Return a table's folder."""
        return f"{self.root}/{path.database}.db/{path.table}"

    def load(self, path: TablePath) -> Table | None:
        """Read a table, None if it is not there."""
        return Table.load(self.storage, self.location(path), path)

    def open(self, spec: TableSpec, incarnation: Incarnation) -> Table:
        """Return the lake table of a source's table, made to fit.

        Raises:
            FencedError: a later start of the same service has created or stamped the table.
            SchemaMismatchError: they do not fit; says what differs.
            StorageError: the warehouse cannot be written.
            CommitConflictError: another program keeps changing the table.
        """
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
        """Make the table whole under another name, and give it its own; a race that was lost is no error."""
        schema = new_schema(spec, system_columns=spec.system_columns is not False, time_ms=self._wall_ms())
        check_fits(spec, schema)
        location = self.location(spec.path)
        owner = msgspec.json.encode(_owner(spec, incarnation))
        if not self.storage.renames:
            # Between the two it is a table that nobody has opened yet; whoever opens it first writes the owner.
            if self.storage.create(schema_path(location, 0), schema.to_bytes(), "schema"):
                self.storage.create(owner_path(location), owner, "owner")
            return
        # Not among the tables of a database, where Paimon would list it after a crash.
        temporary = f"{self.root}/{TEMPORARY}{secrets.token_hex(8)}"
        try:
            self.storage.write(schema_path(temporary, 0), schema.to_bytes())
            self.storage.write(owner_path(temporary), owner)
            self.storage.make_folder(f"{temporary}/snapshot")
            self.storage.make_folder(location.rpartition("/")[0])
            self.storage.rename_folder(temporary, location)
        finally:
            with suppress(OSError):
                self.storage.delete_folder(temporary)

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
        if not self.storage.renames:
            message = (
                f"{spec.path}: the lake table belongs to table id {owner.table_id}, now it is {spec.table_id}, and a "
                f"store cannot rename it. Copy {table.location} elsewhere, delete it there, and the table is made anew"
            )
            raise LakeError(message)
        aside = f"{table.location}{_ASIDE}{owner.table_id}"
        found = read_owner(self.storage, aside)
        if found is not None and found.uuid != owner.uuid:
            # A start that was paused has created the old table again.
            aside = f"{aside}_{owner.uuid[:8]}"
        if not self.storage.rename_folder(table.location, aside):
            return
        moved = read_owner(self.storage, aside)
        if moved is None or moved.uuid != owner.uuid:
            self.storage.rename_folder(aside, table.location)
            message = f"{spec.path}: another table came in the way while that of table id {owner.table_id} was renamed"
            raise CommitConflictError(message)

    def _fit(self, table: Table, spec: TableSpec, incarnation: Incarnation) -> bool:
        """Make the lake table fit; return whether nothing had to be changed."""
        check_kind(table.schema, spec)
        check_fits(spec, table.schema)
        added = missing_fields(table.schema, spec)
        if added:
            self._add(table, added)
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
        wider = replace(
            schema,
            id=schema.id + 1,
            fields=(*own, *numbered, *system),
            highest_field_id=next(ids) - 1,
            time_ms=self._wall_ms(),
        )
        with self.storage.pin(f"{table.location}/schema") as folder:
            if folder.is_at_its_path and read_owner(self.storage, table.location) == table.owner:
                folder.create(f"schema-{wider.id}", wider.to_bytes(), "schema")


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
