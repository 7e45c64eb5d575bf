"""Log batches: headers, check sums, change types and records (fluss.md, "Log batches")."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import google_crc32c
import numpy as np
import pyarrow as pa

from lakeward.errors import CorruptFileError, NewerSourceError
from lakeward.model.batches import concat_batches
from lakeward.model.tables import Change
from lakeward_source_fluss.formats import rows as rowformats
from lakeward_source_fluss.formats.arrowbatch import read_record_batch
from lakeward_source_fluss.formats.arrowvalues import differs, raw_arrow_value, settled
from lakeward_source_fluss.formats.encodings import Encoding
from lakeward_source_fluss.formats.records import split
from lakeward_source_fluss.formats.target import checked, fit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from lakeward_source_fluss.formats.schema import FlussSchema


class LogFormat(StrEnum):
    """How the records of a log are stored: the values of `table.log.format`, where ARROW is the default."""

    ARROW = "ARROW"
    INDEXED = "INDEXED"
    COMPACTED = "COMPACTED"


MAX_ROWS = 1 << 26
"""Records of one batch; compression makes much of little, so the count is bounded by itself."""
_LENGTH_AT, _MAGIC_AT = 8, 12
_PREFIX = 12
"""Base offset and length: the length counts what follows them."""
_APPEND_ONLY = 1
_TAIL = struct.Struct("<hbiqii")
"""Schema id, attributes, last offset delta, writer id, batch sequence, record count: the same in all versions."""


@dataclass(frozen=True, slots=True)
class _Version:
    """Where a magic's header differs: its check sum's position, and whether it has statistics of its columns."""

    crc: int
    statistics: bool

    @property
    def size(self) -> int:
        """Return the length of the header, without the statistics."""
        return self.crc + 4 + _TAIL.size + (4 if self.statistics else 0)


_VERSIONS = {0: _Version(21, statistics=False), 1: _Version(21, statistics=True), 2: _Version(25, statistics=True)}
_SMALLEST = _VERSIONS[0].size


@dataclass(frozen=True, slots=True)
class LogBatch:
    """One batch of a log: `rows` records with the offsets `base_offset`, `base_offset` + 1, ...

    It may be empty and still use offsets up to `last_offset`. `changes` has one uint8 per row, see `Change`.
    `records` are the rows of a log in a row format, `payload` the Arrow batch of one in ARROW.
    """

    base_offset: int
    last_offset: int
    timestamp_ms: int
    schema_id: int
    rows: int
    changes: NDArray[np.uint8]
    format: LogFormat
    payload: memoryview
    records: rowformats.Rows | None
    origin: str

    @property
    def next_offset(self) -> int:
        """Return the first offset after this batch."""
        return self.last_offset + 1


def iter_batches(
    data: memoryview, log_format: LogFormat = LogFormat.ARROW, *, verify: bool = True, origin: str = "log"
) -> Iterator[LogBatch]:
    """Yield the batches of a record set in their order, as FETCH_LOG answers it or a segment holds it.

    In `data`, batches follow one another; a last one that is cut off is left out. With `verify`, the sums are checked:
    not for an answer with projected columns, servers do not sum those anew. `origin` is what `data` is, for errors.

    Yields:
        The batches in their order.

    Raises:
        CorruptFileError: a check sum or a length is wrong.
        NewerSourceError: a version, an attribute or a change type that is not known.
    """
    at = 0
    data = data.toreadonly()
    while len(data) - at >= _SMALLEST:
        total = _PREFIX + struct.unpack_from("<i", data, at + _LENGTH_AT)[0]
        if total < _SMALLEST:
            raise CorruptFileError(origin, f"a batch of at least {_SMALLEST} bytes at {at}", total)
        if total > len(data) - at:
            return
        yield _batch(data[at : at + total], log_format, verify=verify, origin=origin)
        at += total


def _batch(data: memoryview, log_format: LogFormat, *, verify: bool, origin: str) -> LogBatch:
    base_offset, timestamp_ms = struct.unpack_from("<q", data, 0)[0], struct.unpack_from("<q", data, _MAGIC_AT + 1)[0]
    origin = f"{origin}, batch at offset {base_offset}"
    version = _version(data, origin)
    if verify:
        _verify(data, version, origin)
    schema_id, attributes, delta, _, _, rows = _TAIL.unpack_from(data, version.crc + 4)
    if not 0 <= rows <= min(delta + 1, MAX_ROWS) or base_offset < 0 or base_offset + delta >= 1 << 63:
        raise CorruptFileError(origin, "as many records as offsets", (rows, delta))
    if attributes & ~_APPEND_ONLY:
        raise NewerSourceError.at(origin, "a log batch with no attribute but append-only (1)", attributes)
    content = data[_content(data, version, origin) :]
    append_only = bool(attributes & _APPEND_ONLY)
    records = None
    if log_format is LogFormat.ARROW:
        changes, content = _arrow_changes(content, rows, append_only=append_only, origin=origin)
    else:
        changes, records = _row_records(content, rows, origin)
    return LogBatch(
        base_offset, base_offset + delta, timestamp_ms, schema_id, rows, changes, log_format, content, records, origin
    )


def _version(data: memoryview, origin: str) -> _Version:
    magic = data[_MAGIC_AT]
    version = _VERSIONS.get(magic)
    if version is None:
        raise NewerSourceError.at(origin, "a log batch of version 0, 1 or 2", magic)
    if len(data) < version.size:
        raise CorruptFileError(origin, f"a header of {version.size} bytes", len(data))
    return version


def _verify(data: memoryview, version: _Version, origin: str) -> None:
    (stored,) = struct.unpack_from("<I", data, version.crc)
    found = google_crc32c.value(bytes(data[version.crc + 4 :]))
    if found != stored:
        raise CorruptFileError(origin, f"the check sum {stored:08x}", f"{found:08x}")


def _content(data: memoryview, version: _Version, origin: str) -> int:
    """Return where the records begin."""
    if not version.statistics:
        return version.size
    (length,) = struct.unpack_from("<i", data, version.size - 4)
    if not 0 <= length <= len(data) - version.size:
        raise CorruptFileError(origin, "statistics inside the batch", length)
    return version.size + int(length)


def _arrow_changes(
    content: memoryview, rows: int, *, append_only: bool, origin: str
) -> tuple[NDArray[np.uint8], memoryview]:
    if append_only or not rows:
        return np.full(rows, Change.APPEND, "u1"), content
    if rows > len(content):
        raise CorruptFileError(origin, f"{rows} change types", f"{len(content)} bytes")
    changes = np.frombuffer(content[:rows], "u1")
    return _checked(changes, origin), content[rows:]


def _row_records(content: memoryview, rows: int, origin: str) -> tuple[NDArray[np.uint8], rowformats.Rows]:
    found = split(np.frombuffer(content, "u1"), rows, 1, origin)
    changes = found.data[found.starts]
    return _checked(changes, origin), rowformats.Rows(found.data, found.starts + 1, found.ends, origin)


def _checked(changes: NDArray[np.uint8], origin: str) -> NDArray[np.uint8]:
    if len(changes) and int(changes.max()) > Change.DELETE:
        raise NewerSourceError.at(origin, f"change types up to {Change.DELETE}", int(changes.max()))
    return changes


def raw_value(batch: LogBatch, row: int, column: str | None, schema: FlussSchema) -> object:
    """Return what a row of a batch holds in a column, before it is made a value of the column's type; for errors.

    A column that is None means the whole row. The schema is that of `batch.schema_id`, with today's names. Returned are
    numbers or bytes; None for the whole row of an Arrow batch, whose bytes do not lie together, and where the value's
    bytes cannot be found.
    """
    if batch.records is not None:
        return rowformats.raw_value(batch.records, row, column, schema, Encoding(batch.format.value))
    names = [field.name for field in schema.columns]
    if column not in names:
        return None
    found = read_record_batch(batch.payload, schema.to_arrow(logged=True), batch.rows, batch.origin)
    return raw_arrow_value(found.column(names.index(column)).slice(row, 1))


def decode(
    batch: LogBatch,
    schema: FlussSchema,
    target: pa.Schema,
    skip: int = 0,
    count: int | None = None,
    *,
    padded: bool = False,
) -> pa.RecordBatch:
    """Decode rows of a batch into the target's columns; one that the schema lacks is null.

    The schema is that of `batch.schema_id`, with today's names (`FlussSchema.seen_as`); where the server projected,
    only the columns that it sent (`FlussSchema.project`). At the batch's beginning `skip` rows are left out, then at
    most `count` follow; None: all. If `padded`, CHAR values of an Arrow batch may end in zero bytes: those of tables
    with `table.kv.format` INDEXED do.

    Raises:
        CorruptFileError: the bytes do not fit the schema.
        SchemaMismatchError: a column's type cannot become the target's.
        RowError: a value that the target's type cannot hold.
    """
    if not batch.rows:
        return concat_batches([], target)
    wanted = batch.rows - skip if count is None else count
    if batch.records is not None:
        rows = batch.records.slice(skip, wanted)
        return rowformats.decode(rows, schema, target, Encoding(batch.format.value))
    found = read_record_batch(batch.payload, schema.to_arrow(logged=True), batch.rows, batch.origin)
    found = found.slice(skip, wanted)
    names = set(target.names)
    columns = {
        field.name: settled(checked(array, field.name, batch.origin), field.type, padded=padded)
        if differs(field.type, padded=padded)
        else array
        for field, array in zip(schema.columns, found.columns, strict=True)
        if field.name in names
    }
    return fit(columns, target, found.num_rows, batch.origin)
