"""Values of the two sides in one form: how they are cast, when two are the same, and how one is shown.

Two values are the same if they are of the same bits, with two exceptions: any NaN is the same as any other, and a map
has no order. What Lakeward writes is rounded in one way only: times finer than the lake's are rounded down.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.errors import short_repr

if TYPE_CHECKING:
    import numpy.typing as npt

    Mask = npt.NDArray[np.bool_]

types = pa.types
_NANOS_A_MICRO = 1000
_BITS = {64: pa.int64(), 32: pa.int32(), 16: pa.int16()}


def plain_type(kind: pa.DataType) -> pa.DataType:  # noqa: PLR0911 - an answer for each kind
    """Return the type in which values of a type of the lake are compared.

    There is one form of text, bytes and lists, and no dictionaries. Times with a zone are compared as the same moments
    in UTC without one: Python would look the zone up, and a machine need not have a database of zones.
    """
    if types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if types.is_string(kind) or types.is_string_view(kind):
        return pa.large_string()
    if types.is_binary(kind) or types.is_binary_view(kind) or types.is_fixed_size_binary(kind):
        return pa.large_binary()
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.large_list(plain_type(kind.value_type))
    if types.is_struct(kind):
        return pa.struct([pa.field(child.name, plain_type(child.type)) for child in kind])
    if types.is_timestamp(kind):
        return pa.timestamp(kind.unit)
    if types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    return kind


def cast_plain(column: pa.Array, kind: pa.DataType, *, exact: bool = False) -> pa.Array:
    """Cast a column of either side to the type in which it is compared: what `plain_type` gave for the lake's column.

    If `exact`, times that are finer than the lake's are refused: two keys must not become one.

    Raises:
        pa.ArrowInvalid: a value does not fit.
    """
    if column.type.equals(kind):
        return column
    if exact:
        return pc.cast(column, kind)
    return pc.cast(_floored(column, kind), options=pc.CastOptions(kind, allow_time_truncate=True))


def _floored(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Round timestamps of nanoseconds down, at every depth: Arrow's cast would cut those before 1970 upwards.

    Those that are nanoseconds in the type that is wanted stay as they are.
    """
    kind = column.type
    if "timestamp[ns" not in str(kind) or _is_fine(wanted):
        return column
    if types.is_dictionary(kind):
        return _floored(column.dictionary_decode(), wanted)
    if types.is_struct(kind):
        inner = {child.name: child.type for child in wanted} if types.is_struct(wanted) else {}
        columns = [_floored(column.field(place), inner.get(child.name, child.type)) for place, child in enumerate(kind)]
        return pa.StructArray.from_arrays(columns, [child.name for child in kind], mask=column.is_null())
    if types.is_map(kind):
        pairs = {"key": wanted.key_type, "value": wanted.item_type} if types.is_map(wanted) else {}
        entries = pa.StructArray.from_arrays([column.keys, column.items], ["key", "value"])
        entries = _floored(entries, pa.struct(list(pairs.items())))
        return _with_children(column, pa.map_(*(child.type for child in entries.type)), entries)
    if types.is_nested(kind):
        values = _floored(column.values, wanted.value_type if types.is_large_list(wanted) else column.values.type)
        sized = pa.list_(values.type, kind.list_size) if types.is_fixed_size_list(kind) else pa.list_(values.type)
        return _with_children(column, pa.large_list(values.type) if types.is_large_list(kind) else sized, values)
    nanos = column.view(pa.int64())
    micros = pc.divide(nanos, _NANOS_A_MICRO)  # towards zero
    above = pc.greater(pc.multiply(micros, _NANOS_A_MICRO), nanos)
    return pc.subtract(micros, above.cast(pa.int64())).view(pa.timestamp("us", kind.tz))


def _is_fine(kind: pa.DataType) -> bool:
    return bool(types.is_timestamp(kind) and kind.unit == "ns")


def _with_children(column: pa.Array, kind: pa.DataType, values: pa.Array) -> pa.Array:
    own = column.buffers()[: 1 if types.is_fixed_size_list(kind) else 2]
    return pa.Array.from_buffers(kind, len(column), own, column.null_count, column.offset, children=[values])


def same_values(one: pa.Array, other: pa.Array) -> Mask:
    """Return row by row whether two columns of one type and length have the same values."""
    if types.is_nested(one.type):
        # To Arrow 0.0 and -0.0 are equal.
        if one.equals(other) and not any(kind in str(one.type) for kind in ("float", "double")):
            return np.ones(len(one), dtype=np.bool_)
        pairs = zip(one.to_pylist(), other.to_pylist(), strict=True)
        return np.fromiter((_same(mine, theirs) for mine, theirs in pairs), dtype=np.bool_, count=len(one))
    both_null = pc.and_(pc.is_null(one), pc.is_null(other))
    if types.is_null(one.type):
        return np.ones(len(one), dtype=np.bool_)
    if types.is_floating(one.type):
        bits = _BITS[one.type.bit_width]
        equal = pc.or_kleene(pc.equal(one.view(bits), other.view(bits)), pc.and_(pc.is_nan(one), pc.is_nan(other)))
    else:
        equal = pc.equal(one, other)
    return np.asarray(pc.or_(pc.fill_null(equal, False), both_null))


def comparable(column: pa.Array) -> pa.Array:
    """Return one value for each row: two rows have equal ones exactly if `same_values` finds them the same.

    The column is of a type that `plain_type` gave. Numbers with a fraction become their bits, nested values become
    text.
    """
    if types.is_floating(column.type):
        nan = pa.scalar(math.nan, column.type)
        return pc.if_else(pc.is_nan(column), nan, column).view(_BITS[column.type.bit_width])
    if types.is_nested(column.type):
        return pa.array(
            [None if value is None else repr(_ordered(value)) for value in column.to_pylist()], pa.large_string()
        )
    return column


def _ordered(value: Any) -> Any:  # noqa: ANN401 - values of any type
    """Return a nested value whose maps are in one order; two are the same if their text is."""
    if isinstance(value, dict):
        return {name: _ordered(one) for name, one in value.items()}
    if isinstance(value, list):
        ordered = [_ordered(one) for one in value]
        return sorted(ordered, key=repr) if all(isinstance(one, tuple) for one in value) else ordered
    return tuple(map(_ordered, value)) if isinstance(value, tuple) else value


def shown(value: pa.Scalar) -> str:
    """Return a value as people read it, shortened where it is long."""
    plain = value.as_py()
    if plain is None:
        return "null"
    return short_repr(plain) if isinstance(plain, str | bytes | list | dict | tuple) else str(plain)


def _same(one: Any, other: Any) -> bool:  # noqa: ANN401, PLR0911 - values of any type, and an answer for each kind
    if one is None or other is None:
        return one is other
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return one == other and math.copysign(1.0, one) == math.copysign(1.0, other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        if len(one) != len(other):
            return False
        if all(isinstance(each, tuple) for each in (*one, *other)):  # entries of a map
            one, other = sorted(one, key=repr), sorted(other, key=repr)
        return all(_same(mine, theirs) for mine, theirs in zip(one, other, strict=True))
    return bool(one == other)
