"""From cells (see `rowkernels`) to Arrow arrays, for every type of Fluss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakeward.errors import CorruptFileError, RowError
from lakeward_source_fluss.formats import arraykernels, codes, rowkernels
from lakeward_source_fluss.formats.encodings import Encoding, RowLayout, slot
from lakeward_source_fluss.formats.types import COMPACT_DECIMAL, FlussField, FlussType, Kind, time_unit

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MAX_BYTES = (1 << 31) - 1
"""Arrow's offsets are 32 bits wide."""
MAX_PADDED_BYTES = 1 << 29
"""Fixed-size columns take their width for nulls too, so a hostile width is bounded by itself."""
_DAY_MS = 86_400_000
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_INTEGERS = {Kind.TINYINT: "i1", Kind.SMALLINT: "i2", Kind.INTEGER: "i4", Kind.BIGINT: "i8", Kind.DATE: "i4"}


@dataclass(frozen=True, slots=True)
class Cells:
    """One column's cells, and the bytes that they point into. `origin` names the bytes in errors."""

    data: NDArray[np.uint8]
    first: NDArray[np.int64]
    second: NDArray[np.int32]
    present: NDArray[np.uint8]
    origin: str

    def __len__(self) -> int:
        """Return the number of values."""
        return len(self.first)

    def check(self, bad_row: int, name: str, expected: str) -> None:
        """Raise CorruptFileError unless a kernel's answer is -1."""
        if bad_row >= 0:
            raise CorruptFileError(self.origin, expected, f"a broken value of {name!r} in row {bad_row}")


def read_fields(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64], layout: RowLayout, origin: str
) -> list[Cells]:
    """Read all fields of some rows: one column of cells per field.

    `data` has the bytes that the rows lie in, below 2 GiB; `starts` says where each begins, -1 for a null row, `ends`
    where it ends. `origin` is what `data` is, for errors.

    Raises:
        CorruptFileError: a row does not fit the layout.
    """
    shape = (len(layout.codes), len(starts))
    first, second, present = np.empty(shape, "i8"), np.empty(shape, "i4"), np.empty(shape, "u1")
    bad = rowkernels.read_rows(
        data, starts, ends, layout.codes, layout.widths, layout.nullable, layout.lengths, first, second, present
    )
    if bad >= 0:
        size = int(ends[bad] - starts[bad])
        raise CorruptFileError(origin, f"rows of {shape[0]} fields", f"row {bad} of {size} bytes that do not fit")
    return [Cells(data, first[field], second[field], present[field], origin) for field in range(shape[0])]


def raw_fields(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    fields: tuple[FlussField, ...],
    encoding: Encoding,
) -> dict[str, object]:
    """Return what one row holds in each column, before it is made a value of the column's type; for errors.

    `starts` and `ends` have one number each, of the row in `data`. By column it is an integer (of a timestamp finer
    than milliseconds: its nanoseconds), a float, bytes or None.

    Raises:
        CorruptFileError: the row does not fit the columns.
    """
    layout = RowLayout.of(fields, encoding)
    cells = read_fields(data, starts, ends, layout, "row")
    return {
        field.name: _raw_value(one, field, int(how))
        for field, one, how in zip(fields, cells, layout.codes, strict=True)
    }


def _raw_value(cells: Cells, field: FlussField, code: int) -> object:
    if not cells.present[0]:
        return None
    first, second = int(cells.first[0]), int(cells.second[0])
    if field.type.kind in {Kind.FLOAT, Kind.DOUBLE}:
        return to_array(cells, field, Encoding.COMPACTED)[0].as_py()
    if code in {codes.VARINT_STAMP, codes.FIXED_STAMP}:
        return first * 1_000_000 + second
    if code in {codes.PREFIXED, codes.LISTED, codes.PADDED}:
        return cells.data[first : first + second].tobytes()
    return first


def to_array(cells: Cells, field: FlussField, encoding: Encoding) -> pa.Array:
    """Build the Arrow array of a column, of the type `field.type.to_arrow()`; the row format is for rows inside of it.

    Raises:
        CorruptFileError: nested bytes do not fit the type.
        RowError: a timestamp that its Arrow type cannot hold.
    """
    kind = field.type.kind
    if kind in _INTEGERS:
        return _array(cells, field.type, [pa.py_buffer(cells.first.astype(_INTEGERS[kind]))])
    return _BUILDERS[kind](cells, field, encoding)


