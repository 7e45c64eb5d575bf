"""Creates lake tables, adopts and evolves existing ones, and renames those of a table that was dropped."""

from __future__ import annotations

import re
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING

from pyiceberg.exceptions import TableAlreadyExistsError
from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    PrimitiveType,
    StructType,
)

from lakeward.errors import (
    CommitConflictError,
    ConfigError,
    FencedError,
    LakeAwayError,
    LakeError,
    LakewardError,
    SchemaMismatchError,
    StorageError,
)
from lakeward.model.column_ids import COLUMNS_PROPERTY, store_columns
from lakeward_lake_iceberg.catalog import Sent
from lakeward_lake_iceberg.catalog_away import away, short
from lakeward_lake_iceberg.columns import check_columns, column_plan, known_columns
from lakeward_lake_iceberg.commit import check_format, main_is
from lakeward_lake_iceberg.head import Ancestry, newest_stamp
from lakeward_lake_iceberg.layout import check_layout, layout_change, layout_properties, wanted_order, wanted_spec
from lakeward_lake_iceberg.offsets import OPENED_BY, SET_ASIDE_BY, TABLE_ID, parse_incarnation
from lakeward_lake_iceberg.schema import (
    FORMAT_VERSION,
    FORMAT_VERSIONS,
    SYSTEM_COLUMNS,
    configured_properties,
    format_version,
    has_system_columns,
    lake_schema,
    table_properties,
)
from lakeward_lake_iceberg.upgrade import writes_newest

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.update import UpdatesAndRequirements
    from pyiceberg.types import IcebergType, NestedField

    from lakeward.model.column_ids import ColumnPlan
    from lakeward.model.identity import Incarnation
    from lakeward.model.tables import TablePath, TableSpec
    from lakeward_lake_iceberg.catalog import CatalogClient

_TRIES = 10
_ASIDE = "__dropped_"
_OWN_PART = re.compile(r"-\d+-[0-9a-f]{8}$")
"""What `_location` added to the first table's location."""


def open_table(client: CatalogClient, spec: TableSpec, incarnation: Incarnation) -> Table:
    """Return the lake table of a source's table, made to fit.

    Raises:
        FencedError: a later start of the same service has created or stamped the table.
        SchemaMismatchError: they do not fit; says what differs.
        StorageError: the warehouse cannot be written.
        CommitConflictError: another program keeps changing the table.
    """
    for _ in range(_TRIES):
        table = client.load(spec.path)
        if table is not None:
            _refuse_overtaken(table, spec, incarnation)
        if table is None:
            _create(client, spec, incarnation)
        elif (owner := table.metadata.properties.get(TABLE_ID)) is not None and int(owner) != spec.table_id:
            _set_aside(client, table, spec, incarnation)
        elif _evolve(client, table, spec):
            return table
    message = f"{spec.path}: the lake table was changed by somebody else {_TRIES} times in a row"
    raise CommitConflictError(message)


def _refuse_overtaken(table: Table, spec: TableSpec, incarnation: Incarnation) -> None:
    """Refuse if a later start of the same service has created or stamped this table."""
    opened_by = table.metadata.properties.get(OPENED_BY)
    for found in (newest_stamp(Ancestry.of(table.metadata)), parse_incarnation(opened_by) if opened_by else None):
        if found is not None and found.succeeds(incarnation):
            message = f"{spec.path}: a later start of this service, {found}, has taken the table over"
            raise FencedError(message, by=str(found))


def _create(client: CatalogClient, spec: TableSpec, incarnation: Incarnation) -> None:
    schema = lake_schema(spec, system_columns=spec.system_columns is not False)
    layout, version = wanted_spec(spec, schema), format_version(spec)
    if version == FORMAT_VERSIONS[-1] and not writes_newest(client):
        key, kind = f"{spec.section}.lake_properties.{FORMAT_VERSION}", type(client.catalog).__name__
        raise ConfigError(key, f"{FORMAT_VERSIONS[0]}, as pyiceberg writes no other with its {kind}", version)
    with _Creating(spec):
        _create_namespace(client, spec.path.database)
        client.catalog.create_table(
            (spec.path.database, spec.path.table),
            schema=schema,
            location=_location(client, spec),
            partition_spec=layout,
            sort_order=wanted_order(spec, schema),
            properties={
                **table_properties(spec),
                **layout_properties(spec),
                FORMAT_VERSION: version,
                TABLE_ID: str(spec.table_id),
                OPENED_BY: str(incarnation),
            },
        )


