"""The partitioning of a lake table, on the driver: which spec the configuration wants, and how a table gets there.

A table without a `lake_partition` has the source's own layout. A table property says which partitioning the
configuration asked for last: so a layout that somebody else made is told from one that was configured before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSortOrderUpdate,
    AssertDefaultSpecId,
    AssertLastAssignedPartitionId,
    RemovePropertiesUpdate,
    SetDefaultSortOrderUpdate,
    SetDefaultSpecUpdate,
    SetPropertiesUpdate,
)
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import DecimalType, DoubleType

from lakeward.errors import SchemaMismatchError
from lakeward.model.partitioning import PartitionField as Wanted
from lakeward_lake_iceberg.commit import main_is
from lakeward_lake_iceberg.schema import has_system_columns, partition_layout, sort_order, source_spec
from lakeward_lake_iceberg.task import LayoutField

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.update import TableRequirement, TableUpdate

    from lakeward.model.tables import TableSpec

LAYOUT = "lakeward.lake-partition"
"""Table property: the configured `lake_partition` as a JSON list; an empty one for the source's own layout."""
SORTED = "lakeward.sorted-by-offset"
"""Table property: `false` where files hold rows of several buckets, and so are in no order."""
_PLAIN: dict[str, Transform[Any, Any]] = {
    "identity": IdentityTransform(),
    "year": YearTransform(),
    "month": MonthTransform(),
    "day": DayTransform(),
    "hour": HourTransform(),
}
_NAMES = msgspec.json.Decoder(list[str])
"""Made while this is imported: threads that learn a type at the same time crash the process."""
_Pair = tuple[str | None, str]
_TEXT = re.compile(r"(?P<name>[a-z]+)(\[(?P<argument>\d+)\])?")


def wanted_spec(table: TableSpec, schema: Schema) -> PartitionSpec:
    """Return the spec that a new table gets, with provisional ids.

    Raises:
        SchemaMismatchError: a column is missing or its type does not fit the transform.
    """
    if not table.lake_partition:
        return source_spec(table, schema)
    fields: list[PartitionField] = []
    seen: set[tuple[int, str]] = set()
    for number, wanted in enumerate(table.lake_partition):
        source, kind = _resolve(table, schema, wanted)
        if (source, kind.dedup_name) in seen:
            _refuse(table, wanted, "at most one field of each kind on a column", "a second one")
        seen.add((source, kind.dedup_name))
        name = field_name(wanted, frozenset(schema.column_names))
        fields.append(PartitionField(source, PARTITION_FIELD_ID_START + number, kind, name))
    return PartitionSpec(*fields)


def field_name(wanted: Wanted, columns: frozenset[str]) -> str:
    """Return the name that Iceberg gives a partition field: `ts_day`, `id_bucket_16`, `name_trunc_4`, `country`.

    An underscore is added as long as the name is one of `columns`.
    """
    if wanted.transform == "identity":
        return wanted.column
    kind = "trunc" if wanted.transform == "truncate" else wanted.transform
    name = f"{wanted.column}_{kind}" if wanted.argument is None else f"{wanted.column}_{kind}_{wanted.argument}"
    while name in columns:
        name += "_"
    return name


def layout_properties(table: TableSpec) -> dict[str, str]:
    """Return the properties of a new table with a partitioning of its own, none for other tables."""
    if not table.lake_partition:
        return {}
    return {LAYOUT: _named(table), SORTED: "false"}


def wanted_order(table: TableSpec, schema: Schema) -> SortOrder:
    """Return the sort order of a new table: none where files hold rows of several buckets, or no offsets."""
    return UNSORTED_SORT_ORDER if table.lake_partition else sort_order(schema)


def manages_layout(table: Table) -> bool:
    """Return whether the configuration has given the table a partitioning: then it may hold files of older specs."""
    return LAYOUT in table.metadata.properties


def check_layout(table: Table, spec: TableSpec) -> None:
    """Refuse a table whose layout neither the present nor an earlier configuration asked for.

    One that had a partitioning of its own keeps files of it, which the source's clients could not find. As long as it
    has no file in any snapshot, it may still become theirs.

    Raises:
        SchemaMismatchError: says what differs.
    """
    if spec.union_read and manages_layout(table) and _has_files(table):
        message = (
            f"{spec.path}: mode: expected `mirror`, because the lake table has had a partitioning of its own, found "
            "`tier`. The source's clients could not read its files together with the log; they need a new lake table."
        )
        raise SchemaMismatchError(message)
    # A table with a layout of its own is changed to a spec without void fields where it needs one.
    found, expected = _found(table, void=not (spec.lake_partition or manages_layout(table))), _expected(table, spec)
    if found not in (expected, _configured(table, spec)):
        message = f"{spec.path}: the lake table's partitioning does not fit: expected {expected}, found {found}"
        raise SchemaMismatchError(message + _count_hint(spec, expected, found))