def _array(cells: Cells, kind: FlussType, buffers: list[pa.Buffer], children: list[pa.Array] | None = None) -> pa.Array:
    nulls = len(cells) - int(np.count_nonzero(cells.present))
    validity = pa.py_buffer(np.packbits(cells.present, bitorder="little")) if nulls else None
    return pa.Array.from_buffers(kind.to_arrow(), len(cells), [validity, *buffers], nulls, children=children)


def _boolean(cells: Cells, field: FlussField, _encoding: Encoding) -> pa.Array:
    return _array(cells, field.type, [pa.py_buffer(np.packbits(cells.first != 0, bitorder="little"))])


def _float(cells: Cells, field: FlussField, _encoding: Encoding) -> pa.Array:
    bits = cells.first.astype("i4") if field.type.kind is Kind.FLOAT else np.ascontiguousarray(cells.first)
    return _array(cells, field.type, [pa.py_buffer(bits)])


def _time(cells: Cells, field: FlussField, _encoding: Encoding) -> pa.Array:
    if len(cells) and not 0 <= int(cells.first.min()) <= int(cells.first.max()) < _DAY_MS:
        raise CorruptFileError(cells.origin, f"times of a day in {field.name!r}", int(cells.first.max()))
    per_second = _PER_SECOND[time_unit(field.type.precision)]
    values = cells.first // 1000 if per_second == 1 else cells.first * (per_second // 1000)
    return _array(cells, field.type, [pa.py_buffer(values.astype("i4" if per_second <= 1000 else "i8"))])  # noqa: PLR2004 - milliseconds


