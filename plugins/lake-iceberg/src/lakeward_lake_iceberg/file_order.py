"""Compares the rows of a file with the sort order that the file claims, a batch at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.sorting import NullOrder, SortDirection
from pyiceberg.transforms import IdentityTransform

from lakeward_lake_iceberg.file_values import UNKNOWN, Primitive, primitives, stored, transformed, values_at

if TYPE_CHECKING:
    import numpy.typing as npt
    from pyiceberg.schema import Schema
    from pyiceberg.table.sorting import SortField, SortOrder

    Ranks = npt.NDArray[np.int64]

_LAST = np.iinfo(np.int64).max


class ClaimedOrder:
    """The sort order of one file. It holds one row beside the batch that it is given.

    NaN is larger than all numbers, and 0.0 is as -0.0: Spark sorts so.
    """

    def __init__(self, order: SortOrder, schema: Schema) -> None:
        """Find the fields; those after one whose column was dropped since cannot be told."""
        held = {one.field.field_id: one for one in primitives(schema) if not one.repeated}
        self._fields: list[tuple[SortField, Primitive]] = []
        for one in order.fields:
            if one.source_id not in held:
                break
            self._fields.append((one, held[one.source_id]))
        self._rows = 0
        self._before: list[pa.Array] = []
        self.wrong: int | None = None
        """The first row, from 0, that is before the one before it; None so far."""

    @property
    def text(self) -> str:
        """The order in words."""
        return ", ".join(
            f"{held.name if isinstance(one.transform, IdentityTransform) else f'{one.transform}({held.name})'} "
            f"{one.direction} {one.null_order}"
            for one, held in self._fields
        )

    def add(self, batch: pa.RecordBatch) -> None:
        """Compare the next rows."""
        if self.wrong is not None or not self._fields or not len(batch):
            return
        columns = [stored(values_at(batch, held)) for _, held in self._fields]
        joined = [pa.concat_arrays(pair) for pair in zip(self._before, columns, strict=True)] if self._rows else columns
        place = self._first_wrong(joined)
        if place is not None:
            self.wrong = self._rows + place + (0 if self._rows else 1)
        self._rows += len(batch)
        self._before = [column.slice(len(column) - 1) for column in columns]

    def _first_wrong(self, columns: list[pa.Array]) -> int | None:
        """Return the first of all pairs of rows that follow each other which is in the wrong order."""
        wrong = np.zeros(len(columns[0]) - 1, dtype=np.bool_)
        equal = ~wrong
        for (one, held), column in zip(self._fields, columns, strict=True):
            ranks = _ranks(one, held, column)
            if ranks is None:
                break
            wrong |= equal & (ranks[1:] < ranks[:-1])
            equal &= ranks[1:] == ranks[:-1]
        return int(wrong.argmax()) if wrong.any() else None


def _ranks(one: SortField, held: Primitive, column: pa.Array) -> Ranks | None:
    """Number rows by a field's place in the order, None where it cannot be told."""
    if not isinstance(one.transform, IdentityTransform):
        encoded = pc.dictionary_encode(column)
        values: list[Any] = [transformed(one, held.field.field_type, value) for value in encoded.dictionary.to_pylist()]
        if any(value is UNKNOWN for value in values):
            return None
        column = pa.array(values).take(encoded.indices)
    if column.null_count == len(column):
        return np.zeros(len(column), dtype=np.int64)
    nulls = np.asarray(column.is_null())
    found = pc.rank(column, sort_keys="ascending", tiebreaker="dense")
    ranks: Ranks = np.asarray(found).astype(np.int64)
    if one.direction is SortDirection.DESC:
        ranks = -ranks
    ranks[nulls] = _LAST if one.null_order is NullOrder.NULLS_LAST else -_LAST
    return ranks
