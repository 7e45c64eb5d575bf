"""A partitioning of the lake's own (`lake_partition`): which columns hold it, and which partition each row is in.

Paimon partitions by columns alone. So each transform has a column of its own, which the writers fill: `day(at)` has
`at_day` (DATE), `year(at)` has `at_year` (INT), `month(at)` and `hour(at)` have texts such as `2026-01` and
`2026-01-31-23`, `bucket(16, id)` has `id_bucket_16` (INT), `truncate(4, name)` has `name_trunc_4` of the column's type.
Times are those of UTC. A column as it is needs no other one.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.errors import LakeError, SchemaMismatchError
from lakeward.model.lake_rows import RowConverter
from lakeward.ports import PartitionedRows
from lakeward_lake_paimon.binary_row import encode_row, value_of
from lakeward_lake_paimon.detail import unpack_detail
from lakeward_lake_paimon.kinds import Field, Kind, arrow_type

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakeward.model.partitioning import PartitionField
    from lakeward.model.results import LakeFile
    from lakeward.model.tables import TableSpec
    from lakeward_lake_paimon.task import WriterTask

_LEAST = {"TINYINT": -(2**7), "SMALLINT": -(2**15), "INT": -(2**31), "BIGINT": -(2**63)}
_WHOLE = frozenset(_LEAST)
_TIMED = frozenset({"DATE", "TIMESTAMP", "TIMESTAMP_LTZ"})
_NEVER = frozenset({"FLOAT", "DOUBLE"})
_SUFFIXES = {"year": "year", "month": "month", "day": "day", "hour": "hour", "bucket": "bucket", "truncate": "trunc"}
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
"""The multipliers of splitmix64: a bucket is taken of a whole number that was mixed by them."""


def layout_text(fields: Sequence[PartitionField]) -> str:
    """Return a partitioning as text; empty for the source's own."""
    return ", ".join(map(str, fields))


def column_of(field: PartitionField) -> str:
    """Return the name of the column that holds a field of a partitioning."""
    if field.transform == "identity":
        return field.column
    argument = "" if field.argument is None else f"_{field.argument}"
    return f"{field.column}_{_SUFFIXES[field.transform]}{argument}"


def partition_names(table: TableSpec) -> tuple[str, ...]:
    """Return the partition keys of a source's table in the lake."""
    return tuple(map(column_of, table.lake_partition)) if table.lake_partition else table.partition_keys


def computed_fields(table: TableSpec, fields: Sequence[Field], ids: Iterator[int]) -> list[Field]:
    """Return the columns that a partitioning needs besides the source's, `fields`.

    Raises:
        SchemaMismatchError: a transform does not fit its column, or a name is taken.
    """
    by_name = {field.name: field for field in fields}
    names = partition_names(table)
    found = []
    for one in table.lake_partition:
        name = column_of(one)
        if one.column not in by_name:
            _refuse(table, one, f"one of the columns {', '.join(by_name)}", one.column)
        kind = _kind_of(table, one, by_name[one.column].kind)
        if one.transform == "identity":
            continue
        if name in by_name or names.count(name) > 1:
            _refuse(table, one, f"that the name {name!r} is free for its values", "another column of that name")
        found.append(Field(next(ids), name, kind, f"{one}, filled by Lakeward"))
    if table.lake_partition and table.has_primary_key and set(table.primary_key) <= set(names):
        message = f"{table.path}: lake_partition: expected a column of the primary key outside it, found none"
        raise SchemaMismatchError(message)
    return found


def _kind_of(table: TableSpec, one: PartitionField, kind: Kind) -> Kind:
    if kind.is_nested or kind.root in _NEVER:
        _refuse(table, one, "a column of whole numbers, decimals, booleans, text, bytes, dates or times", str(kind))
    if one.transform in {"year", "month", "day", "hour"}:
        if kind.root not in _TIMED or (one.transform == "hour" and kind.root == "DATE"):
            _refuse(table, one, "a column of dates or timestamps", str(kind))
        return Kind({"year": "INT", "day": "DATE"}.get(one.transform, "STRING"))
    if one.transform == "truncate":
        if not (kind.root in _WHOLE or kind.root == "DECIMAL" or kind.is_text or kind.is_bytes):
            _refuse(table, one, "a column of whole numbers, decimals, text or bytes", str(kind))
        return Kind(kind.root, digits=kind.digits, scale=kind.scale)
    return Kind("INT") if one.transform == "bucket" else kind


def _refuse(table: TableSpec, one: PartitionField, expected: str, found: str) -> None:
    message = f"{table.path}: lake_partition {one}: expected {expected}, found {found}"
    raise SchemaMismatchError(message)


