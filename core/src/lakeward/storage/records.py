"""The on-disk form of a record: magic, format version, then each part with its length and checksum.

Layout, integers big-endian: 4 bytes magic `LKWD`, 2 bytes version, 2 bytes number of parts; for each part 4 bytes
length, 4 bytes CRC-32 of the bytes, the bytes. Nothing may follow (checkpoints.md).
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

from lakeward.errors import CorruptFileError

if TYPE_CHECKING:
    from collections.abc import Mapping

MAGIC = b"LKWD"
_HEAD = struct.Struct(">4sHH")
_PART = struct.Struct(">II")


def pack(version: int, parts: tuple[bytes, ...]) -> bytes:
    """Encode a record of a format's version (1 or more): its parts, in order."""
    head = _HEAD.pack(MAGIC, version, len(parts))
    return head + b"".join(_PART.pack(len(part), zlib.crc32(part)) + part for part in parts)


def version_of(data: bytes) -> int | None:
    """Return the format version that a record says it has, None if the bytes are no record."""
    if len(data) < _HEAD.size:
        return None
    magic, version, _ = _HEAD.unpack_from(data)
    return int(version) if magic == MAGIC else None


def unpack(data: bytes, file: str, versions: Mapping[int, int]) -> tuple[int, tuple[bytes, ...]]:
    """Decode a record of a file, named in errors: return its version and its parts.

    `versions` has the number of parts of each version that the reader knows.

    Raises:
        CorruptFileError: not such a file, an unknown version, not its number of parts, cut short, a bad checksum, or
            trailing bytes.
    """
    if len(data) < _HEAD.size:
        raise CorruptFileError(file, f"at least {_HEAD.size} bytes", len(data))
    magic, version, count = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise CorruptFileError(file, f"magic {MAGIC!r}", magic)
    if version not in versions:
        raise CorruptFileError(file, f"a format version among {sorted(versions)}", version)
    if count != versions[version]:
        raise CorruptFileError(file, f"{versions[version]} parts in version {version}", count)
    parts, end = _read_parts(data, file, count)
    if end != len(data):
        raise CorruptFileError(file, f"{end} bytes", f"{len(data)} bytes")
    return version, parts


def _read_parts(data: bytes, file: str, count: int) -> tuple[tuple[bytes, ...], int]:
    parts: list[bytes] = []
    position = _HEAD.size
    for number in range(count):
        if len(data) < position + _PART.size:
            raise CorruptFileError(file, f"part {number} at byte {position}", "the file's end")
        length, checksum = _PART.unpack_from(data, position)
        position += _PART.size
        part = data[position : position + length]
        if len(part) != length:
            raise CorruptFileError(file, f"{length} bytes in part {number}", len(part))
        if zlib.crc32(part) != checksum:
            raise CorruptFileError(file, f"checksum {checksum:08x} of part {number}", f"{zlib.crc32(part):08x}")
        parts.append(part)
        position += length
    return tuple(parts), position


def is_torn(data: bytes) -> bool:
    """Return whether bytes are the beginning of a valid record whose end is missing."""
    if len(data) < _HEAD.size:
        return MAGIC.startswith(data[: len(MAGIC)])
    magic, _, count = _HEAD.unpack_from(data)
    if magic != MAGIC:
        return False
    position = _HEAD.size
    for _ in range(count):
        if len(data) < position + _PART.size:
            return True
        length, checksum = _PART.unpack_from(data, position)
        position += _PART.size
        if len(data) < position + length:
            return True
        if zlib.crc32(data[position : position + length]) != checksum:
            return False
        position += length
    return False