def _has_files(table: Table) -> bool:
    """Return whether any snapshot of the table has files, or does not say that it has none."""
    summaries = (snapshot.summary for snapshot in table.metadata.snapshots)
    return any(summary is None or summary["total-data-files"] != "0" for summary in summaries)


@dataclass(frozen=True, slots=True)
class LayoutChange:
    """An update of a table's partitioning, not yet sent."""

    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]


def layout_change(table: Table, spec: TableSpec) -> LayoutChange | None:
    """Return what changes a table's partitioning to the configured one, None where nothing has to change.

    Files of the specs before stay as they are. It fails if the table has another layout or head by then, so a start
    that was overtaken changes nothing.

    Raises:
        SchemaMismatchError: a column is missing or its type does not fit the transform.
    """
    metadata = table.metadata
    if not (spec.lake_partition or manages_layout(table)):
        return None
    by_offset = not spec.lake_partition and has_system_columns(table)
    named = {LAYOUT: _named(spec), SORTED: "true" if by_offset else "false"}
    # Only what is written by partition can have a void field.
    same_layout = _found(table, void=not spec.lake_partition) == _expected(table, spec)
    if same_layout and not spec.union_read and named.items() <= metadata.properties.items():
        return None
    updates: list[TableUpdate] = [SetPropertiesUpdate(updates=named)]
    if spec.union_read:
        # `check_layout` has seen that it has no file of another layout: from now on it is as one that never had any.
        updates = [RemovePropertiesUpdate(removals=[name for name in named if name in metadata.properties])]
    if not same_layout:
        updates += _spec_updates(table, wanted_spec(spec, table.schema()))
    updates += _order_updates(table, spec)
    requirements: tuple[TableRequirement, ...] = (
        AssertLastAssignedPartitionId.model_validate({"last-assigned-partition-id": metadata.last_partition_id}),
        AssertDefaultSpecId.model_validate({"default-spec-id": metadata.default_spec_id}),
        main_is(metadata.current_snapshot_id),
    )
    return LayoutChange(requirements, tuple(updates))


def layout_fields(table: Table) -> tuple[LayoutField, ...]:
    """Return the present spec's fields as workers need them."""
    schema = table.schema()
    fields = []
    for field in table.spec().fields:
        if isinstance(field.transform, VoidTransform):
            # What is left of a field that was removed while the table had format version 1.
            fields.append(LayoutField(field.name, "void", None, "", ""))
            continue
        source = schema.find_field(field.source_id)
        parts = _TEXT.fullmatch(str(field.transform))
        assert parts is not None  # noqa: S101 - `check_layout` has refused other transforms
        argument = None if parts["argument"] is None else int(parts["argument"])
        fields.append(LayoutField(field.name, parts["name"], argument, source.name, str(source.field_type)))
    return tuple(fields)


def _resolve(table: TableSpec, schema: Schema, wanted: Wanted) -> tuple[int, Transform[Any, Any]]:
    """Return the id of a field's column, and its transform.

    Raises:
        SchemaMismatchError: as of `wanted_spec`.
    """
    source = next((field for field in schema.fields if field.name == wanted.column), None)
    if source is None:
        _refuse(table, wanted, "a column of the lake table", f"no column {wanted.column!r}")
    argument = wanted.argument or 0
    if wanted.transform == "bucket":
        kind: Transform[Any, Any] = BucketTransform(argument)
    elif wanted.transform == "truncate":
        kind = TruncateTransform(argument)
    else:
        kind = _PLAIN[wanted.transform]
    if not kind.can_transform(source.field_type):
        _refuse(table, wanted, "a column of a type that Iceberg's transform takes", f"type {source.field_type}")
    if isinstance(source.field_type, DoubleType):
        # pyiceberg reads the doubles of manifests as floats (decisions.md): values would change when it merges them.
        _refuse(table, wanted, "a column of another type than double, whose values a manifest cannot keep", "double")
    if wanted.transform == "truncate" and isinstance(source.field_type, DecimalType):
        # With a larger one no negative number fits; what else has too many digits is refused with its row.
        largest = 10**source.field_type.precision - 1
        if argument > largest:
            expected = f"a width from 1 to {largest}, as the column is a {source.field_type}"
            _refuse(table, wanted, expected, str(argument))
    return source.field_id, kind


