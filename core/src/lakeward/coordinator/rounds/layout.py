"""Resolves the lake layout of a table: whether its partitioning fits its columns, and how rows get to their writers.

| table | route | why |
|---|---|---|
| append-only | `hash` of partition and bucket | rows of a partition are spread by bucket (but see `gathering`) |
| primary key, each partition column in the key | `hash` of the partition | a key never changes its partition |
| primary key, a partition column outside the key | `none` | all changes of a key stay in order, in one writer |
| without a `lake_partition` | `none` | the reader is the writer |
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward.coordinator.rounds.chosen_columns import check_columns_wanted
from lakeward.errors import ConfigError, SchemaMismatchError
from lakeward.model.near_names import did_you_mean
from lakeward.model.partitioning import ExchangeMode, PartitionField
from lakeward.model.settings import DYNAMIC_ALLOCATION
from lakeward.model.splits import SnapshotSplit
from lakeward.model.tables import RESERVED_COLUMNS
from lakeward.ports import BucketCountsLake, LateRowsLake

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lakeward.model.partitioning import TransformName
    from lakeward.model.settings import TableSettings
    from lakeward.model.splits import Split
    from lakeward.model.tables import BucketState, TableSpec
    from lakeward.ports import Lake

_TIMES = frozenset({"year", "month", "day", "hour"})
types = pa.types


@dataclass(frozen=True, slots=True)
class LakeLayout:
    """How one table's rows lie in the lake, and how they get there. Without fields, the layout is the source's own."""

    fields: tuple[PartitionField, ...] = ()
    exchange: ExchangeMode = ExchangeMode.NONE
    route_by_bucket: bool = False
    """With `hash`: rows are divided by partition and bucket, not by partition alone."""
    may_gather: bool = False
    """Whether a round with little in each bucket may divide them by partition alone."""
    reason: str = "the layout of the source"
    """Why it is this route, in words."""

    @property
    def names(self) -> tuple[str, ...]:
        """The fields in their text form."""
        return tuple(map(str, self.fields))

    @property
    def message(self) -> str:
        """The layout in words."""
        if not self.fields:
            return self.reason
        by = " and bucket" if self.route_by_bucket else ""
        route = f"hash by partition{by}" if self.exchange is ExchangeMode.HASH else "none"
        return f"{', '.join(self.names)}; exchange {route}: {self.reason}"

    def gathered(self) -> LakeLayout:
        """Return the layout of a round in which the rows of all buckets go to the one writer of their partition."""
        return replace(self, route_by_bucket=False, reason=f"{self.reason}, and each bucket has few rows")


SOURCE_LAYOUT = LakeLayout()


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The layout of one table for people and scripts; `error` says why it cannot have the one that is configured."""

    table: str
    lake_partition: tuple[str, ...]
    exchange: str
    """`none` or `hash`; with an error, what is configured."""
    route_by_bucket: bool
    message: str
    error: str


def table_layout(table: TableSpec, rules: TableSettings, *, gangs: bool = True) -> TableLayout:
    """Describe a table's layout, or why it is impossible. Arguments as of `resolve_layout`."""
    path = str(table.path)
    try:
        layout = resolve_layout(table, rules, gangs=gangs)
    except ConfigError as error:
        message = f"[{error.code}] {error}"
        return TableLayout(path, rules.lake_partition, rules.exchange, False, message, str(error))
    return TableLayout(path, layout.names, layout.exchange.value, layout.route_by_bucket, layout.message, "")


def resolve_layout(table: TableSpec, rules: TableSettings, *, gangs: bool = True) -> LakeLayout:
    """Resolve a table's layout and route.

    `table` is as the source describes it now. `gangs`: Spark can start the subtasks of a round together, as an exchange
    needs.

    Raises:
        ConfigError: what is configured is impossible; names the key, the table and the reason.
    """
    check_columns_wanted(table, rules.columns)
    if not rules.lake_partition:
        if rules.exchange == "hash":
            raise ConfigError(_key(table, "exchange"), "`auto` or `none` without a `lake_partition`", rules.exchange)
        return SOURCE_LAYOUT
    if rules.mode == "tier":
        raise ConfigError(_key(table, "mode"), "`mirror`, because the table has a `lake_partition`", rules.mode)
    fields = tuple(map(PartitionField.parse, rules.lake_partition))
    _check_fields(table, fields)
    layout = _route(table, rules, fields)
    if layout.exchange is ExchangeMode.HASH and not gangs:
        expected = f"`none`, because `{DYNAMIC_ALLOCATION}` is true: then Spark starts no subtasks together"
        hint = f'Or set "{DYNAMIC_ALLOCATION}" = "false" in [spark.conf].'
        raise ConfigError(_key(table, "exchange"), expected, rules.exchange, hint)
    return layout


