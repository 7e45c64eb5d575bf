from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from lakeward.errors import UsageError
from lakeward_source_embedded.buckets import bucket_of, check_bucket_type
from lakeward_source_embedded.keys import key_hashes


@pytest.mark.parametrize(
    ("value", "data_type", "bucket"),
    [
        (b"\x01", pa.binary(), 11),
        (b"\xff", pa.binary(), 13),
        (b"\x01\x02\x03\x04", pa.binary(), 5),
        (b"\x01\x02\x03\x04\x85", pa.binary(5), 13),
        ("abc", pa.string(), 10),
        ("hello world", pa.string(), 15),
        ("hello-paimon", pa.string(), 10),
        (42, pa.int32(), 14),
        (-1, pa.int32(), 8),
        (43, pa.int64(), 0),
        (19000, pa.date32(), 4),
        (1700000000123456, pa.timestamp("us"), 11),
        (Decimal("123.45"), pa.decimal128(10, 2), 4),
        (Decimal("-1.00"), pa.decimal128(10, 2), 3),
        (3723004, pa.time32("ms"), 9),
    ],
)
def test_bucket_is_the_one_of_icebergs_function(value: object, data_type: pa.DataType, bucket: int) -> None:
    values = pa.array([None, value, value], data_type)[1:]

    assert bucket_of(values, 16).tolist() == [bucket, bucket]


def test_type_that_iceberg_cannot_bucket_by_is_refused() -> None:
    for data_type in (pa.int8(), pa.bool_(), pa.float64(), pa.timestamp("us", "UTC"), pa.list_(pa.int32())):
        with pytest.raises(UsageError, match="bucket key 'x'"):
            check_bucket_type("x", data_type)


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["", "a", "b", "ab", "ba", "a\0", "\0a", "x" * 8, "x" * 9, "x" * 17, "x" * 16 + "y"]),
        pa.array([b"\0", b"\0\0", b"\0" * 8, b"\0" * 16]),
        pa.array(range(-5000, 5000), pa.int64()),
        pa.array([Decimal(n) for n in range(-50, 50)], pa.decimal128(38, 0)),
        pa.array([2**64 - 1, 2**64, 2**65], pa.decimal128(38, 0)),
        pa.array([True, False]),
    ],
)
def test_different_keys_have_different_hashes(column: pa.Array) -> None:
    batch = pa.record_batch([column], names=["k"])

    hashes = key_hashes(batch, ("k",))

    assert len(np.unique(hashes)) == len(column)
    assert (key_hashes(batch.slice(1), ("k",)) == hashes[1:]).all()


def test_every_column_of_a_key_counts() -> None:
    batch = pa.record_batch([pa.array([1, 1, 2, 2]), pa.array(["a", "b", "a", "b"])], names=["n", "s"])

    assert len(np.unique(key_hashes(batch, ("n", "s")))) == 4
    assert len(np.unique(key_hashes(batch, ("s", "n")))) == 4