class _Creating:
    """Turns the catalog's errors while a table is created into Lakeward's; a lost race is not an error."""

    def __init__(self, spec: TableSpec) -> None:
        self._spec = spec

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, failed: BaseException | None, trace: object) -> bool:
        if failed is None or isinstance(failed, LakewardError) or not isinstance(failed, Exception):
            return False
        if isinstance(failed, TableAlreadyExistsError):
            return True
        failure = StorageError if isinstance(failed, OSError) else LakeAwayError if away(failed) else LakeError
        message = f"{self._spec.path}: the lake table cannot be created: {short(failed)}"
        raise failure(message) from failed


def _create_namespace(client: CatalogClient, database: str) -> None:
    try:
        client.catalog.create_namespace_if_not_exists((database,))
    except Exception:
        # Another thread or process may have created it meanwhile; each catalog reports that differently.
        if not client.catalog.namespace_exists((database,)):
            raise


def _location(client: CatalogClient, spec: TableSpec) -> str | None:
    """Choose a directory that no renamed table uses; if there is none, the catalog decides.

    Never one that another table of the same id may use: a start that was paused can create an old table again.
    """
    aside = re.compile(re.escape(f"{spec.path.table}{_ASIDE}") + r"\d+(_[0-9a-f]+)?")
    for identifier in client.catalog.list_tables((spec.path.database,)):
        if aside.fullmatch(identifier[-1]):
            old = client.catalog.load_table(identifier).location()
            return f"{_OWN_PART.sub('', old)}-{spec.table_id}-{secrets.token_hex(4)}"
    return None


def _set_aside(client: CatalogClient, table: Table, spec: TableSpec, incarnation: Incarnation) -> None:
    """Rename the table of an earlier table id; its data stays. A race that was lost is no error.

    A rename cannot be made conditional. So a table property is committed first, which fails if the table was stamped
    since it was read. A rename that is late or repeated then finds its target name taken, because that contains the old
    table's id. A rename that hit another table nevertheless is undone.

    Raises:
        LakeError: the table there belongs to a later table id, or it cannot be renamed.
    """
    owner = int(table.metadata.properties[TABLE_ID])
    if owner > spec.table_id:
        message = (
            f"{spec.path}: the lake table belongs to table id {owner}, later than {spec.table_id}, and is not set "
            f"aside for it. If the source was made anew and counts from the start again, rename that lake table"
        )
        raise LakeError(message)
    head = table.metadata.current_snapshot_id
    marked = SetPropertiesUpdate(updates={SET_ASIDE_BY: str(incarnation)})
    requirements = (AssertTableUUID(uuid=table.metadata.table_uuid), main_is(head))
    if client.send(table, requirements, (marked,))[0] is Sent.CONFLICT:
        return
    aside = replace(spec.path, table=f"{spec.path.table}{_ASIDE}{owner}")
    if client.load(aside) is not None:
        # A start that was paused has created the old table again.
        aside = replace(aside, table=f"{aside.table}_{table.metadata.table_uuid.hex[:8]}")
    try:
        client.rename(spec.path, aside)
    except LakeError as failed:
        if _stands_at(client, spec.path, table):
            message = (
                f"{spec.path}: the lake table belongs to table id {owner}, now it is {spec.table_id}, and it cannot be "
                f"renamed to {aside.table}: {failed}"
            )
            raise LakeError(message) from failed
        return
    if not _stands_at(client, aside, table):
        client.rename(aside, spec.path)
        message = f"{spec.path}: another table came in the way while that of table id {owner} was renamed"
        raise CommitConflictError(message)


def _stands_at(client: CatalogClient, path: TablePath, table: Table) -> bool:
    found = client.load(path)
    return found is not None and found.metadata.table_uuid == table.metadata.table_uuid


def _evolve(client: CatalogClient, table: Table, spec: TableSpec) -> bool:
    """Make the lake table fit; return whether nothing had to be changed."""
    check_format(table)
    _check_kind(table, spec)
    plan = column_plan(table, spec)
    uuid = AssertTableUUID(uuid=table.metadata.table_uuid)
    if plan.renames:
        updates, requirements = _renamed(table, spec, plan)
        client.send(table, (uuid, *requirements), updates)
        return False
    spec = spec.with_names(plan.names)
    wanted = lake_schema(spec, system_columns=has_system_columns(table))
    # Before the layout: a partition column that was renamed would be told as another partitioning.
    check_columns(table, spec, wanted, may_add=True)
    _check_layout(table, spec, wanted)
    changes = _Changes(table, spec, wanted)
    if changes.needed:
        update = changes.apply()
        updates, requirements = update._commit()  # noqa: SLF001 - sent by us, without the library's retries
        client.send(table, (uuid, *requirements), updates)
        return False
    # After the schema: a new column may be one to partition by.
    change = layout_change(table, spec)
    if change is not None:
        client.send(table, (uuid, *change.requirements), change.updates)
        return False
    return _set_properties(client, table, spec, plan)