def check_splits(table: TableSpec, layout: LakeLayout, splits: Iterable[Split]) -> None:
    """Check that the splits of a round can be read for its route.

    Raises:
        ConfigError: with an exchange, a snapshot is read live from the server: not in the same order a second time.
    """
    live = [split for split in splits if isinstance(split, SnapshotSplit) and split.live]
    if layout.exchange is ExchangeMode.HASH and live:
        expected = f"`none`, because the snapshot of bucket {live[0].bucket} is read live from the server"
        hint = (
            "After a failure, such a snapshot does not come in the same order again, which an exchange needs; "
            f"without the key there is one, because {layout.reason}."
        )
        raise ConfigError(_key(table, "exchange"), expected, layout.exchange.value, hint)


def check_late_rows(table: TableSpec, lake: Lake) -> None:
    """Check that the lake can take rows of partitions that the source has dropped, if the source keeps any.

    With a `lake_partition` each row's partition is computed in any case.

    Raises:
        SchemaMismatchError: it cannot; says what to do.
    """
    if not table.late_rows or table.lake_partition or isinstance(lake, LateRowsLake):
        return
    columns = ", ".join(f'"{name}"' for name in table.partition_keys)
    message = (
        f"{table.path}: expected rows of the source's present partitions, found that the source keeps late rows of "
        f"dropped ones too, and the lake {lake.name!r} takes them where it has a partitioning of its own alone: set "
        f'`mode = "mirror"` and `lake_partition = [{columns}]` in [{table.section}], or leave the table out'
    )
    raise SchemaMismatchError(message)


def with_bucket_counts(table: TableSpec, buckets: Iterable[BucketState], lake: Lake) -> TableSpec:
    """Return a table with the counts of buckets that its partitions have; refuse those that the lake cannot have.

    The lake's own layout divides a partition by the source's function of the bucket key, with one count for all of
    them, or, in some lakes, with a count of each one. Rows of a partition that the source divides by another count
    would lie where the lake's readers, who compute the bucket of a key, do not look. A table without a bucket key, as
    each mirrored one is, is not divided by such a function. A table without partitions has another count than its
    description where that was changed between the two answers of the source.

    Raises:
        SchemaMismatchError: a partition has another count; says what to do.
    """
    if not table.bucket_key:
        return table
    counts = Counter(state.partition for state in buckets)
    other = sorted(partition for partition, count in counts.items() if count != table.buckets)
    if table.partition_keys and isinstance(lake, BucketCountsLake):
        return replace(table, bucket_counts=tuple((partition, counts[partition]) for partition in other if partition))
    if other:
        first, more = other[0], f" and {len(other) - 1} more" if len(other) > 1 else ""
        where, back = "", "Set the count back in the source"
        if first:
            where, back = f" partition {'/'.join(first)}{more}:", "Drop the partitions with another count"
        message = (
            f"{table.path}:{where} expected {table.buckets} buckets, the count by which "
            f"the lake divides column {table.bucket_key[0]!r}, found {counts[first]}: the source's count was changed. "
            f"The lake's readers would miss rows. {back}, or "
            f'mirror the table into a new lake table, where counts may differ (`mode = "mirror"` in '
            f"[{table.section}]): set the present one aside and accept that with `lakeward tables accept`; then "
            "`lakeward tables resume`"
        )
        raise SchemaMismatchError(message)
    return table


