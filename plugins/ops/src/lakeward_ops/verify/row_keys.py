"""Keys of rows: to which spill file a row goes, and which rows have the same key."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]
    Hashes = npt.NDArray[np.uint64]

_BITS = 6
PARTS = 1 << _BITS
"""Spill files into which rows are divided at each level."""
LEVELS = 10
"""So often rows can be divided further: then no bits of the hash are left."""
COUNT = pa.field("__count", pa.int64(), nullable=False)
"""How often a row was there; no table's column has such a name twice over, for it is added last."""
types = pa.types


def part_numbers(columns: Sequence[pa.Array], level: int) -> Numbers:
    """Return for each row the number of its spill file, below `PARTS`.

    `columns` are the key, of the types in which it is compared. `level` is 0 for the first division, then 1, and so on.
    """
    hashed = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        hashed = _mix(hashed ^ _mix(_hash(column)))
    return ((hashed >> np.uint64(_BITS * level)) & np.uint64(PARTS - 1)).astype(np.int64)


def row_numbers(tables: Sequence[Sequence[pa.Array]]) -> list[Numbers]:
    """Number the keys of rows: two rows have the same number if they have the same key. Numbers start at 0.

    For each side, `tables` has the columns of its key, in the same order and of the same types.
    """
    sizes = [len(columns[0]) for columns in tables]
    numbers = np.zeros(sum(sizes), dtype=np.int64)
    for column in zip(*tables, strict=True):
        encoded = pc.dictionary_encode(pa.concat_arrays(column), null_encoding="encode")
        values = np.asarray(encoded.indices).astype(np.int64)
        _, numbers = np.unique(numbers * max(1, len(encoded.dictionary)) + values, return_inverse=True)
        numbers = numbers.astype(np.int64).reshape(-1)
    return np.split(numbers, np.cumsum(sizes)[:-1])


def last_of_each(rows: pa.Table, key: Sequence[pa.Array]) -> pa.Table:
    """Return the last row of each key, in the order of the rows."""
    (numbers,) = row_numbers([key])
    last = np.zeros(int(numbers.max()) + 1 if len(numbers) else 0, dtype=np.int64)
    last[numbers] = np.arange(len(numbers))  # of several values for one place, the last one stays
    return rows.take(np.sort(last))


def counted(rows: pa.Table, key: Sequence[pa.Array]) -> pa.Table:
    """Return the first row of each key, with how often the key is there.

    `COUNT` in `rows` says how often each row was.
    """
    (numbers,) = row_numbers([key])
    first = np.unique(numbers, return_index=True)[1]
    counts = np.zeros(len(first), dtype=np.int64)
    np.add.at(counts, numbers, rows.column(COUNT.name).to_numpy())
    place = rows.schema.get_field_index(COUNT.name)
    return rows.take(first).set_column(place, COUNT, pa.array(counts))


def _hash(column: pa.Array) -> Hashes:
    if types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if types.is_date32(column.type) or types.is_time32(column.type):
        column = column.view(pa.int32())
    elif types.is_temporal(column.type):
        column = column.view(pa.int64())
    if types.is_integer(column.type):
        return np.asarray(pc.fill_null(column.cast(pa.int64()), -1)).astype(np.int64).view(np.uint64)
    if not types.is_large_binary(column.type):
        column = column.cast(pa.large_string()).cast(pa.large_binary())
    values = (zlib.crc32(value or b"") for value in column.to_pylist())
    return np.fromiter(values, dtype=np.uint64, count=len(column))


def _mix(numbers: Hashes) -> Hashes:
    """Spread differences over all bits (the finalizer of splitmix64)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        numbers = (numbers ^ (numbers >> np.uint64(shift))) * np.uint64(factor)
    return numbers ^ (numbers >> np.uint64(31))
