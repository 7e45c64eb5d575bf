"""Arrow record batches inside log batches: checked before Arrow allocates anything for them.

A message says itself how large its buffers become; a hostile one could make the reader allocate without end. So the
few fields that matter are read from the message first (flatbuffers: a table begins with the distance back to its list
of field positions).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakeward.errors import CorruptFileError, NewerSourceError

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_DECOMPRESSED_BYTES = 1 << 29
"""Bytes of one batch after decompression; Fluss's writers close a batch at 2 MiB."""
_CONTINUATION = 0xFFFFFFFF
_RECORD_BATCH = 3
_VERSIONS = {3: "V4", 4: "V5"}
_CODECS = {0: "LZ4_FRAME", 1: "ZSTD"}
_WHOLE_BUFFERS = 0
_BUFFER_SIZE = 16
_ALIGNMENT = 8


@dataclass(frozen=True, slots=True)
class _Message:
    """What was found in a message: rows, its buffers (position, length), whether compressed, where its body begins."""

    rows: int
    buffers: tuple[tuple[int, int], ...]
    compressed: bool
    body: int
    body_length: int


def read_record_batch(payload: memoryview, schema: pa.Schema, rows: int, origin: str) -> pa.RecordBatch:
    """Read one encapsulated record batch: the message and its body. It may use the payload's memory.

    The message has no schema: it is the one that the batch was written with. It must have so many rows. `origin` is
    what `payload` is, for errors.

    Raises:
        CorruptFileError: it is no such batch, or would become larger than MAX_DECOMPRESSED_BYTES.
        NewerSourceError: a kind of message, a version of Arrow's metadata or a compression that is not known here.
    """
    _check(payload, rows, origin)
    try:
        return pa.ipc.read_record_batch(_aligned(payload), schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as broken:
        raise CorruptFileError(origin, f"an Arrow batch of {len(schema)} columns", str(broken)) from broken


def _aligned(payload: memoryview) -> pa.Buffer:
    """Return the payload at an address that Arrow may read numbers at; it lies anywhere in its log."""
    view = np.frombuffer(payload, "u1")
    return pa.py_buffer(view if view.ctypes.data % _ALIGNMENT == 0 else view.copy())


def _check(payload: memoryview, rows: int, origin: str) -> None:
    try:
        message = _parse(payload, origin)
        size = _decompressed(payload, message)
    except (struct.error, ValueError) as broken:
        raise CorruptFileError(origin, "an Arrow record batch message", str(broken)) from broken
    if message.rows != rows:
        raise CorruptFileError(origin, f"an Arrow batch of {rows} rows", message.rows)
    if size > MAX_DECOMPRESSED_BYTES:
        raise CorruptFileError(origin, f"at most {MAX_DECOMPRESSED_BYTES} bytes in an Arrow batch", size)


def _parse(payload: memoryview, origin: str) -> _Message:
    marker, length = struct.unpack_from("<Ii", payload, 0)
    if marker != _CONTINUATION or not 0 < length <= len(payload) - 8:
        raise ValueError(_found("a continuation marker and a length", (marker, length)))
    metadata = payload[8 : 8 + length]
    message = _Table(metadata, _unsigned(metadata, 0))
    if (version := message.number(0, "<h")) not in _VERSIONS:
        raise NewerSourceError.at(origin, f"Arrow metadata {_choice(_VERSIONS)}", version)
    if (kind := message.number(1, "<B")) != _RECORD_BATCH:
        raise NewerSourceError.at(origin, f"an Arrow message of kind {_RECORD_BATCH} (a record batch)", kind)
    batch, body_length = message.table(2), message.number(3, "<q")
    if not 0 <= body_length <= len(payload) - 8 - length:
        raise ValueError(_found("a body inside the batch", body_length))
    compressed = batch.has(3)
    if compressed:
        _check_compression(batch.table(3), origin)
    return _Message(batch.number(0, "<q"), batch.buffers(2), compressed, 8 + length, body_length)


def _check_compression(found: _Table, origin: str) -> None:
    codec, method = found.number(0, "<b"), found.number(1, "<b")
    if codec not in _CODECS:
        raise NewerSourceError.at(origin, f"Arrow compression {_choice(_CODECS)}", codec)
    if method != _WHOLE_BUFFERS:
        raise NewerSourceError.at(origin, f"Arrow compression of whole buffers ({_WHOLE_BUFFERS})", method)


def _choice(names: Mapping[int, str]) -> str:
    return " or ".join(f"{name} ({number})" for number, name in names.items())


def _decompressed(payload: memoryview, message: _Message) -> int:
    """Return how many bytes the buffers take when they are read."""
    total = 0
    for position, length in message.buffers:
        if position < 0 or length < 0 or position + length > message.body_length:
            raise ValueError(_found("buffers inside the body", (position, length)))
        if message.compressed and length:
            (size,) = struct.unpack_from("<q", payload, message.body + position)
            # -1 says that this buffer alone is not compressed.
            if size < -1 or length < _ALIGNMENT:
                raise ValueError(_found("the size of a compressed buffer", size))
            length = max(size, length)  # noqa: PLW2901 - what counts from here on
        total += length
    return total


def _found(expected: str, found: object) -> str:
    return f"expected {expected}, found {found}"


def _unsigned(data: memoryview, at: int) -> int:
    value: int = struct.unpack_from("<I", data, at)[0]
    return value


class _Table:
    """A table of a flatbuffer. Positions out of the buffer end in struct.error or ValueError."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data = data
        self._at = at
        back = struct.unpack_from("<i", data, at)[0]
        self._fields = at - back
        if self._fields < 0:
            raise ValueError(_found("a table inside the message", self._fields))
        self._size = struct.unpack_from("<H", data, self._fields)[0]

    def _position(self, field: int) -> int | None:
        entry = 4 + 2 * field
        if entry + 2 > self._size:
            return None
        offset: int = struct.unpack_from("<H", self._data, self._fields + entry)[0]
        return self._at + offset if offset else None

    def has(self, field: int) -> bool:
        return self._position(field) is not None

    def number(self, field: int, form: str) -> int:
        at = self._position(field)
        return 0 if at is None else int(struct.unpack_from(form, self._data, at)[0])

    def _target(self, field: int) -> int:
        at = self._position(field)
        if at is None:
            raise ValueError(_found(f"field {field} of the message", "nothing"))
        return at + _unsigned(self._data, at)

    def table(self, field: int) -> _Table:
        return _Table(self._data, self._target(field))

    def buffers(self, field: int) -> tuple[tuple[int, int], ...]:
        if not self.has(field):
            return ()
        at = self._target(field)
        count = _unsigned(self._data, at)
        raw = self._data[at + 4 : at + 4 + count * _BUFFER_SIZE]
        if len(raw) != count * _BUFFER_SIZE:
            raise ValueError(_found(f"{count} buffers", f"{len(raw)} bytes"))
        return tuple(struct.iter_unpack("<qq", raw))
