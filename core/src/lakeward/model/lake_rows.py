"""Converts a source's batches to the columns of the lake table."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.errors import RowError
from lakeward.model.batches import find_failing
from lakeward.model.row_checks import broken_rows, is_whole, uncastable_rows
from lakeward.model.tables import BUCKET_COLUMN, OFFSET_COLUMN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lakeward.model.tables import TableBucket, TableSpec

_NO_NULL = "a value"


class RowConverter:
    """Converts source batches to lake batches: names, types, system columns, missing columns."""

    def __init__(
        self,
        table: TableSpec,
        schema: pa.Schema,
        bucket: TableBucket | None,
        constants: Mapping[str, pa.Scalar] | None = None,
        coarsen: Callable[[pa.Array], pa.Array] = lambda array: array,
    ) -> None:
        """Remember the target: the lake's schema, with field ids; messages name the source's table.

        The number of `bucket` is the value of `__bucket`; None where batches have that column. `constants` are columns
        that have one value in all rows. `coarsen` rounds times that are finer than the lake's, before they are cast.
        """
        self._table = table
        self.schema = schema
        self._bucket = bucket
        self._constants = constants or {}
        self._coarsen = coarsen

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the same rows in the lake's columns.

        Raises:
            RowError: a value does not fit its column; names column, row and value.
        """
        columns = [self.column(batch, field) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def misfits(self, batch: pa.RecordBatch) -> dict[int, RowError]:
        """Return the rows that `convert` refuses or whose values are invalid: by number, in order, an error for each.

        All are of one bucket.
        Empty, after little more than a look, where all fit.
        """
        found: dict[int, RowError] = {}
        bucket = str(self._bucket)
        for field in self.schema:
            position = batch.schema.get_field_index(field.name)
            if position < 0 or field.name in self._constants:
                continue
            array = batch.column(position)
            unfit = {row: expected for row, expected in self._unfit(array, field) if row not in found}
            if unfit:
                rows = pa.array(unfit)
                offsets = batch.column(OFFSET_COLUMN).take(rows).to_pylist()
                values = self._shown(array.take(rows))
                for row, offset, value in zip(unfit, offsets, values, strict=True):
                    where = self._table.path, bucket, offset, field.name
                    found[row] = RowError.at(*where, expected=unfit[row], found=value)
        return dict(sorted(found.items()))

    def _unfit(self, array: pa.Array, field: pa.Field) -> Iterator[tuple[int, str]]:
        """Yield the rows of a column that do not fit, and what a right value is."""
        for row in broken_rows(array):
            yield row, f"a value of type {array.type}"
        if not array.type.equals(field.type):
            in_key = field.name in self._table.primary_key
            fit = partial(self._fitted, target=field.type, in_key=in_key)
            for row in uncastable_rows(array, field.type, fit):
                yield row, f"a value of type {field.type}"
        if not field.nullable and array.null_count:
            for row in np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)).tolist():
                yield row, _NO_NULL

    def column(self, batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
        """Return one of the lake's columns.

        Raises:
            RowError: as of `convert`.
        """
        if field.name in self._constants:
            return pa.repeat(self._constants[field.name], batch.num_rows)
        position = batch.schema.get_field_index(field.name)
        if position >= 0:
            array = self._cast(batch, batch.column(position), field)
        elif field.name == BUCKET_COLUMN and self._bucket is not None:
            array = pa.array(np.full(batch.num_rows, self._bucket.bucket, dtype=np.int32))
        else:
            array = pa.nulls(batch.num_rows, field.type)
        if not field.nullable and array.null_count:
            row = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
            raise self._refusal(batch, field, row, None, _NO_NULL)
        return array

    def _cast(self, batch: pa.RecordBatch, array: pa.Array, field: pa.Field) -> pa.Array:
        if array.type.equals(field.type):
            return array
        in_key = field.name in self._table.primary_key
        try:
            return self._fitted(array, field.type, in_key=in_key)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as unfit:
            row = find_failing(len(array), lambda *rows: self._fails(array.slice(*rows), field.type, in_key=in_key))
            value = self._plain(array.slice(row, 1)) if row < len(array) else "?"
            raise self._refusal(batch, field, row, value, f"a value of type {field.type}") from unfit

    def _fitted(self, array: pa.Array, target: pa.DataType, *, in_key: bool) -> pa.Array:
        """Cast without loss, except for times finer than the lake's; of a key without any, for two must not become one.

        Raises:
            pa.ArrowInvalid: a value does not fit.
        """
        return pc.cast(array, target) if in_key else cast_column(self._coarsen(array), target)

    def _fails(self, array: pa.Array, target: pa.DataType, *, in_key: bool) -> bool:
        try:
            self._fitted(array, target, in_key=in_key)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return True
        return False

    def _shown(self, array: pa.Array) -> list[object]:
        """Return the values of an array, text that is no UTF-8 as its bytes."""
        if pa.types.is_string(array.type) and not is_whole(array):
            values: list[object] = array.view(pa.binary()).to_pylist()
            return values
        return [self._plain(array.slice(row, 1)) for row in range(len(array))]

    def _plain(self, array: pa.Array) -> object:
        """Return the only value of an array; Python's times have no nanoseconds, and need a database of time zones."""
        if pa.types.is_temporal(array.type) and getattr(array.type, "unit", "") == "ns":
            return f"{array[0].value} nanoseconds"
        try:
            return self._coarsen(array)[0].as_py()
        except (ValueError, OverflowError):
            return array.to_string(indent=0)

    def _refusal(self, batch: pa.RecordBatch, field: pa.Field, row: int, value: object, expected: str) -> RowError:
        offset = batch.column(OFFSET_COLUMN)[row].as_py() if row < batch.num_rows else "?"
        bucket: object = self._bucket
        if bucket is None:
            bucket = batch.column(BUCKET_COLUMN)[row].as_py() if row < batch.num_rows else "?"
        return RowError.at(self._table.path, bucket, offset, field.name, expected=expected, found=value)


def cast_column(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast without loss, except for times finer than the target's, which are shortened.

    Raises:
        pa.ArrowInvalid: a value does not fit.
    """
    found = pc.cast(array, options=pc.CastOptions(target, allow_time_truncate=True))
    if pa.types.is_float32(target) and pa.types.is_float64(array.type):
        # Arrow rounds without a word. Of a number that is none, the two sides differ as well.
        changed = pc.and_(pc.not_equal(pc.cast(found, array.type), array), pc.invert(pc.is_nan(array)))
        if pc.any(changed).as_py():
            message = f"a value of {array.type} is none of {target}"
            raise pa.ArrowInvalid(message)
    return found