def _route(table: TableSpec, rules: TableSettings, fields: tuple[PartitionField, ...]) -> LakeLayout:
    outside = table.outside_key(fields)
    if outside:
        why = f"column {outside[0]!r} is outside the primary key, and the changes of a key stay in one writer"
        if rules.exchange == "hash":
            raise ConfigError(_key(table, "exchange"), f"`auto` or `none`: {why}", rules.exchange)
        if not table.before_images:
            expected = f"columns of the primary key ({', '.join(table.primary_key)})"
            hint = "The table's changelog has no rows from before an update: the old partition would be unknown."
            raise ConfigError(_key(table, "lake_partition"), expected, outside[0], hint)
        return LakeLayout(fields, reason=why)
    if rules.exchange == "none":
        return LakeLayout(fields, reason="it is configured")
    if table.has_primary_key:
        reason = "the partition columns are in the primary key, so a key never changes its partition"
        return LakeLayout(fields, ExchangeMode.HASH, reason=reason)
    gathers, reason = rules.exchange == "auto", "the table is append-only"
    return LakeLayout(fields, ExchangeMode.HASH, route_by_bucket=True, may_gather=gathers, reason=reason)


def _check_fields(table: TableSpec, fields: tuple[PartitionField, ...]) -> None:
    key = _key(table, "lake_partition")
    seen: dict[tuple[str, str], PartitionField] = {}
    for field in fields:
        if field.column in RESERVED_COLUMNS:
            raise ConfigError(key, "columns of the table", field.column, "That column is Lakeward's own.")
        place = table.schema.get_field_index(field.column)
        if place < 0:
            question = did_you_mean(field.column, table.schema.names)
            hint = f"{question} Columns of {table.path}: {', '.join(table.schema.names)}.".lstrip()
            if field.column.partition(".")[0] in table.schema.names:
                hint = "A field within a struct cannot be partitioned by."
            raise ConfigError(key, "columns of the table", field.column, hint)
        column = table.schema.field(place)
        expected, fits = _FITS[field.transform]
        if not fits(column.type):
            found = f"{column.name} ({column.type})"
            raise ConfigError(key, f"for {field.transform} {expected}", found, f"In {str(field)!r}.")
        _check_width(key, field, column)
        group = "a time" if field.transform in _TIMES else field.transform
        if (other := seen.setdefault((group, field.column), field)) is not field:
            hint = f"{str(other)!r} is such a field already: a column may be in one field of each kind."
            raise ConfigError(key, f"{group} transform of {field.column!r} once", str(field), hint)


def _check_width(key: str, field: PartitionField, column: pa.Field) -> None:
    """Refuse a width that rounds each negative number down to one with more digits than its column has."""
    if field.transform != "truncate" or field.argument is None or not types.is_decimal(column.type):
        return
    digits: int = column.type.precision
    largest = 10**digits - 1
    if field.argument > largest:
        expected = f"for truncate of decimals of {digits} digits a width from 1 to {largest}"
        raise ConfigError(key, expected, f"{column.name} ({column.type})", f"In {str(field)!r}.")


def _key(table: TableSpec, name: str) -> str:
    return f"{table.section}.{name}"


def _has_bucket(kind: pa.DataType) -> bool:
    return not any((types.is_nested(kind), types.is_boolean(kind), types.is_floating(kind), types.is_null(kind)))


def _has_equality(kind: pa.DataType) -> bool:
    return not (types.is_nested(kind) or types.is_floating(kind))


def _has_prefix(kind: pa.DataType) -> bool:
    texts = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary, types.is_fixed_size_binary)
    return types.is_integer(kind) or types.is_decimal(kind) or any(is_text(kind) for is_text in texts)


def _has_date(kind: pa.DataType) -> bool:
    return bool(types.is_date(kind) or types.is_timestamp(kind))


_DATE = ("a date or timestamp", _has_date)
_FITS: Mapping[TransformName, tuple[str, Callable[[pa.DataType], bool]]] = {
    "identity": ("a column that is no floating-point number, list, map or struct", _has_equality),
    "year": _DATE,
    "month": _DATE,
    "day": _DATE,
    "hour": ("a timestamp", types.is_timestamp),
    "bucket": ("a column of whole numbers, decimals, dates, times, texts or bytes", _has_bucket),
    "truncate": ("a column of whole numbers, decimals, texts or bytes", _has_prefix),
}
