"""The bytes in which a lease outlives its service: JSON, with a version and a checksum."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

from lakeward.errors import CorruptFileError
from lakeward.model.leases import RestoredLease
from lakeward.model.tables import TableBucket

if TYPE_CHECKING:
    from lakeward.model.leases import Lease

VERSION = 1
_WHAT = "the lease state of backend 'fluss'"
_DIGEST = 8
"""Hex digits of the CRC-32 in front of the JSON."""


def pack(lease: Lease) -> bytes:
    """Encode a lease: a checksum, then JSON.

    It has version, id, generation, held and pending buckets, ids still to be dropped.
    """
    body = json.dumps(
        {
            "version": VERSION,
            "id": lease.lease_id,
            "generation": lease.generation,
            "held": [[*_numbers(bucket), snapshot_id] for bucket, snapshot_id in lease.held.items()],
            "pending": [_numbers(bucket) for bucket in sorted(lease.releasing, key=TableBucket.sort_key)],
            "old": [list(old) for old in lease.old_ids],
        },
        separators=(",", ":"),
    ).encode()
    return b"%08x" % zlib.crc32(body) + body


def unpack(data: bytes) -> RestoredLease:
    """Decode what `pack` gave. Pending releases go with the old id, which is dropped as a whole.

    Raises:
        CorruptFileError: not the bytes of `pack`, or of a version that is not known.
    """
    body = data[_DIGEST:]
    if data[:_DIGEST] != b"%08x" % zlib.crc32(body):
        raise CorruptFileError(_WHAT, "the checksum of its contents", data[:_DIGEST])
    try:
        state = json.loads(body)
        version = state["version"]
        if version != VERSION:
            raise CorruptFileError(_WHAT, f"version {VERSION}", version)
        return _restored(state)
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFileError(_WHAT, "id, generation, held and pending", f"{type(error).__name__}: {error}") from error


def _restored(state: dict[str, Any]) -> RestoredLease:
    held = {
        TableBucket(table_id, partition_id, bucket): snapshot_id
        for table_id, partition_id, bucket, snapshot_id in state["held"]
    }
    old_ids = tuple((str(lease_id), int(generation)) for lease_id, generation in state["old"])
    return RestoredLease(str(state["id"]), int(state["generation"]), held, old_ids)


def _numbers(bucket: TableBucket) -> list[int | None]:
    return [bucket.table_id, bucket.partition_id, bucket.bucket]
