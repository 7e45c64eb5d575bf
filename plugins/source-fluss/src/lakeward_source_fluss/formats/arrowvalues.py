"""What Arrow logs hold otherwise than it is given on: nanoseconds, and CHAR with its padding."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward_source_fluss.formats.types import Kind

if TYPE_CHECKING:
    from lakeward_source_fluss.formats.types import FlussType

_NANOS_PER_MICRO = 1000


@lru_cache(maxsize=4096)
def differs(kind: FlussType, *, padded: bool) -> bool:
    """Return whether values of a column's type must be changed; if `padded`, its CHAR values may end in zero bytes."""
    if kind.kind is Kind.CHAR:
        return padded
    if kind.children:
        return any(differs(child.type, padded=padded) for child in kind.children)
    return not kind.to_arrow().equals(kind.to_arrow(logged=True))


def settled(array: pa.Array, kind: FlussType, *, padded: bool) -> pa.Array:
    """Return values as they are given on: times in microseconds, cut towards the past, CHAR without its padding.

    The array has whole values, of the type `kind.to_arrow(logged=True)`; as many come back, of the type
    `kind.to_arrow()`. If `padded`, CHAR values may end in zero bytes.
    """
    if not differs(kind, padded=padded):
        return array
    match kind.kind:
        case Kind.CHAR:
            return pc.ascii_rtrim(array, characters="\0")
        case Kind.ROW:
            return _row(array, kind, padded=padded)
        case Kind.ARRAY:
            values = settled(array.values, kind.children[0].type, padded=padded)
            return _listed(array, kind, values)
        case Kind.MAP:
            keys = settled(array.keys, kind.children[0].type, padded=padded)
            items = settled(array.items, kind.children[1].type, padded=padded)
            mapped = kind.to_arrow()
            entries = pa.struct([mapped.key_field, mapped.item_field])
            pairs = pa.Array.from_buffers(entries, len(keys), [None], 0, children=[keys, items])
            return _listed(array, kind, pairs)
        case _:
            return _micros(array, kind)


def raw_arrow_value(array: pa.Array) -> object:
    """Return the bytes of an array's only value, None where they cannot be told; for errors."""
    if pa.types.is_string(array.type):
        array = array.view(pa.binary())
    elif pa.types.is_decimal(array.type):
        array = array.view(pa.binary(array.type.byte_width))
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return None
    return array[0].as_py()


def _micros(array: pa.Array, kind: FlussType) -> pa.Array:
    nanos = pc.fill_null(array.view(pa.int64()), 0).to_numpy()
    micros = pa.array(np.floor_divide(nanos, _NANOS_PER_MICRO))
    if array.null_count:
        micros = pc.if_else(array.is_valid(), micros, pa.scalar(None, pa.int64()))
    return micros.view(kind.to_arrow())


def _row(array: pa.Array, kind: FlussType, *, padded: bool) -> pa.Array:
    wanted = kind.to_arrow()
    children = [settled(array.field(number), child.type, padded=padded) for number, child in enumerate(kind.children)]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(wanted), mask=mask)


def _listed(array: pa.Array, kind: FlussType, values: pa.Array) -> pa.Array:
    """Put other values under the offsets of a list or a map."""
    validity, offsets = array.buffers()[:2]
    return pa.Array.from_buffers(
        kind.to_arrow(), len(array), [validity, offsets], array.null_count, array.offset, children=[values]
    )