def _renamed(table: Table, spec: TableSpec, plan: ColumnPlan) -> UpdatesAndRequirements:
    """Return what gives columns the names that the source has given them, and notes that at once.

    Raises:
        SchemaMismatchError: a partition field has the name, which Iceberg does not allow.
    """
    update = UpdateSchema(table.transaction())
    parts = {part.name: part.source_id for one in table.metadata.partition_specs for part in one.fields}
    for field_id, name in plan.renames.items():
        if parts.get(name, field_id) != field_id:
            message = (
                f"{spec.path}: the lake table does not fit: the source has renamed a column to {name!r}, and a "
                f"partition field of the lake table has that name. Give the column another name in the source, then "
                f"`lakeward tables resume`"
            )
            raise SchemaMismatchError(message)
        update.rename_column(table.schema().find_column_name(field_id) or "", name)
    updates, requirements = update._commit()  # noqa: SLF001 - as above
    return (*updates, SetPropertiesUpdate(updates={COLUMNS_PROPERTY: store_columns(plan.known)})), requirements


def _check_kind(table: Table, spec: TableSpec) -> None:
    """Refuse a table that is of no kind, or of another one than the configuration asks for, if it asks for one."""
    found = has_system_columns(table)
    names = {field.name for schema in table.metadata.schemas for field in schema.fields}
    if found and (missing := [name for name in SYSTEM_COLUMNS if name not in names]):
        message = (
            f"{spec.path}: the lake table does not fit: expected the columns {', '.join(SYSTEM_COLUMNS)} or none of "
            f"them, found no {', '.join(missing)}"
        )
        raise SchemaMismatchError(message)
    if spec.system_columns not in {None, found}:
        key = f"{spec.section}.system_columns"
        made = f"{'with' if found else 'without'} {', '.join(SYSTEM_COLUMNS)}"
        message = (
            f"{key}: expected {str(found).lower()} or no such key, as the lake table was made {made} and keeps its "
            f"kind, found {str(spec.system_columns).lower()}. For a lake table of the other kind set this one aside "
            "and accept that with `lakeward tables accept`; then `lakeward tables resume`"
        )
        raise SchemaMismatchError(message)


def _set_properties(client: CatalogClient, table: Table, spec: TableSpec, plan: ColumnPlan) -> bool:
    """Give a table the configured properties, the source's columns, and the table id if another service created it.

    Return whether it had them.
    """
    there = table.metadata.properties
    updates = {key: value for key, value in configured_properties(spec).items() if there.get(key) != value}
    if TABLE_ID not in there:
        updates[TABLE_ID] = str(spec.table_id)
    if plan.known != known_columns(table):
        updates[COLUMNS_PROPERTY] = store_columns(plan.known)
    if updates:
        update = SetPropertiesUpdate(updates=updates)
        client.send(table, (AssertTableUUID(uuid=table.metadata.table_uuid),), (update,))
    return not updates


