"""What a worker reports about a file besides path, rows and size: `LakeFile.detail`."""

from __future__ import annotations

from typing import Any

import msgspec

Value = Any
"""A partition's value of one field, as Iceberg stores it: None, bool, int (dates and times too), float, str, or bytes.

Decimals are bytes. It is no union, because msgspec refuses one of text and bytes; MessagePack tells them apart.
"""


class Vector(msgspec.Struct, frozen=True, array_like=True):
    """A deletion vector: where it lies in a Puffin file, in bytes."""

    path: str
    offset: int
    size: int


DeleteFile = str | Vector
"""Deletes of a manifest entry: a file of position deletes by its path, or a deletion vector."""


class FileDetail(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Iceberg's metrics of one file, by field id, and its place in the table.

    `bounds` are Iceberg single values. `references` is the one data file that a delete file is about. `replaces` are
    the older delete files whose positions it contains as well, so that they leave the table with the same commit.
    `base_snapshot` is the snapshot that a primary-key round is pinned to. `writer` is set where a delete file is about
    a data file of an older partition spec: the spec and the key of the partition whose writer wrote it. `vector` says
    where in the file a deletion vector lies: offset and size in bytes.
    """

    partition: tuple[Value, ...]
    spec_id: int
    column_sizes: dict[int, int] = {}
    value_counts: dict[int, int] = {}
    null_counts: dict[int, int] = {}
    nan_counts: dict[int, int] = {}
    lower: dict[int, bytes] = {}
    upper: dict[int, bytes] = {}
    split_offsets: tuple[int, ...] = ()
    references: str | None = None
    replaces: tuple[DeleteFile, ...] = ()
    base_snapshot: int | None = None
    writer: tuple[int, bytes] | None = None
    vector: tuple[int, int] | None = None


_DETAILS = msgspec.msgpack.Decoder(FileDetail)
"""Made while this is imported: threads that learn a type at the same time crash the process."""


def pack_detail(detail: FileDetail) -> bytes:
    """Encode a detail."""
    return msgspec.msgpack.encode(detail)


def unpack_detail(data: bytes) -> FileDetail:
    """Decode what `pack_detail` gave."""
    return _DETAILS.decode(data)
