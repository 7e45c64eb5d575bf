"""The values of a file's fields as Iceberg stores and compares them; pyiceberg and pyarrow compute all of them."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_bytes
from pyiceberg.transforms import TruncateTransform
from pyiceberg.types import (
    DoubleType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
)
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros, time_to_micros

from lakeward_lake_iceberg.file_rows import with_values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.partitioning import PartitionField
    from pyiceberg.schema import Schema
    from pyiceberg.table.sorting import SortField
    from pyiceberg.types import IcebergType

UNKNOWN = object()
_INT_BYTES = 4
_BITS = {32: pa.int32(), 64: pa.int64()}
"""Whole numbers as wide as a float: arrays of them tell -0.0 from 0.0."""


@dataclass(frozen=True, slots=True)
class Primitive:
    """A primitive field. `places` lead to it from the columns of a row; `repeated` if it is in a list or a map."""

    name: str
    places: tuple[int, ...]
    field: NestedField
    repeated: bool = False


def primitives(schema: Schema) -> list[Primitive]:
    """Return each primitive field, at any depth."""
    return [one for number, top in enumerate(schema.fields) for one in _within((number,), "", top)]


def _within(places: tuple[int, ...], prefix: str, top: NestedField, *, repeated: bool = False) -> Iterator[Primitive]:
    kind, name = top.field_type, f"{prefix}{top.name}"
    inner: tuple[NestedField, ...] = ()
    if isinstance(kind, PrimitiveType):
        yield Primitive(name, places, top, repeated)
    elif isinstance(kind, StructType):
        inner = kind.fields
    elif isinstance(kind, ListType):
        inner, repeated = (kind.element_field,), True
    elif isinstance(kind, MapType):
        inner, repeated = (kind.key_field, kind.value_field), True
    for number, one in enumerate(inner):
        yield from _within((*places, number), f"{name}.", one, repeated=repeated)


def values_at(batch: pa.RecordBatch, one: Primitive) -> pa.Array:
    """Return the values of a field: one for each row, null in a row that is null; of a repeated one, all there are."""
    array = batch.column(one.places[0])
    for place in one.places[1:]:
        if pa.types.is_map(array.type):
            entries = pa.StructArray.from_arrays([array.keys, array.items], names=["key", "value"])
            array = with_values(array, pa.list_(entries.type), entries).flatten()
        array = pc.struct_field(array, place) if pa.types.is_struct(array.type) else array.flatten()
    return array


def stored(array: pa.Array) -> pa.Array:
    """Return dates and times as the whole numbers that Iceberg stores, other values as they are."""
    if not pa.types.is_temporal(array.type):
        return array
    return array.view(pa.int32() if pa.types.is_date32(array.type) else pa.int64())


def transformed(one: PartitionField | SortField, kind: IcebergType, value: Any) -> Any:  # noqa: ANN401 - of any type
    """Return what a transform makes of a value, `UNKNOWN` where Python cannot tell.

    The least whole numbers wrap around when they are truncated, as in Java.
    """
    try:
        result = plain(one.transform.transform(kind)(value))
    except (OverflowError, ValueError):
        return UNKNOWN  # a time beyond the years of Python
    if isinstance(one.transform, TruncateTransform) and isinstance(result, int):
        half = 1 << (31 if isinstance(kind, IntegerType) else 63)
        return (result + half) % (2 * half) - half
    return result


def plain(value: Any) -> Any:  # noqa: ANN401 - whatever pyiceberg read or computed
    """Return a date or a time as the whole number that Iceberg stores, another value as it is."""
    if isinstance(value, datetime):
        return datetime_to_micros(value)
    if isinstance(value, date):
        return date_to_days(value)
    return time_to_micros(value) if isinstance(value, time) else value


def same_value(kind: IcebergType, expected: Any, found: Any) -> bool:  # noqa: ANN401 - as above
    """Compare two partition values: any NaN is any other one, 0.0 is not -0.0, as Java's readers compare them."""
    if not isinstance(expected, float) or not isinstance(found, float):
        return bool(expected == found)
    if isinstance(kind, DoubleType):
        expected = _nearest_float(expected)  # so does pyiceberg read the doubles of manifests
        found = _nearest_float(found)
    if math.isnan(expected) or math.isnan(found):
        return math.isnan(expected) and math.isnan(found)
    return expected == found and math.copysign(1, expected) == math.copysign(1, found)


def extremes(array: pa.Array) -> list[Any]:
    """Return the smallest and the largest value of an array without NaN, as `ordered` has them; none of no values."""
    both = pc.min_max(array)
    found = [one for one in (both["min"].as_py(), both["max"].as_py()) if one is not None]
    if not found or not pa.types.is_floating(array.type) or 0.0 not in found:
        return found
    bits = pc.unique(array.filter(pc.equal(array, 0.0)).view(_BITS[array.type.bit_width])).to_pylist()
    signs = {-1.0 if one < 0 else 1.0 for one in bits}
    return [end(signs) * 0.0 if one == 0.0 else one for one, end in zip(found, (min, max), strict=True)]


def ordered(value: Any) -> tuple[Any, float]:  # noqa: ANN401 - of any type
    """Return what values are compared by, as Java does: -0.0 is less than 0.0."""
    return value, math.copysign(1.0, value) if isinstance(value, float) else 0.0


def _nearest_float(value: float) -> float:
    return float(pa.scalar(value, pa.float64()).cast(pa.float32(), safe=False).as_py())


def bound(one: NestedField, said: bytes | None) -> Any:  # noqa: ANN401 - depends on the type
    """Decode a bound, None where there is none or where it is no value of its type: readers take it as unknown."""
    kind = one.field_type
    if said is None or not isinstance(kind, PrimitiveType):
        return None
    try:
        if isinstance(kind, LongType) and len(said) == _INT_BYTES:
            kind = IntegerType()  # as it was when the file was written
        return plain(from_bytes(kind, said))
    except (ValueError, struct.error):
        return None
