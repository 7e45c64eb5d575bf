"""Reads the rows of a data file in the columns of the present schema, by field id, with Arrow alone.

A column that the file lacks is null, or what the file's partition says; one that was dropped since is left out; one
that was widened since is cast. A file without any field id was not written for Iceberg: there the names count.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakeward.errors import SchemaMismatchError
from lakeward_lake_iceberg.parquet_fields import columns_by_id, field_id_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakeward_lake_iceberg.detail import Value

_BATCH_ROWS = 65_536
_BUFFER = 1 << 20
"""Bytes that are read at once of one column."""


def fitted_rows(
    source: pa.NativeFile, schema: pa.Schema, constants: Mapping[int, Value], batch_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a Parquet file in a schema with field ids, in batches of about so many bytes at the most.

    `constants` are values of columns that the file may lack, by field id.

    Raises:
        SchemaMismatchError: it lacks a required column.
    """
    file = pq.ParquetFile(source, buffer_size=_BUFFER, coerce_int96_timestamp_unit="us")
    told = file.metadata
    size = sum(told.row_group(number).total_byte_size for number in range(told.num_row_groups))
    rows = batch_bytes * told.num_rows // max(1, size)
    fit = _Fit(constants, by_id=bool(columns_by_id(file.schema_arrow)))
    for batch in file.iter_batches(min(_BATCH_ROWS, max(1, rows))):
        columns = fit.fields([*batch.schema], batch.columns, [*schema], batch.num_rows)
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


class _Fit:
    """Puts values under the fields that are wanted."""

    def __init__(self, constants: Mapping[int, Value], *, by_id: bool) -> None:
        self._constants = constants
        self._by_id = by_id

    def fields(
        self, held: list[pa.Field], columns: list[pa.Array], wanted: list[pa.Field], count: int
    ) -> list[pa.Array]:
        """Return one array for each wanted field, of so many rows."""
        places = {field_id_of(field) if self._by_id else field.name: place for place, field in enumerate(held)}
        found = []
        for field in wanted:
            place = places.get(field_id_of(field) if self._by_id else field.name)
            found.append(self._missing(field, count) if place is None else self._values(columns[place], field.type))
        return found

    def _values(self, array: pa.Array, kind: pa.DataType) -> pa.Array:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        if not pa.types.is_nested(kind):
            return array.cast(kind)
        own = array.type
        if pa.types.is_struct(kind):
            held = [own.field(place) for place in range(own.num_fields)]
            parts = [array.field(place) for place in range(own.num_fields)]
            wanted = [kind.field(place) for place in range(kind.num_fields)]
            columns = self.fields(held, parts, wanted, len(array))
            return pa.StructArray.from_arrays(columns, fields=wanted, mask=array.is_null())
        if pa.types.is_map(kind):
            keys, items = self._values(array.keys, kind.key_type), self._values(array.items, kind.item_type)
            values = pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])
        else:
            array = array.cast(pa.list_(own.value_field))
            values = self._values(array.values, kind.value_type)
        own_buffers = array.buffers()[:2]
        return pa.Array.from_buffers(kind, len(array), own_buffers, array.null_count, array.offset, children=[values])

    def _missing(self, field: pa.Field, count: int) -> pa.Array:
        value = self._constants.get(field_id_of(field) or 0)
        if value is not None:
            return pa.repeat(pa.scalar(_stored(value, field.type), field.type), count)
        if not field.nullable:
            message = f"expected column {field.name!r} with field id {field_id_of(field)}, found none"
            raise SchemaMismatchError(message)
        return pa.nulls(count, field.type)


def _stored(value: Value, kind: pa.DataType) -> Any:  # noqa: ANN401 - depends on `kind`
    if not pa.types.is_decimal(kind):
        return value
    number = int.from_bytes(value, "big", signed=True)
    return Decimal((number < 0, tuple(map(int, str(abs(number)))), -kind.scale))
