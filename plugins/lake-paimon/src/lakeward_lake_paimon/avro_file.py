"""Avro object container files, blocks compressed as Paimon does by default: with Zstandard, by Arrow.

fastavro does records; for Zstandard it would need another package.
"""

from __future__ import annotations

import io
import secrets
import zlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import fastavro
import msgspec
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_BLOCK_RECORDS = 1000
_HEADER = fastavro.parse_schema({"type": "map", "values": "bytes"})
_ZSTD = "zstandard"
_RAW_DEFLATE = -15


class AvroError(ValueError):
    """Bytes that are no Avro file, or one of a codec that is not known here; the message says which."""


class Schema:
    """A schema of files that are written."""

    def __init__(self, said: Any) -> None:  # noqa: ANN401 - a schema as JSON
        """Parse it, and encode it once for the headers of all files."""
        self.parsed: Any = fastavro.parse_schema(said)
        header: Any = {"avro.schema": msgspec.json.encode(_plain(self.parsed)), "avro.codec": _ZSTD.encode()}
        out = io.BytesIO(_MAGIC)
        out.seek(0, io.SEEK_END)
        fastavro.schemaless_writer(out, _HEADER, header)
        self.header = out.getvalue()


def write_avro(schema: Schema, records: Sequence[Mapping[str, Any]]) -> bytes:
    """Return records as an Avro file."""
    out = io.BytesIO()
    out.write(schema.header)
    sync = secrets.token_bytes(_SYNC_BYTES)
    out.write(sync)
    codec = pa.Codec("zstd")
    for start in range(0, len(records), _BLOCK_RECORDS):
        block = io.BytesIO()
        part = records[start : start + _BLOCK_RECORDS]
        for record in part:
            fastavro.schemaless_writer(block, schema.parsed, record)
        packed = codec.compress(block.getvalue(), asbytes=True)
        out.write(_long(len(part)) + _long(len(packed)) + packed + sync)
    return out.getvalue()


def read_avro(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the records of an Avro file.

    Raises:
        AvroError: damaged, or of a codec that is not known here.
    """
    if not data.startswith(_MAGIC):
        message = "no Avro file"
        raise AvroError(message)
    source = io.BytesIO(data)
    source.seek(len(_MAGIC))
    try:
        header: Any = fastavro.schemaless_reader(source, _HEADER, None)
        schema = _parsed(header["avro.schema"])
        codec = header.get("avro.codec", b"null").decode()
        sync = source.read(_SYNC_BYTES)
        while source.tell() < len(data):
            count, size = _read_long(source), _read_long(source)
            block = io.BytesIO(_unpacked(codec, source.read(size)))
            for _ in range(count):
                found: Any = fastavro.schemaless_reader(block, schema, None)
                yield found
            if source.read(_SYNC_BYTES) != sync:
                message = "a block ends elsewhere than it says"
                raise AvroError(message)
    except (EOFError, IndexError, KeyError, OSError, zlib.error) as damaged:
        raise AvroError(str(damaged) or type(damaged).__name__) from damaged


@lru_cache(maxsize=64)
def _parsed(schema: bytes) -> Any:  # noqa: ANN401 - a parsed schema
    return fastavro.parse_schema(msgspec.json.decode(schema))


def _plain(schema: Any) -> Any:  # noqa: ANN401 - a schema as JSON
    """Return a parsed schema without what fastavro notes in it."""
    if isinstance(schema, dict):
        return {key: _plain(value) for key, value in schema.items() if not key.startswith("__")}
    return [_plain(one) for one in schema] if isinstance(schema, list) else schema


def _unpacked(codec: str, packed: bytes) -> bytes:
    if codec == "null":
        return packed
    if codec == "deflate":
        return zlib.decompress(packed, _RAW_DEFLATE)
    if codec == _ZSTD:
        with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
            return bytes(stream.read())
    message = f"codec {codec!r} is not known here"
    raise AvroError(message)


def _long(number: int) -> bytes:
    """Encode a whole number >= 0 as Avro does: zigzag, 7 bits a byte."""
    left = number << 1
    out = bytearray()
    while left > 0x7F:  # noqa: PLR2004 - seven bits
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def _read_long(source: io.BytesIO) -> int:
    shift = found = 0
    while True:
        byte = source.read(1)[0]
        found |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return (found >> 1) ^ -(found & 1)
        shift += 7
