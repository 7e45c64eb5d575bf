"""Assigns rows to buckets by Iceberg's bucket function, so that readers can prune the lake table's partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakeward.errors import UsageError
from lakeward_source_embedded.byte_hash import Slices, murmur3_32, murmur3_32_of_int64, slices_of

if TYPE_CHECKING:
    import numpy.typing as npt

_TO_MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_DECIMAL_BYTES = 16
_SIGN, _ONES = 0x80, 0xFF


def check_bucket_type(column: str, data_type: pa.DataType) -> None:
    """Refuse a bucket key that Iceberg, or Fluss for an Iceberg table, could not bucket by.

    Raises:
        UsageError: names column and type.

    Source: fluss.md, "KV snapshots and rows" (Iceberg key).
    """
    types = pa.types
    fits = (
        types.is_int32(data_type)
        or types.is_int64(data_type)
        or types.is_date32(data_type)
        or types.is_time(data_type)
        or (types.is_timestamp(data_type) and data_type.tz is None)
        or types.is_decimal128(data_type)
        or types.is_string(data_type)
        or types.is_binary(data_type)
        or types.is_fixed_size_binary(data_type)
    )
    if not fits:
        message = (
            f"bucket key {column!r}: expected int, bigint, date, time, timestamp, decimal, string or binary, "
            f"found {data_type}"
        )
        raise UsageError(message)


def bucket_of(values: pa.Array, buckets: int) -> npt.NDArray[np.int64]:
    """Return the bucket of each value.

    Args:
        values: one column without nulls, of a type that `check_bucket_type` accepts.
        buckets: > 0.

    Returns:
        Bucket numbers, 0 <= n < `buckets`.

    Source: Iceberg's bucket transform: (murmur3_32, seed 0, & 0x7fffffff) mod n.
    """
    hashes = _hashes(values) & np.uint32(0x7FFFFFFF)
    return hashes.astype(np.int64) % buckets


def int64_of(values: pa.Array) -> npt.NDArray[np.int64]:
    """View a fixed-width column of up to 64 bits as integers (booleans as 0 and 1, times in their own unit)."""
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    width = values.type.bit_width // 8
    raw = np.frombuffer(values.buffers()[1], dtype=f"<i{width}") if len(values) else np.zeros(0, dtype=np.int64)
    return raw[values.offset : values.offset + len(values)].astype(np.int64)


def decimal_bytes(values: pa.Array) -> npt.NDArray[np.uint8]:
    """Return the unscaled values of a decimal128 column as rows of 16 big-endian bytes."""
    if len(values) == 0:
        return np.zeros((0, _DECIMAL_BYTES), dtype=np.uint8)
    raw = np.frombuffer(values.buffers()[1], dtype=np.uint8).reshape(-1, _DECIMAL_BYTES)
    return np.ascontiguousarray(raw[values.offset : values.offset + len(values), ::-1])


def _hashes(values: pa.Array) -> npt.NDArray[np.uint32]:
    data_type = values.type
    if pa.types.is_decimal128(data_type):
        return murmur3_32(_minimal(decimal_bytes(values)))
    if pa.types.is_string(data_type) or pa.types.is_binary(data_type) or pa.types.is_fixed_size_binary(data_type):
        return murmur3_32(slices_of(values))
    integers = int64_of(values)
    if pa.types.is_time(data_type) or pa.types.is_timestamp(data_type):
        unit = data_type.unit
        integers = integers // 1_000 if unit == "ns" else integers * _TO_MICROS[unit]
    return murmur3_32_of_int64(integers)


def _minimal(rows: npt.NDArray[np.uint8]) -> Slices:
    """Strip redundant sign bytes: the shortest two's complement, at least one byte."""
    count = len(rows)
    skip = np.zeros(count, dtype=np.int64)
    sign = np.where(rows[:, 0] >= _SIGN, _ONES, 0).astype(np.uint8)
    redundant = np.ones(count, dtype=bool)
    for position in range(_DECIMAL_BYTES - 1):
        same_sign = (rows[:, position + 1] >= _SIGN) == (sign == _ONES)
        redundant &= (rows[:, position] == sign) & same_sign
        skip += redundant
    data = np.concatenate([rows.reshape(-1), np.zeros(8, dtype=np.uint8)])
    return Slices(data, np.arange(count, dtype=np.int64) * _DECIMAL_BYTES + skip, _DECIMAL_BYTES - skip)
