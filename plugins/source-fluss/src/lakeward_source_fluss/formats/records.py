"""Records inside batches, and KV values: schema id and row (fluss.md, "KV snapshots and rows")."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakeward.errors import CorruptFileError, NewerSourceError
from lakeward.model.batches import concat_batches
from lakeward_source_fluss.formats import rows
from lakeward_source_fluss.formats.rows import Rows, decode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from lakeward_source_fluss.formats.encodings import Encoding
    from lakeward_source_fluss.formats.schema import FlussSchema

_LENGTH = 4
_SCHEMA_ID = 2
_VALUE_HEADER = struct.Struct("<ibi")


def split(data: NDArray[np.uint8], count: int, prefix: int, origin: str) -> Rows:
    """Find records that follow each other, each after its length in 4 bytes, which is left out of the result.

    `data` has the records and nothing else, `count` of them, each of at least `prefix` bytes. `origin` is what it is,
    for errors.

    Raises:
        CorruptFileError: there are more or fewer, or one is too short.
    """
    from lakeward_source_fluss.formats.recordkernels import split_records  # noqa: PLC0415 - loading it compiles the kernel

    if not 0 <= count <= len(data) // (_LENGTH + prefix):
        raise CorruptFileError(origin, f"{count} records", f"{len(data)} bytes")
    starts, ends = np.empty(count, "i8"), np.empty(count, "i8")
    bad = split_records(data, prefix, starts, ends)
    if bad >= 0:
        raise CorruptFileError(origin, f"{count} whole records", f"a break at record {bad}")
    return Rows(data, starts, ends, origin)


def value_batch(data: memoryview, origin: str = "value batch") -> Rows:
    """Find the values of a value record batch, as SCAN_KV and LIMIT_SCAN answer it.

    Each is a schema id and a row, for `decode_values`. `origin` is what `data` is, for errors.

    Raises:
        CorruptFileError: it is cut off, or not such a batch.
        NewerSourceError: a version of the format that is not known.
    """
    if len(data) < _VALUE_HEADER.size:
        raise CorruptFileError(origin, f"a header of {_VALUE_HEADER.size} bytes", len(data))
    length, magic, count = _VALUE_HEADER.unpack_from(data, 0)
    if magic != 0:
        raise NewerSourceError.at(origin, "a value batch of version 0", magic)
    if length != len(data) - _LENGTH:
        raise CorruptFileError(origin, f"{len(data) - _LENGTH} bytes", length)
    return split(np.frombuffer(data[_VALUE_HEADER.size :], "u1"), count, _SCHEMA_ID, origin)


def decode_values(
    values: Rows, schemas: Mapping[int, FlussSchema], target: pa.Schema, encoding: Encoding
) -> pa.RecordBatch:
    """Decode KV values (each a schema id of 2 bytes, and a row), whose rows may be of different schemas.

    `schemas` are by id, with today's names; a mapping that fetches a missing one is welcome. `target` has the columns
    wanted; the encoding is the table's kv format. Rows keep their number and order.

    Raises:
        CorruptFileError: a value does not fit its schema, or names a schema that there is not.
        SchemaMismatchError: a column's type cannot become the target's.
        RowError: a value that the target's type cannot hold.
    """
    if not len(values):
        return concat_batches([], target)
    if int((values.ends - values.starts).min()) < _SCHEMA_ID:
        raise CorruptFileError(values.origin, "values of at least 2 bytes", "a shorter one")
    ids = values.data[values.starts] | (values.data[values.starts + 1].astype("i2") << 8)
    found = Rows(values.data, values.starts + _SCHEMA_ID, values.ends, values.origin)
    if bool((ids == ids[0]).all()):
        return decode(found, _schema(schemas, int(ids[0]), values.origin), target, encoding)
    used = np.unique(ids)
    masks = [ids == schema_id for schema_id in used]
    parts = [
        decode(found.select(mask), _schema(schemas, int(schema_id), values.origin), target, encoding)
        for schema_id, mask in zip(used, masks, strict=True)
    ]
    order = np.argsort(np.concatenate([np.flatnonzero(mask) for mask in masks]), kind="stable")
    return pa.concat_batches(parts).take(pa.array(order))


def raw_value(
    values: Rows, row: int, column: str | None, schemas: Mapping[int, FlussSchema], encoding: Encoding
) -> object:
    """Return what a KV value holds in a column, as `rows.raw_value` does; for errors."""
    content = values.bytes_of(row)
    schema_id = int.from_bytes(content[:_SCHEMA_ID], "little", signed=True)
    if len(content) < _SCHEMA_ID or schema_id not in schemas:
        return content
    one = Rows.of([content[_SCHEMA_ID:]], values.origin)
    return rows.raw_value(one, 0, column, schemas[schema_id], encoding)


def _schema(schemas: Mapping[int, FlussSchema], schema_id: int, origin: str) -> FlussSchema:
    try:
        return schemas[schema_id]
    except KeyError:
        raise CorruptFileError(origin, "values of a schema of the table", f"schema id {schema_id}") from None
