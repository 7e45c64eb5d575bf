"""Deletion vectors: the deleted positions of one data file as a bitmap in a Puffin file, which may hold several.

Source: Puffin spec, "File structure" and "deletion-vector-v1"; Iceberg spec, "Deletion Vectors".
"""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
from pyroaring import BitMap64

from lakeward.errors import CorruptFileError
from lakeward.local_files import storage_errors
from lakeward_lake_iceberg.detail import Vector

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward_lake_iceberg.keys import Codes
    from lakeward_lake_iceberg.storage import Storage

_FILE_MAGIC = b"PFA1"
_VECTOR_MAGIC = bytes.fromhex("d1d33964")
_NO_FLAGS = bytes(4)
_POSITION_ID = 2147483645
"""The reserved field `_pos`, which a vector is about."""
_WORD = 4
"""Bytes of the length before a vector, of its magic, and of its checksum."""


def write_vectors(
    storage: Storage, path: str, vectors: Iterable[tuple[str, Codes]]
) -> tuple[list[tuple[Vector, int]], int]:
    """Write a Puffin file; return where each vector lies and of how many rows it is, and the size of the file.

    `vectors` are data files and the positions of their deleted rows, ascending and each once.

    Raises:
        StorageError: the storage refused, or the file is there already.
    """
    parts, told = [_FILE_MAGIC], []
    placed: list[tuple[Vector, int]] = []
    offset = len(_FILE_MAGIC)
    for target, positions in vectors:
        blob = pack_vector(positions)
        told.append(_told(target, len(positions), offset, len(blob)))
        placed.append((Vector(path, offset, len(blob)), len(positions)))
        parts.append(blob)
        offset += len(blob)
    footer = json.dumps({"blobs": told, "properties": {"created-by": "Lakeward"}}).encode()
    parts += [_FILE_MAGIC, footer, len(footer).to_bytes(4, "little"), _NO_FLAGS, _FILE_MAGIC]
    content = b"".join(parts)
    sink = storage.create(path)
    with storage_errors(path):
        sink.write(content)
        sink.close()
    return placed, len(content)


def read_vector(storage: Storage, vector: Vector) -> Codes:
    """Return the positions of a vector, ascending.

    Raises:
        StorageError: the file cannot be read.
        CorruptFileError: no vector lies there, or it is damaged.
    """
    with storage_errors(vector.path), storage.open(vector.path) as source:
        source.seek(vector.offset)
        blob = bytes(source.read(vector.size))
    return unpack_vector(blob, vector.path)


def pack_vector(positions: Codes) -> bytes:
    """Return the blob of a vector: length, magic, bitmap, checksum."""
    bitmap = BitMap64(positions.astype(np.uint64))
    bitmap.run_optimize()
    body = _VECTOR_MAGIC + bitmap.serialize()
    return len(body).to_bytes(_WORD, "big") + body + zlib.crc32(body).to_bytes(_WORD, "big")


def unpack_vector(blob: bytes, path: str) -> Codes:
    """Return the positions that `pack_vector` was given; `path` is the file's, for the error.

    Raises:
        CorruptFileError: it is no vector, or it is damaged.
    """
    length, body = int.from_bytes(blob[:_WORD], "big"), blob[_WORD:-_WORD]
    if len(body) != length or body[:_WORD] != _VECTOR_MAGIC:
        raise CorruptFileError(path, f"a deletion vector of {length} bytes", f"{len(body)} bytes that are none")
    said, checksum = int.from_bytes(blob[-_WORD:], "big"), zlib.crc32(body)
    if said != checksum:
        raise CorruptFileError(path, f"a deletion vector with the checksum {said:#x}", f"one with {checksum:#x}")
    found: Codes = np.frombuffer(BitMap64.deserialize(body[_WORD:]).to_array(), dtype=np.uint64).astype(np.int64)
    return found


def _told(target: str, rows: int, offset: int, length: int) -> dict[str, Any]:
    """Return what the footer says of a vector; its snapshot is that of the commit, which it inherits."""
    return {
        "type": "deletion-vector-v1",
        "fields": [_POSITION_ID],
        "snapshot-id": -1,
        "sequence-number": -1,
        "offset": offset,
        "length": length,
        "properties": {"referenced-data-file": target, "cardinality": str(rows)},
    }
