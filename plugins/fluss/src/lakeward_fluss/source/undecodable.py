"""Finds the row and the column that cannot be decoded. Only called once decoding has failed: it decodes many times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward.errors import CorruptFileError, RowError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.tables import TableBucket, TableSpec

UNDECODABLE = (CorruptFileError, RowError)
"""What decoders raise for rows whose bytes are what the server sent, and still are no values."""
_NO_COLUMNS = pa.schema([])


@dataclass(frozen=True, slots=True)
class UndecodableRows:
    """Rows of one bucket among which there is one that cannot be decoded.

    Attributes:
        table: their table.
        bucket: their bucket.
        rows: how many they are.
        decode: decodes columns of some rows: the columns, the first row, and how many.
        place: where a row lies: its offset, or words.
        raw: what was found instead of a row's column (or of the whole row, without a column's name); None if unknown.
    """

    table: TableSpec
    bucket: TableBucket
    rows: int
    decode: Callable[[pa.Schema, int, int], object]
    place: Callable[[int], object]
    raw: Callable[[int, str | None], object]

    def error(self, broken: Exception) -> RowError:
        """Return the error that names bucket, offset, column and value.

        Args:
            broken: what decoding all of the rows had raised.
        """
        row = self._first_bad()
        where = f"table {self.table.path}, bucket {self.bucket}"
        if self._fails(_NO_COLUMNS, row, 1):
            found = self.raw(row, None)
            if found is None:
                return RowError(f"{where}, offsets {self.place(0)} to {self.place(self.rows - 1)}: {broken}")
            expected = f"a row of {len(self.table.schema)} columns"
            return RowError(f"{where}, offset {self.place(row)}: expected {expected}, found {found!r:.200}")
        for field in self.table.schema:
            if self._fails(pa.schema([field]), row, 1):
                return RowError.at(
                    self.table.path,
                    self.bucket,
                    self.place(row),
                    field.name,
                    expected=f"a value of type {field.type}",
                    found=self.raw(row, field.name),
                )
        return RowError(f"{where}, offset {self.place(row)}: {broken}")

    def _first_bad(self) -> int:
        """Find the first row that cannot be decoded, by halving."""
        low, high = 0, self.rows
        while high - low > 1:
            middle = (low + high) // 2
            if self._fails(self.table.schema, low, middle - low):
                high = middle
            else:
                low = middle
        return low

    def _fails(self, columns: pa.Schema, first: int, count: int) -> bool:
        try:
            self.decode(columns, first, count)
        except UNDECODABLE:
            return True
        return False