def _timestamp(cells: Cells, field: FlussField, _encoding: Encoding) -> pa.Array:
    per_second = _PER_SECOND[field.type.to_arrow().unit]
    if per_second == 1:
        return _array(cells, field.type, [pa.py_buffer(cells.first // 1000)])
    per_milli = per_second // 1000
    limit = _MAX_MILLIS // per_milli - 1
    if len(cells) and not -limit <= int(cells.first.min()) <= int(cells.first.max()) <= limit:
        row = int(np.flatnonzero((cells.first < -limit) | (cells.first > limit))[0])
        found = f"{int(cells.first[row])} ms since 1970 in row {row}"
        message = (
            f"{cells.origin}: column {field.name!r}: expected a time that {field.type.to_arrow()} holds, found {found}"
        )
        raise RowError(message)
    values = cells.first * per_milli + cells.second // (1_000_000 // per_milli)
    return _array(cells, field.type, [pa.py_buffer(values)])


_MAX_MILLIS = (1 << 63) - 1


def _decimal(cells: Cells, field: FlussField, _encoding: Encoding) -> pa.Array:
    if field.type.precision <= COMPACT_DECIMAL:
        words = np.empty((len(cells), 2), "i8")
        words[:, 0] = cells.first
        words[:, 1] = cells.first >> 63
        return _array(cells, field.type, [pa.py_buffer(words)])
    out = np.zeros(len(cells) * 16, "u1")
    bad = rowkernels.read_decimals(cells.data, cells.first, cells.second, cells.present, out)
    cells.check(bad, field.name, "decimals of 1 to 16 bytes")
    return _array(cells, field.type, [pa.py_buffer(out)])


def _bytes(cells: Cells, field: FlussField, encoding: Encoding) -> pa.Array:
    if field.type.kind is Kind.CHAR and encoding is Encoding.INDEXED:
        rowkernels.strip_padding(cells.data, cells.first, cells.second, cells.present)
    total = int(cells.second.sum(dtype="i8"))
    if total > _MAX_BYTES:
        raise CorruptFileError(cells.origin, f"less than 2 GiB of {field.name!r}", total)
    offsets = np.zeros(len(cells) + 1, "i4")
    np.cumsum(cells.second, out=offsets[1:])
    out = np.empty(total, "u1")
    rowkernels.gather(cells.data, cells.first, cells.second, cells.present, offsets, out)
    return _array(cells, field.type, [pa.py_buffer(offsets), pa.py_buffer(out)])


def _binary(cells: Cells, field: FlussField, _encoding: Encoding) -> pa.Array:
    width = field.type.length
    if len(cells) * width > MAX_PADDED_BYTES:
        raise CorruptFileError(cells.origin, f"at most {MAX_PADDED_BYTES} bytes of {field.name!r}", len(cells) * width)
    out = np.zeros(len(cells) * width, "u1")
    bad = rowkernels.gather_padded(cells.data, cells.first, cells.second, cells.present, width, out)
    cells.check(bad, field.name, f"at most {width} bytes")
    return _array(cells, field.type, [pa.py_buffer(out)])


def _row(cells: Cells, field: FlussField, encoding: Encoding) -> pa.Array:
    starts = np.full(len(cells), -1, np.int64)
    np.copyto(starts, cells.first, where=cells.present != 0)
    layout = RowLayout.of(field.type.children, encoding)
    columns = read_fields(cells.data, starts, starts + cells.second, layout, cells.origin)
    inner = zip(columns, field.type.children, strict=True)
    return _array(cells, field.type, [], [to_array(column, child, encoding) for column, child in inner])


def _list(cells: Cells, field: FlussField, encoding: Encoding) -> pa.Array:
    elements, offsets = _elements(cells, field.type.children[0], encoding)
    return _array(cells, field.type, [pa.py_buffer(offsets)], [elements])


def _elements(cells: Cells, child: FlussField, encoding: Encoding) -> tuple[pa.Array, NDArray[np.int32]]:
    width, code = slot(child.type)
    offsets = np.empty(len(cells) + 1, "i8")
    bad = arraykernels.count_elements(cells.data, cells.first, cells.second, cells.present, width, offsets)
    cells.check(bad, child.name, "arrays with room for their elements")
    total = int(offsets[-1])
    first, second, present = np.empty(total, "i8"), np.empty(total, "i4"), np.empty(total, "u1")
    bad = arraykernels.read_elements(
        cells.data, cells.first, cells.second, offsets, width, code, first, second, present
    )
    cells.check(bad, child.name, "arrays that hold all their elements")
    inside = Cells(cells.data, first, second, present, cells.origin)
    return to_array(inside, child, encoding), offsets.astype("i4")


def _map(cells: Cells, field: FlussField, encoding: Encoding) -> pa.Array:
    rows = len(cells)
    parts = (np.empty(rows, "i8"), np.empty(rows, "i4"), np.empty(rows, "i8"), np.empty(rows, "i4"))
    bad = arraykernels.split_maps(cells.data, cells.first, cells.second, cells.present, *parts)
    cells.check(bad, field.name, "maps with room for their keys")
    keys, key_offsets = _elements(
        Cells(cells.data, *parts[:2], cells.present, cells.origin), field.type.children[0], encoding
    )
    values, offsets = _elements(
        Cells(cells.data, *parts[2:], cells.present, cells.origin), field.type.children[1], encoding
    )
    if keys.null_count or not np.array_equal(key_offsets, offsets):
        raise CorruptFileError(cells.origin, f"as many keys as values in {field.name!r}, and none null", len(keys))
    kind = field.type.to_arrow()
    entries = pa.struct([kind.key_field, kind.item_field])
    pairs = pa.Array.from_buffers(entries, len(keys), [None], 0, children=[keys, values])
    return _array(cells, field.type, [pa.py_buffer(offsets)], [pairs])


_BUILDERS = {
    Kind.BOOLEAN: _boolean,
    Kind.FLOAT: _float,
    Kind.DOUBLE: _float,
    Kind.TIME: _time,
    Kind.TIMESTAMP: _timestamp,
    Kind.TIMESTAMP_LTZ: _timestamp,
    Kind.DECIMAL: _decimal,
    Kind.STRING: _bytes,
    Kind.CHAR: _bytes,
    Kind.BYTES: _bytes,
    Kind.BINARY: _binary,
    Kind.ROW: _row,
    Kind.ARRAY: _list,
    Kind.MAP: _map,
}