class _Changes:
    """The necessary changes of the lake's schema, or why it cannot be made to fit."""

    def __init__(self, table: Table, spec: TableSpec, wanted: Schema) -> None:
        """Compare.

        Raises:
            SchemaMismatchError: a difference that cannot be evolved.
        """
        self._table = table
        self._path = spec.path
        self._spec = spec
        self._ours = {one.field_id for one in known_columns(table).values()}
        self._added: list[NestedField] = []
        self._widened: list[NestedField] = []
        self._relaxed: list[NestedField] = []
        present = {field.name: field for field in table.schema().fields}
        for field in wanted.fields:
            self._compare(field, present.pop(field.name, None))
        for extra in present.values():
            self._tolerate(extra)

    @property
    def needed(self) -> bool:
        """True if anything has to change."""
        return bool(self._added or self._widened or self._relaxed)

    def apply(self) -> UpdateSchema:
        """Return the schema update, not yet sent."""
        update = UpdateSchema(self._table.transaction())
        system = [name for name in SYSTEM_COLUMNS if name in self._table.schema().column_names]
        for field in self._added:
            update.add_column((field.name,), field.field_type, field.doc)
            if system:
                update.move_before(field.name, system[0])
        for field in self._widened:
            assert isinstance(field.field_type, PrimitiveType)  # noqa: S101 - only primitive types widen
            update.update_column(field.name, field_type=field.field_type)
        for field in self._relaxed:
            update.make_column_optional(field.name)
        return update

    def _compare(self, wanted: NestedField, found: NestedField | None) -> None:
        if found is None:
            self._miss(wanted)
            return
        if not _same(wanted.field_type, found.field_type) and not _widens(wanted.field_type, found.field_type):
            spec = self._spec
            if not _widens(found.field_type, wanted.field_type):
                self._refuse(
                    f"column {wanted.name!r}: type {wanted.field_type}", f"{found.field_type}{self._undo(found)}"
                )
            if not (spec.may_widen or spec.keeps_types):
                self._refuse(f"column {wanted.name!r}: type {wanted.field_type}", str(found.field_type))
            if spec.may_widen:
                self._widened.append(wanted)
        if found.required and wanted.optional:
            self._relaxed.append(wanted)

    def _undo(self, found: NestedField) -> str:
        """Return what makes place for a column of the source's type, "" where the column has to be there."""
        if found.required:
            return ""
        rename = f"ALTER TABLE {self._path} RENAME COLUMN `{found.name}` TO `{found.name}_before`"
        return f". Rename or drop that one (in Spark: {rename}), then `lakeward tables resume`"

    def _miss(self, wanted: NestedField) -> None:
        if wanted.required:
            self._refuse(f"column {wanted.name!r}, which is not nullable", "none (only nullable columns can be added)")
        if wanted.name in {field.name for one in self._table.metadata.partition_specs for field in one.fields}:
            # Iceberg refuses such a schema, and Java could not load a table that had it.
            expected = f"no new column {wanted.name!r}, for a partition field of the lake table has that name"
            self._refuse(expected, "one in the source")
        self._added.append(wanted)

    def _tolerate(self, extra: NestedField) -> None:
        """Accept a column that the source does not have, or has no more: it is written as null."""
        if extra.required and extra.field_id in self._ours:
            self._relaxed.append(extra)
        elif extra.required:
            undo = f"ALTER TABLE {self._path} ALTER COLUMN `{extra.name}` DROP NOT NULL"
            found = f"column {extra.name!r}. Make it nullable (in Spark: {undo}), then `lakeward tables resume`"
            self._refuse("no further column that is not nullable", found)

    def _refuse(self, expected: str, found: str) -> None:
        message = f"{self._path}: the lake table does not fit: expected {expected}, found {found}"
        raise SchemaMismatchError(message)


def _check_layout(table: Table, spec: TableSpec, wanted: Schema) -> None:
    check_layout(table, spec)
    schema = table.schema()
    keys = schema.identifier_field_names()
    if keys != wanted.identifier_field_names():
        message = (
            f"{spec.path}: the lake table's identifier columns do not fit: expected {sorted(spec.primary_key)}, "
            f"found {sorted(keys)}"
        )
        raise SchemaMismatchError(message)


def _same(one: IcebergType, other: IcebergType) -> bool:
    """Compare types without field ids, and without the nullability of what is nested."""
    if isinstance(one, StructType) and isinstance(other, StructType):
        mine, theirs = one.fields, other.fields
        return [field.name for field in mine] == [field.name for field in theirs] and all(
            _same(a.field_type, b.field_type) for a, b in zip(mine, theirs, strict=True)
        )
    if isinstance(one, ListType) and isinstance(other, ListType):
        return _same(one.element_type, other.element_type)
    if isinstance(one, MapType) and isinstance(other, MapType):
        return _same(one.key_type, other.key_type) and _same(one.value_type, other.value_type)
    return one == other


def _widens(narrow: IcebergType, wide: IcebergType) -> bool:
    """True if Iceberg allows the promotion from `narrow` to `wide`."""
    if isinstance(narrow, DecimalType) and isinstance(wide, DecimalType):
        return narrow.scale == wide.scale and narrow.precision <= wide.precision
    return (isinstance(narrow, IntegerType) and isinstance(wide, LongType)) or (
        isinstance(narrow, FloatType) and isinstance(wide, DoubleType)
    )
