"""Which partitions of the present layout may have rows in a data file of an older spec, by the file's bounds.

Without that, each partition's writer would look for its keys in each file that was there before the layout changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakeward_lake_iceberg.bounds import range_of
from lakeward_lake_iceberg.schema import arrow_schema
from lakeward_lake_iceberg.task import OlderFile, Range
from lakeward_lake_iceberg.transforms import transform, values_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

    from lakeward_lake_iceberg.detail import Value
    from lakeward_lake_iceberg.task import LayoutField

_IN_ORDER = frozenset({"identity", "year", "month", "day", "hour", "truncate"})


def with_ranges(
    table: Table, layout: tuple[LayoutField, ...], older: Sequence[tuple[DataFile, OlderFile]]
) -> tuple[OlderFile, ...]:
    """Return files of older specs with the partition values that each may hold.

    `layout` is the present one; empty for the source's own, of which nothing is known here. Each file is given as its
    manifest and as the task names it.
    """
    columns = [_ranges(table, field, [file for file, _ in older]) for field in layout]
    return tuple(
        OlderFile(one.file, one.spec_id, one.partition, tuple(column[place] for column in columns), one.shared_deletes)
        for place, (_, one) in enumerate(older)
    )


def _ranges(table: Table, field: LayoutField, files: Sequence[DataFile]) -> list[Range | None]:
    """Return the range of one field's values in each file; a transform that keeps no order has none."""
    if field.transform not in _IN_ORDER:
        return [None] * len(files)
    schema = table.schema()
    column = schema.find_field(field.column)
    kind = arrow_schema(schema).field(field.column).type
    bounds = [[(one or {}).get(column.field_id) for one in (file.lower_bounds, file.upper_bounds)] for file in files]
    held = [range_of(field.kind, *pair) or (None, None) for pair in bounds]
    lower, upper = (_transformed(field, kind, list(values)) for values in zip(*held, strict=True))
    nulls = [(file.null_value_counts or {}).get(column.field_id) != 0 for file in files]
    return [_range(*one) for one in zip(lower, upper, nulls, strict=True)]


def _range(lower: Value, upper: Value, nulls: bool) -> Range | None:
    return None if lower is None or upper is None else Range(lower, upper, nulls)


def _transformed(field: LayoutField, kind: pa.DataType, values: list[Any]) -> list[Value]:
    if pa.types.is_temporal(kind):
        width = pa.int32() if kind.bit_width == pa.int32().bit_width else pa.int64()
        return values_of(transform(field.transform, field.argument, pa.array(values, width).view(kind)))
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind)):
        return [None] * len(values)
    found = values_of(transform(field.transform, field.argument, pa.array(values, kind)))
    if pa.types.is_string(kind):
        return found
    # The smallest numbers wrap around when they are truncated: then bounds say nothing of the values between them.
    return [None if value is None or value > bound else value for value, bound in zip(found, values, strict=True)]
