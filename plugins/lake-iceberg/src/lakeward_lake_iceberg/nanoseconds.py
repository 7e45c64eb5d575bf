"""Rounds timestamps of nanoseconds down to the microseconds that Iceberg's tables have, at every depth of a column.

Times of day are no less than zero, so that Arrow's casts, which cut towards zero, are right for them. No time zone is
looked up: a machine need not have a database of them, and none is needed to divide.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

_NANOS_A_MICRO = 1000
types = pa.types


def has_nanoseconds(kind: pa.DataType) -> bool:
    """Return whether a type is, or anywhere contains, a timestamp of nanoseconds."""
    if types.is_dictionary(kind):
        return has_nanoseconds(kind.value_type)
    if types.is_nested(kind):
        return any(has_nanoseconds(kind.field(number).type) for number in range(kind.num_fields))
    return bool(types.is_timestamp(kind) and kind.unit == "ns")


def to_microseconds(array: pa.Array) -> pa.Array:
    """Return the same values with each timestamp of nanoseconds rounded down, towards the past."""
    kind = array.type
    if not has_nanoseconds(kind):
        return array
    if types.is_dictionary(kind):
        return to_microseconds(array.dictionary_decode())
    if types.is_struct(kind):
        columns = [to_microseconds(array.field(number)) for number in range(kind.num_fields)]
        fields = [kind.field(number).with_type(column.type) for number, column in enumerate(columns)]
        return pa.StructArray.from_arrays(columns, fields=fields, mask=array.is_null() if array.null_count else None)
    if types.is_map(kind):
        return _of_map(array)
    if types.is_nested(kind):
        return _with_values(array, to_microseconds(array.values))
    nanos = np.asarray(array.view(pa.int64()).fill_null(0))
    micros = pa.array(np.floor_divide(nanos, _NANOS_A_MICRO), mask=np.asarray(array.is_null()))
    return micros.view(pa.timestamp("us", kind.tz))


def _of_map(array: pa.Array) -> pa.Array:
    keys, items = to_microseconds(array.keys), to_microseconds(array.items)
    fields = [array.type.key_field.with_type(keys.type), array.type.item_field.with_type(items.type)]
    return _with_values(array, pa.StructArray.from_arrays([keys, items], fields=fields))


def _with_values(array: pa.Array, values: pa.Array) -> pa.Array:
    """Return a list or a map with other values under the same offsets."""
    kind = array.type
    if types.is_map(kind):
        result = pa.map_(*(values.type.field(number) for number in range(2)), keys_sorted=kind.keys_sorted)
    else:
        make = pa.large_list if types.is_large_list(kind) else pa.list_
        size = [kind.list_size] if types.is_fixed_size_list(kind) else []
        result = make(kind.value_field.with_type(values.type), *size)
    own = array.buffers()[: 1 if types.is_fixed_size_list(kind) else 2]
    return pa.Array.from_buffers(result, len(array), own, array.null_count, array.offset, children=[values])
