"""Finds the row and the column that cannot be decoded. Only called once decoding has failed: it decodes many times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward.errors import CorruptFileError, RowError
from lakeward.model.batches import find_failing

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
        position: returns where a row lies: its offset, or a text.
        raw: what was found instead of a row's column (or of the whole row, without a column's name); None if unknown.
    """

    table: TableSpec
    bucket: TableBucket
    rows: int
    decode: Callable[[pa.Schema, int, int], object]
    position: Callable[[int], object]
    raw: Callable[[int, str | None], object]

    def error(self, broken: Exception) -> RowError:
        """Return the error that names bucket, offset, column and value; decoding all rows had raised `broken`."""
        row = find_failing(self.rows, lambda first, count: self._fails(self.table.schema, first, count))
        where = f"table {self.table.path}, bucket {self.bucket}"
        if self._fails(_NO_COLUMNS, row, 1):
            found = self.raw(row, None)
            if found is None:
                return RowError(f"{where}, offsets {self.position(0)} to {self.position(self.rows - 1)}: {broken}")
            expected = f"a row of {len(self.table.schema)} columns"
            return RowError(f"{where}, offset {self.position(row)}: expected {expected}, found {found!r:.200}")
        for field in self.table.schema:
            if self._fails(pa.schema([field]), row, 1):
                return RowError.at(
                    self.table.path,
                    self.bucket,
                    self.position(row),
                    field.name,
                    expected=f"a value of type {field.type}",
                    found=self.raw(row, field.name),
                )
        return RowError(f"{where}, offset {self.position(row)}: {broken}")

    def _fails(self, columns: pa.Schema, first: int, count: int) -> bool:
        try:
            self.decode(columns, first, count)
        except UNDECODABLE:
            return True
        return False
