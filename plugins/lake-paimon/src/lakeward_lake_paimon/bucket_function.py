"""Paimon's bucket of a row (`bucket-function.type = default`): its bucket key's hash, by the number of buckets."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from lakeward_lake_paimon.binary_row import encode_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward_lake_paimon.binary_row import Value
    from lakeward_lake_paimon.kinds import Kind
    from lakeward_lake_paimon.table_schema import TableSchema

FUNCTION = "bucket-function.type"
DEFAULT = "default"
_ARITY_BYTES = 4
_SEED = 42
_BITS = 0xFFFFFFFF
_SIGN = 1 << 31


def bucket_key(schema: TableSchema) -> tuple[str, ...]:
    """Return the columns that say in which bucket of its partition a row is."""
    named = schema.options.get("bucket-key", "")
    return tuple(name.strip() for name in named.split(",")) if named else schema.key_columns


def bucket_of(values: Sequence[Value], kinds: Sequence[Kind], buckets: int) -> int:
    """Return the bucket of a row with these values of the bucket key."""
    hashed = _murmur3(encode_row(values, kinds)[_ARITY_BYTES:])
    # As Java: the remainder has the sign of the number, and is made positive.
    return (hashed if hashed < _SIGN else (1 << 32) - hashed) % buckets


def _murmur3(data: bytes) -> int:
    """Return MurmurHash3 for 32 bits, of multiples of 4 bytes, as rows have."""
    hashed = _SEED
    for (four,) in struct.iter_unpack("<I", data):
        mixed = four * 0xCC9E2D51 & _BITS
        mixed = (mixed << 15 | mixed >> 17) * 0x1B873593 & _BITS
        hashed ^= mixed
        hashed = (hashed << 13 | hashed >> 19) & _BITS
        hashed = (hashed * 5 + 0xE6546B64) & _BITS
    hashed ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        hashed = (hashed ^ hashed >> shift) * factor & _BITS
    return hashed
