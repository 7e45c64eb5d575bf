"""Maps primary keys to small integers, so that folding and lookups are a few vector operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Codes = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]

ABSENT = -1


class KeyIndex:
    """The distinct keys of some rows.

    A key of several columns becomes one number column by column: the number so far times the count of the next
    column's values plus its code, made dense again after each column, so that it never overflows.
    """

    def __init__(self, keys: pa.Table) -> None:
        """Number the keys: key columns, none null."""
        self._columns = [pc.unique(column) for column in keys.columns]
        self._levels: list[Codes] = []
        self.codes = _codes(keys.column(0), self._columns[0])
        for column, values in zip(keys.columns[1:], self._columns[1:], strict=True):
            joined = self.codes * len(values) + _codes(column, values)
            level, dense = np.unique(joined, return_inverse=True)
            self._levels.append(level)
            self.codes = dense.astype(np.int64, copy=False).reshape(-1)
        self.size = len(self._levels[-1]) if self._levels else len(self._columns[0])

    def last_rows(self) -> Codes:
        """Return the last row of each key, ascending."""
        last = np.full(self.size, ABSENT, dtype=np.int64)
        np.maximum.at(last, self.codes, np.arange(len(self.codes), dtype=np.int64))
        return np.sort(last)

    def contains(self, columns: Sequence[pa.Array]) -> Flags:
        """Return which rows have a key of this index, given their key columns, of the same types."""
        if len(columns) == 1:
            return _flags(pc.is_in(columns[0], value_set=self._columns[0]))
        codes = _codes(columns[0], self._columns[0])
        for column, values, level in zip(columns[1:], self._columns[1:], self._levels, strict=True):
            codes = _step(codes, _codes(column, values), len(values), level)
        return codes >= 0

    def bounds(self) -> tuple[Any, Any]:
        """Return the smallest and the largest value of the first key column."""
        both = pc.min_max(self._columns[0]).as_py()
        return both["min"], both["max"]

    def raw_bounds(self) -> tuple[Any, Any]:
        """As `bounds`, with dates and times as the whole numbers that Iceberg stores."""
        values = self._columns[0]
        if pa.types.is_temporal(values.type):
            width = pa.int32() if values.type.bit_width == pa.int32().bit_width else pa.int64()
            both = pc.min_max(values.view(width)).as_py()
            return both["min"], both["max"]
        return self.bounds()


def _codes(column: pa.Array | pa.ChunkedArray, values: pa.Array) -> Codes:
    found = pc.fill_null(pc.index_in(column, value_set=values), ABSENT)
    codes: Codes = np.asarray(found).astype(np.int64)
    return codes


def _step(codes: Codes, following: Codes, width: int, level: Codes) -> Codes:
    joined = np.where((codes >= 0) & (following >= 0), codes * width + following, ABSENT)
    place = np.minimum(np.searchsorted(level, joined), len(level) - 1)
    return np.where(level[place] == joined, place, ABSENT)


def _flags(array: pa.Array | pa.ChunkedArray) -> Flags:
    flags: Flags = np.asarray(array.to_numpy(zero_copy_only=False), dtype=np.bool_)
    return flags
