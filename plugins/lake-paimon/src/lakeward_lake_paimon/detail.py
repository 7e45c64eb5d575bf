"""What a worker reports about a file besides path, rows and size: `LakeFile.detail`."""

from __future__ import annotations

import msgspec

CHANGELOG = "changelog"
"""The kind of a `LakeFile` whose rows are changes for streaming readers, besides `data`."""


class FileDetail(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file's place in the table, and what a manifest says of it.

    `partition`, keys and statistics are rows as a manifest holds them (`binary_row`). `first_offset` orders the files
    of a bucket of a log table. `base_snapshot` is the head that the sequence numbers of a key table continue.
    `layout` is the partitioning where it is the lake's own. `stats_columns` are those that have statistics, in their
    order; None: all.
    """

    partition: bytes
    bucket: int
    total_buckets: int
    schema_id: int
    created_ms: int
    first_offset: int = 0
    min_sequence: int = 0
    max_sequence: int = 0
    min_key: bytes = b""
    max_key: bytes = b""
    least_key: bytes = b""
    greatest_key: bytes = b""
    least_values: bytes = b""
    greatest_values: bytes = b""
    nulls: tuple[int | None, ...] = ()
    stats_columns: tuple[str, ...] | None = ()
    deleted_rows: int = 0
    base_snapshot: int = 0
    layout: str = ""


_DETAILS = msgspec.msgpack.Decoder(FileDetail)
"""Made while this is imported: threads that learn a type at the same time crash the process."""


def pack_detail(detail: FileDetail) -> bytes:
    """Encode a detail."""
    return msgspec.msgpack.encode(detail)


def unpack_detail(data: bytes) -> FileDetail:
    """Decode what `pack_detail` gave."""
    return _DETAILS.decode(data)
