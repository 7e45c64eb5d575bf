"""Reads data files in batches, with timestamps of any year.

Where one column has nanoseconds, files have all timestamps as INT96, and other engines may write them so. Arrow reads
INT96 in one unit: nanoseconds have no years before 1678 and after 2261, and become others; microseconds lose digits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakeward_lake_paimon.kinds import Kind


def read_batches(
    source: pa.NativeFile, kinds: Mapping[str, Kind], rows: int, buffer_bytes: int = 0
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, at most so many in a batch.

    `kinds` are the types of its columns; what others may be there have no times. Of each column `buffer_bytes` are read
    at once; 0: all of a row group.
    """
    coarse = _batches(source, "us", rows, buffer_bytes)
    fine = {name: kind for name, kind in kinds.items() if kind.has_nanoseconds}
    if not fine:
        yield from coarse
        return
    # The same columns and rows twice: the batches end at the same rows.
    for one, other in zip(coarse, _batches(source, "ns", rows, buffer_bytes), strict=True):
        pairs = zip(one.schema.names, one.columns, other.columns, strict=True)
        columns = [_chosen(in_us, in_ns, fine[name]) if name in fine else in_us for name, in_us, in_ns in pairs]
        yield pa.RecordBatch.from_arrays(columns, names=one.schema.names)


def _batches(source: pa.NativeFile, unit: str, rows: int, buffer_bytes: int) -> Iterator[pa.RecordBatch]:
    # What is read ahead is a row group with all its columns, whatever the buffers are.
    ahead = not buffer_bytes
    file = pq.ParquetFile(source, buffer_size=buffer_bytes, pre_buffer=ahead, coerce_int96_timestamp_unit=unit)
    yield from file.iter_batches(rows)


def _chosen(in_us: pa.Array, in_ns: pa.Array, kind: Kind) -> pa.Array:
    """Return a column of which some times have nanoseconds: those from the one array, all others from the other."""
    if not kind.has_nanoseconds:
        return in_us
    if kind.is_timestamp:
        return in_ns
    if kind.root == "ROW":
        parts = [_chosen(in_us.field(place), in_ns.field(place), field.kind) for place, field in enumerate(kind.fields)]
        fields = [pa.field(one.name, part.type) for one, part in zip(in_us.type, parts, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=in_us.is_null())
    if kind.root == "ARRAY":
        values = _chosen(in_us.values, in_ns.values, kind.children[0])
        return _with_children(in_us, pa.list_(pa.field("element", values.type)), values)
    key, value = kind.children
    keys, items = _chosen(in_us.keys, in_ns.keys, key), _chosen(in_us.items, in_ns.items, value)
    made = pa.map_(keys.type, items.type)
    entries = pa.StructArray.from_arrays([keys, items], fields=[made.key_field, made.item_field])
    return _with_children(in_us, made, entries)


def _with_children(array: pa.Array, kind: pa.DataType, values: pa.Array) -> pa.Array:
    """Return a list or a map with other values under the same offsets and nulls."""
    own = array.buffers()[:2]
    return pa.Array.from_buffers(kind, len(array), own, array.null_count, array.offset, children=[values])