def _refuse(table: TableSpec, wanted: Wanted, expected: str, found: str) -> NoReturn:
    message = f"{table.section}.lake_partition: expected for {str(wanted)!r} {expected}, found {found}"
    raise SchemaMismatchError(message)


def _count_hint(spec: TableSpec, expected: list[_Pair], found: list[_Pair]) -> str:
    """Return what to do where the source's count of buckets alone was changed, else nothing."""
    keys = [(column, "bucket") for column in spec.bucket_key]
    other = set(expected).symmetric_difference(found)
    if len(expected) != len(found) or [(column, kind.partition("[")[0]) for column, kind in other] != keys * 2:
        return ""
    return (
        ". The source's count of buckets was changed, and the lake table keeps its own. Set the count back in the "
        f'source, or mirror the table into a new lake table (`mode = "mirror"` in [{spec.section}]): set the '
        "present one aside and accept that with `lakeward tables accept`; then `lakeward tables resume`"
    )


def _named(table: TableSpec) -> str:
    return msgspec.json.encode([str(one) for one in table.lake_partition]).decode("utf-8")


def _expected(table: Table, spec: TableSpec) -> list[_Pair]:
    return _pairs(spec.lake_partition) if spec.lake_partition else _source_layout(table, spec)


def _source_layout(table: Table, spec: TableSpec) -> list[_Pair]:
    return [*partition_layout(spec, system_columns=has_system_columns(table))]


def _configured(table: Table, spec: TableSpec) -> list[_Pair]:
    """Return the layout that an earlier configuration asked for; without a word of it, the source's own."""
    text = table.metadata.properties.get(LAYOUT, "[]")
    fields = tuple(Wanted.parse(one) for one in _NAMES.decode(text))
    return _pairs(fields) if fields else _source_layout(table, spec)


def _found(table: Table, *, void: bool) -> list[_Pair]:
    """Return the present layout, with or without its void fields: null for each file, they divide nothing."""
    schema = table.schema()
    fields = [field for field in table.spec().fields if void or not isinstance(field.transform, VoidTransform)]
    return [(schema.find_column_name(field.source_id), str(field.transform)) for field in fields]


def _pairs(fields: tuple[Wanted, ...]) -> list[_Pair]:
    names = ((one, f"{one.transform}[{one.argument}]") for one in fields)
    return [(one.column, one.transform if one.argument is None else text) for one, text in names]


def _spec_updates(table: Table, wanted: PartitionSpec) -> list[TableUpdate]:
    """Return the updates that make a spec the default: one that the table has, or a new one.

    A field that some spec has had keeps its id, as Iceberg's own updates do.
    """
    specs = table.metadata.partition_specs
    known = {_identity(field): field.field_id for spec in specs for field in spec.fields}
    next_id = max(table.metadata.last_partition_id or 0, PARTITION_FIELD_ID_START - 1) + 1
    fields: list[PartitionField] = []
    for field in wanted.fields:
        field_id = known.get(_identity(field), next_id)
        next_id += field_id == next_id
        fields.append(PartitionField(field.source_id, field_id, field.transform, field.name))
    for spec in specs:
        if spec.fields == tuple(fields):
            return [SetDefaultSpecUpdate.model_validate({"spec-id": spec.spec_id})]
    added = PartitionSpec(*fields, spec_id=max(spec.spec_id for spec in specs) + 1)
    return [AddPartitionSpecUpdate(spec=added), SetDefaultSpecUpdate.model_validate({"spec-id": -1})]


def _identity(field: PartitionField) -> tuple[int, str, str]:
    return field.source_id, str(field.transform), field.name


def _order_updates(table: Table, spec: TableSpec) -> list[TableUpdate]:
    """Return the updates that drop the order by offset, or bring it back; any other order is somebody's wish."""
    schema = table.schema()
    unsorted, by_offset = UNSORTED_SORT_ORDER, sort_order(schema)
    before, wanted = (by_offset, unsorted) if spec.lake_partition else (unsorted, by_offset)
    if before.fields == wanted.fields or table.sort_order().fields != before.fields:
        return []
    orders = table.metadata.sort_orders
    for order in orders:
        if order.fields == wanted.fields:
            return [SetDefaultSortOrderUpdate.model_validate({"sort-order-id": order.order_id})]
    order_id = max((order.order_id for order in orders), default=0) + 1 if wanted.fields else unsorted.order_id
    added = SortOrder(*wanted.fields, order_id=order_id)
    set_default = SetDefaultSortOrderUpdate.model_validate({"sort-order-id": order_id})
    return [AddSortOrderUpdate.model_validate({"sort-order": added}), set_default]
