"""From the columns that were decoded to the columns that are wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from lakeward.errors import CorruptFileError, SchemaMismatchError
from lakeward.model.row_checks import check_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

Columns: TypeAlias = "Mapping[str, pa.Array]"


def fit(columns: Columns, target: pa.Schema, rows: int, origin: str) -> pa.RecordBatch:
    """Make a batch of decoded columns, by name, in the target's order and types, and check that its values are whole.

    A column of the target that is not among them is null. `origin` is what was decoded, for errors.

    Raises:
        CorruptFileError: text that is no UTF-8, a decimal beyond its precision, offsets that do not fit.
        SchemaMismatchError: a column's type cannot become the target's.
    """
    arrays = [_column(columns.get(field.name), field, rows, origin) for field in target]
    return pa.RecordBatch.from_arrays(arrays, schema=target)


def _column(array: pa.Array | None, field: pa.Field, rows: int, origin: str) -> pa.Array:
    if array is None:
        return pa.nulls(rows, field.type)
    checked(array, field.name, origin)
    return array if array.type.equals(field.type) else _cast(array, field, origin)


def checked(array: pa.Array, name: str, origin: str) -> pa.Array:
    """Return an array whose values are whole: a column and its name. `origin` is what was decoded, for errors.

    Raises:
        CorruptFileError: text that is no UTF-8, a decimal beyond its precision, offsets that do not fit.
    """
    try:
        check_whole(array)
    except pa.ArrowInvalid as broken:
        raise CorruptFileError(origin, f"whole values of {name!r}", str(broken)) from broken
    return array


def _cast(array: pa.Array, field: pa.Field, origin: str) -> pa.Array:
    try:
        return array.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as unfit:
        message = f"{origin}: column {field.name!r}: expected {field.type}, found {array.type} ({unfit})"
        raise SchemaMismatchError(message) from unfit
