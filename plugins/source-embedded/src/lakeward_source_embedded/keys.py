"""Hashes primary keys to 64 bits, and checks that two rows with one hash have the same key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.errors import SourceError
from lakeward_source_embedded.buckets import decimal_bytes, int64_of
from lakeward_source_embedded.byte_hash import hash64, mix64, slices_of

if TYPE_CHECKING:
    import numpy.typing as npt

    Words = npt.NDArray[np.uint64]

_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def key_hashes(records: pa.RecordBatch, primary_key: tuple[str, ...]) -> Words:
    """Hash the key of each row; one integer column is hashed one to one, so it can never collide.

    Key columns have no nulls.
    """
    state = np.zeros(len(records), dtype=np.uint64)
    for position, name in enumerate(primary_key):
        words = _words(records.column(name))
        state = mix64(words if position == 0 else state * _FACTOR ^ words)
    return state


def check_same_keys(left: pa.RecordBatch, right: pa.RecordBatch, primary_key: tuple[str, ...]) -> None:
    """Check that rows with equal hashes have equal keys; row n of `right` has the hash of row n of `left`.

    Raises:
        SourceError: two keys share a hash (once in 10^6 tables of 5 million text keys); nothing was changed.
    """
    for name in primary_key:
        equal = pc.equal(left.column(name), right.column(name))
        if not pc.all(equal).as_py():
            at = int(np.flatnonzero(~equal.fill_null(fill_value=False).to_numpy(zero_copy_only=False))[0])
            found = [tuple(side.column(key)[at].as_py() for key in primary_key) for side in (left, right)]
            message = f"the keys {found[0]!r} and {found[1]!r} share a hash and cannot be in one table"
            raise SourceError(message)


def _words(values: pa.Array) -> Words:
    data_type = values.type
    if pa.types.is_decimal128(data_type):
        halves = decimal_bytes(values).view(">u8").astype(np.uint64)
        return mix64(halves[:, 0]) ^ halves[:, 1]
    if pa.types.is_string(data_type) or pa.types.is_binary(data_type) or pa.types.is_fixed_size_binary(data_type):
        return hash64(slices_of(values))
    return int64_of(values).view(np.uint64)
