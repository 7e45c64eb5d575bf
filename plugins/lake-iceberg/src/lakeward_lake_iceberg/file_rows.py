"""Reads the live rows of one data file in the columns of a schema, by field id.

pyiceberg says what lies where: the file's fields, its partition, its deletes. It does not put the columns together, for
it reads a null list of rows, or a null map of rows, as an empty one.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import _read_all_delete_files, pyarrow_to_schema, schema_to_pyarrow
from pyiceberg.manifest import FileFormat
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import ListType, MapType, StructType

from lakeward.errors import LakeError
from lakeward_lake_iceberg.positions import union

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.types import IcebergType, NestedField


@contextmanager
def read_errors(what: str) -> Iterator[None]:
    """Turn an error of reading into one that says what was read.

    Raises:
        LakeError: it is gone, or cannot be read.
    """
    try:
        yield
    except FileNotFoundError as failed:
        message = f"{what} is not there: {failed}; if the snapshot has expired meanwhile, try again"
        raise LakeError(message) from failed
    except (OSError, ValueError, KeyError, NotImplementedError) as failed:
        message = f"{what} cannot be read: {failed}"
        raise LakeError(message) from failed


def file_rows(table: Table, schema: Schema, task: FileScanTask) -> Iterator[pa.RecordBatch]:
    """Yield the wanted columns of one data file's rows, without those that its delete files delete, a batch at a time.

    `table` is for its storage and its partition specs; `task` has the file and its deletes.

    Raises:
        LakeError: it is no Parquet file, or lacks a required column.
        OSError, ValueError, NotImplementedError: it cannot be read.
    """
    gone = _deleted(table, task)
    start = 0
    for batch in whole_file(table, schema, task):
        live = np.ones(len(batch), dtype=np.bool_)
        first, last = np.searchsorted(gone, (start, start + len(batch)))
        live[gone[first:last] - start] = False
        start += len(batch)
        yield batch if live.all() else batch.filter(pa.array(live))


def whole_file(table: Table, schema: Schema, task: FileScanTask) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one data file, the deleted ones too; as `file_rows`."""
    path = task.file.file_path
    if task.file.file_format is not FileFormat.PARQUET:
        raise LakeError(not_parquet(task.file))
    constants = _partition_values(table, task)
    with table.io.new_input(path).open() as source:
        file = pq.ParquetFile(source)
        # Only ids and structure are taken from here: what it says of the types of times does not count.
        held = pyarrow_to_schema(file.schema_arrow, table.name_mapping(), downcast_ns_timestamp_to_us=True)
        projection = _Projection(path, constants)
        for batch in file.iter_batches():
            found = projection.struct(batch.to_struct_array(), held.as_struct(), schema.as_struct())
            yield pa.RecordBatch.from_struct_array(found)


def not_parquet(file: DataFile) -> str:
    """Say that a data file is in another format, and what to do about it."""
    return (
        f"{file.file_path}: expected a Parquet file, found one in {file.file_format.value}; set the lake table's "
        f"property write.format.default to parquet and rewrite its data files"
    )


class _Projection:
    """Puts the values of one file under the fields that are wanted, matched by id."""

    def __init__(self, path: str, constants: dict[int, Any]) -> None:
        """Remember the values of fields that a file may lack, by id, for all its rows."""
        self._path = path
        self._constants = constants

    def struct(self, array: pa.Array, held: StructType, wanted: StructType) -> pa.Array:
        """Return rows; those that are null stay null."""
        places = {field.field_id: (number, field) for number, field in enumerate(held.fields)}
        columns = []
        for field in wanted.fields:
            if field.field_id in places:
                number, found = places[field.field_id]
                columns.append(self._values(array.field(number), found.field_type, field.field_type))
            else:
                columns.append(self._missing(field, len(array)))
        fields = [pa.field(field.name, one.type) for field, one in zip(wanted.fields, columns, strict=True)]
        return pa.StructArray.from_arrays(columns, fields=fields, mask=array.is_null())

    def _values(self, array: pa.Array, held: IcebergType, wanted: IcebergType) -> pa.Array:
        if isinstance(held, StructType) and isinstance(wanted, StructType):
            return self.struct(array, held, wanted)
        if isinstance(held, ListType) and isinstance(wanted, ListType):
            values = self._values(array.values, held.element_type, wanted.element_type)
            make = pa.large_list if pa.types.is_large_list(array.type) else pa.list_
            return with_values(array, make(values.type), values)
        if isinstance(held, MapType) and isinstance(wanted, MapType):
            keys = self._values(array.keys, held.key_type, wanted.key_type)
            items = self._values(array.items, held.value_type, wanted.value_type)
            kind = pa.map_(keys.type, items.type)
            entries = pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])
            return with_values(array, kind, entries)
        return array.cast(schema_to_pyarrow(wanted, include_field_ids=False))

    def _missing(self, field: NestedField, count: int) -> pa.Array:
        kind = schema_to_pyarrow(field.field_type, include_field_ids=False)
        value = self._constants.get(field.field_id, field.initial_default)
        if value is not None:
            return pa.repeat(pa.scalar(value, kind), count)
        if field.required:
            message = f"{self._path}: expected column {field.name!r} with field id {field.field_id}, found none"
            raise LakeError(message)
        return pa.nulls(count, kind)


def with_values(array: pa.Array, kind: pa.DataType, values: pa.Array) -> pa.Array:
    """Return a list or a map with other values under the same offsets and nulls."""
    return pa.Array.from_buffers(
        kind, len(array), array.buffers()[:2], array.null_count, array.offset, children=[values]
    )


def _deleted(table: Table, task: FileScanTask) -> Any:  # noqa: ANN401 - an array of positions, ascending
    found = _read_all_delete_files(table.io, [task]).get(task.file.file_path, [])
    return union(np.asarray(one, dtype=np.int64) for one in found)


def _partition_values(table: Table, task: FileScanTask) -> dict[int, Any]:
    """Return the values that a file's partition gives for columns that it may lack (spec, "Column Projection")."""
    fields = table.specs()[task.file.spec_id].fields
    return {
        field.source_id: task.file.partition[number]
        for number, field in enumerate(fields)
        if isinstance(field.transform, IdentityTransform)
    }
