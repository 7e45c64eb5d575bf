"""Decode rows in Fluss's two row formats to Arrow, by compiled kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lakeward.errors import CorruptFileError, UsageError
from lakeward.model.batches import concat_batches
from lakeward_source_fluss.formats.encodings import Encoding, RowLayout
from lakeward_source_fluss.formats.target import fit
from lakeward_source_fluss.formats.types import Kind

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from lakeward_source_fluss.formats.schema import FlussSchema
    from lakeward_source_fluss.formats.types import FlussField

MAX_BYTES = (1 << 31) - 1
"""A buffer of rows stays below 2 GiB, so that every position fits into 32 bits."""
MAX_CELLS = 1 << 22
"""Cells of rows that are decoded at once: each takes 13 bytes on the way, whatever the length of its value."""
MAX_PADDED_BYTES = 64 << 20
"""Bytes of fixed-width columns that are decoded at once: they take their width for short values and nulls too."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows inside one buffer: `data` (uint8), where each begins and ends (int64), and what `data` is, for errors."""

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    origin: str = "rows"

    def __post_init__(self) -> None:
        """Refuse bounds outside the buffer: kernels rely on them."""
        if len(self.data) > MAX_BYTES:
            message = f"{self.origin}: expected less than 2 GiB of rows, found {len(self.data)} bytes"
            raise UsageError(message)
        inside = len(self.starts) == len(self.ends) and (
            not len(self.starts)
            or (
                int(self.starts.min()) >= 0
                and int(self.ends.max()) <= len(self.data)
                and bool((self.starts <= self.ends).all())
            )
        )
        if not inside:
            raise CorruptFileError(self.origin, "rows inside their buffer", f"{len(self.data)} bytes")

    @classmethod
    def of(cls, values: list[bytes], origin: str = "rows") -> Rows:
        """Lay values side by side."""
        ends = np.cumsum(np.fromiter(map(len, values), "i8", len(values)))
        starts = np.concatenate([np.zeros(1, "i8"), ends[:-1]]) if len(values) else ends
        return cls(np.frombuffer(b"".join(values), "u1"), starts, ends, origin)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.starts)

    def slice(self, start: int, count: int) -> Rows:
        """Return `count` rows from row `start` on, without a copy."""
        return Rows(self.data, self.starts[start : start + count], self.ends[start : start + count], self.origin)

    def bytes_of(self, row: int) -> bytes:
        """Return one row's bytes."""
        return self.data[self.starts[row] : self.ends[row]].tobytes()

    def select(self, mask: NDArray[np.bool_]) -> Rows:
        """Return the rows where the mask is true."""
        return Rows(self.data, self.starts[mask], self.ends[mask], self.origin)


def raw_value(rows: Rows, row: int, column: str | None, schema: FlussSchema, encoding: Encoding) -> object:
    """Return what a row holds in a column, before it is made a value of the column's type; for errors.

    A column that is None means the whole row. The schema is the one that the row was written under, with today's names.
    Returned is an integer, a float or bytes; the whole row's bytes where the column cannot be found.
    """
    from lakeward_source_fluss.formats.cells import raw_fields  # noqa: PLC0415 - loading it compiles the kernels

    if column is not None:
        one = rows.slice(row, 1)
        try:
            return raw_fields(one.data, one.starts, one.ends, schema.columns, encoding).get(column)
        except CorruptFileError:
            pass  # not even the columns' bytes can be told apart
    return rows.bytes_of(row)


def rows_at_once(fields: tuple[FlussField, ...]) -> int:
    """Return how many rows may be decoded at once, at least 1: wide tables are decoded a part at a time."""
    cells, width = _extent(fields)
    return max(1, min(MAX_CELLS // max(1, cells), MAX_PADDED_BYTES // max(1, width)))


def _extent(fields: tuple[FlussField, ...]) -> tuple[int, int]:
    """Return the number of cells of a row, those of nested rows too, and the bytes of its fixed-width values."""
    cells, width = len(fields), 0
    for field in fields:
        if field.type.kind is Kind.ROW:
            inner_cells, inner_width = _extent(field.type.children)
            cells, width = cells + inner_cells, width + inner_width
        elif field.type.kind is Kind.BINARY:
            width += field.type.length
    return cells, width


def decode(rows: Rows, schema: FlussSchema, target: pa.Schema, encoding: Encoding) -> pa.RecordBatch:
    """Decode rows of a format into the target's columns; compacted is the default of `table.kv.format`.

    The schema is the one that the rows were written under, with today's names (`FlussSchema.seen_as`); a column that it
    lacks is null.

    Raises:
        CorruptFileError: a row does not fit the schema.
        SchemaMismatchError: a column's type cannot become the target's.
        RowError: a value that the target's type cannot hold.
    """
    if not len(rows):
        return concat_batches([], target)
    from lakeward_source_fluss.formats.cells import read_fields, to_array  # noqa: PLC0415 - loading it compiles the kernels

    layout = RowLayout.of(schema.columns, encoding)
    cells = read_fields(rows.data, rows.starts, rows.ends, layout, rows.origin)
    wanted = set(target.names)
    fields = zip(schema.columns, cells, strict=True)
    columns = {field.name: to_array(column, field, encoding) for field, column in fields if field.name in wanted}
    return fit(columns, target, len(rows), rows.origin)