class LayoutPartitioner:
    """See `lakeward.ports.Partitioner`. A partition's key is its row, as a manifest holds it."""

    def __init__(self, task: WriterTask, table: TableSpec) -> None:
        """Keep the layout."""
        schema = task.table_schema
        self._layout = table.lake_partition
        self._kinds = [field.kind for field in schema.named(schema.partition_keys)]
        self._columns = schema.named([one.column for one in self._layout])
        self._converter = RowConverter(table, schema.arrow_schema, None)

    def partition(self, records: pa.RecordBatch) -> PartitionedRows:
        """See `lakeward.ports.Partitioner.partition`."""
        rows = np.zeros(records.num_rows, dtype=np.int64)
        keys: list[tuple[Any, ...]] = [()]
        for one, column, kind in zip(self._layout, self._columns, self._kinds, strict=True):
            values = self._converter.column(records, self._converter.schema.field(column.name))
            found = pc.dictionary_encode(transformed(one, values, column.kind, kind), null_encoding="encode")
            distinct = [value_of(value, kind) for value in found.dictionary]
            pairs, rows = np.unique(rows * len(distinct) + found.indices.to_numpy(), return_inverse=True)
            keys = [(*keys[pair // len(distinct)], distinct[pair % len(distinct)]) for pair in pairs.tolist()]
        partitions = tuple(encode_row(key, self._kinds) for key in keys)
        return PartitionedRows(rows.astype(np.int32), partitions)

    def partition_of(self, file: LakeFile) -> bytes:
        """See `lakeward.ports.Partitioner.partition_of`."""
        detail, wanted = unpack_detail(file.detail), layout_text(self._layout)
        if detail.layout != wanted:
            message = f"{file.path}: expected a file partitioned by {wanted}, found one partitioned by {detail.layout}"
            raise LakeError(message)
        return detail.partition


def transformed(one: PartitionField, values: pa.Array, kind: Kind, target: Kind) -> pa.Array:
    """Return each value's place in a field of a partitioning; `kind` is that of the values, `target` that of places."""
    if one.transform == "identity":
        return values
    if one.transform == "bucket":
        return _bucketed(values, kind, one.argument or 1)
    if one.transform == "truncate":
        return _truncated(values, kind, one.argument or 1, arrow_type(target))
    return _timed(one.transform, values)


def _timed(transform: str, values: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(values.type):
        # Without its zone a time is the one of UTC, and no database of zones is asked.
        values = values.cast(pa.timestamp(values.type.unit))
    year, month = pc.year(values), pc.month(values)
    if transform == "year":
        return year.cast(pa.int32())
    if transform == "day":
        return values if pa.types.is_date(values.type) else pc.floor_temporal(values, unit="day").cast(pa.date32())
    parts = [(year, 4), (month, 2)]
    if transform == "hour":
        parts += [(pc.day(values), 2), (pc.hour(values), 2)]
    texts = [pc.utf8_lpad(part.cast(pa.string()), width, "0") for part, width in parts]
    return pc.binary_join_element_wise(*texts, "-")


def _bucketed(values: pa.Array, kind: Kind, count: int) -> pa.Array:
    found = pc.dictionary_encode(values)
    distinct = found.dictionary
    if kind.root in _WHOLE or kind.root in {"DATE", "TIME"}:
        numbers = distinct.cast(pa.int32()) if kind.root in {"DATE", "TIME"} else distinct
        mixed = numbers.cast(pa.int64()).to_numpy(zero_copy_only=False).astype(np.uint64)
        for shift, factor in zip((np.uint64(30), np.uint64(27)), _MIX, strict=True):
            mixed = (mixed ^ (mixed >> shift)) * factor
        places = ((mixed ^ (mixed >> np.uint64(31))) % np.uint64(count)).astype(np.int32)
    else:
        raw = [repr(value_of(value, kind)).encode() for value in distinct]
        places = np.array([zlib.crc32(value) % count for value in raw], dtype=np.int32)
    return pa.array(places, pa.int32()).take(found.indices)


def _truncated(values: pa.Array, kind: Kind, width: int, target: pa.DataType) -> pa.Array:
    if kind.is_text:
        return pc.utf8_slice_codeunits(values, 0, width)
    if kind.is_bytes:
        return pc.binary_slice(values, 0, width)
    found = pc.dictionary_encode(values)
    # Below the least one that the type has there is none: what lies there has that one.
    end = 1 - 10**kind.digits if kind.root == "DECIMAL" else _LEAST[kind.root]
    least = [max(number - number % width, end) for number in (value_of(value, kind) for value in found.dictionary)]
    if kind.root == "DECIMAL":
        unscaled = pa.array(least, pa.decimal128(38, 0))
        # The whole numbers are those that the scale makes of the decimals.
        return _rescaled(unscaled, kind).cast(target).take(found.indices)
    return pa.array(least, target).take(found.indices)


def _rescaled(unscaled: pa.Array, kind: Kind) -> pa.Array:
    """Return decimals by their whole numbers: the same bytes, read with another scale."""
    return pa.Array.from_buffers(pa.decimal128(38, kind.scale), len(unscaled), unscaled.buffers())
