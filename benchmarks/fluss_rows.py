"""Rows of the benchmarks of the Fluss source, and those who write them with pyfluss, in processes of their own."""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa

from lakeward_demo.fluss.writer import FlussWriter

STEP = 500_000
BATCH = 10_000
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("small", pa.int32()),
        ("short", pa.string()),
        ("long", pa.string()),
        ("price", pa.float64()),
        ("at", pa.timestamp("us")),
        ("flag", pa.bool_()),
        ("amount", pa.decimal128(12, 2)),
    ]
)


def rows(start: int, count: int) -> pa.Table:
    """Eight columns: int64, int32, text of about 20, text of about 60, double, time, boolean, decimal(12, 2).

    The short text is one of 10,000; no two long ones are the same.
    """
    random = np.random.default_rng(start)
    numbers = random.integers(0, 10_000, count)
    cents = np.zeros((count, 2), "<i8")
    cents[:, 0] = random.integers(0, 10**9, count)
    amounts = pa.Array.from_buffers(pa.decimal128(12, 2), count, [None, pa.py_buffer(cents.tobytes())])
    return pa.table(
        [
            np.arange(start, start + count),
            random.integers(0, 1000, count, dtype=np.int32),
            _texts().take(pa.array(numbers)),
            _long(random, count),
            random.random(count),
            pa.array(np.arange(start, start + count) + 1_700_000_000_000_000, pa.timestamp("us")),
            random.random(count) < 0.5,
            amounts,
        ],
        schema=SCHEMA,
    )


@cache
def _texts() -> pa.Array:
    """Return 10,000 texts of 12 to 28 characters."""
    letters = np.random.default_rng(28).integers(97, 123, (10_000, 28), dtype=np.uint8)
    return pa.array([bytes(line[: 12 + n % 16]).decode() for n, line in enumerate(letters)])


def _long(random: np.random.Generator, count: int) -> pa.Array:
    """Return texts of 40 to 80 characters: hexadecimal digits, as ids and hashes are."""
    ends = np.zeros(count + 1, "<i4")
    ends[1:] = np.cumsum(random.integers(40, 81, count))
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)[random.integers(0, 16, ends[-1], dtype=np.uint8)]
    return pa.StringArray.from_buffers(count, pa.py_buffer(ends.tobytes()), pa.py_buffer(digits.tobytes()))


def append(bootstrap: str, name: str, start: int, count: int) -> None:
    """Append rows to a log table."""
    writer = FlussWriter(bootstrap)
    end = start + count
    for first in range(start, end, STEP):
        # Each batch has buffers of its own: a slice is sent with all that it was cut from.
        places = range(first, min(first + STEP, end), BATCH)
        writer.append(name, pa.concat_tables([rows(place, min(BATCH, end - place)) for place in places]))
    writer.close()


def upsert(bootstrap: str, name: str, start: int, count: int) -> None:
    """Upsert rows into a primary-key table."""
    writer = FlussWriter(bootstrap)
    for first in range(start, start + count, STEP):
        writer.upsert(name, rows(first, min(STEP, start + count - first)))
    writer.close()


def change(bootstrap: str, name: str, total: int, updates: int, deletes: int) -> None:
    """Update rows of a primary-key table of so many, and delete others, all spread over the whole table."""
    writer = FlussWriter(bootstrap)
    chosen = np.random.default_rng(1).permutation(total)[: updates + deletes]
    table = rows(total, updates).set_column(0, SCHEMA.field("id"), pa.array(np.sort(chosen[:updates])))
    for first in range(0, updates, STEP):
        writer.upsert(name, table.slice(first, STEP))
    for first in range(updates, len(chosen), STEP):
        writer.change(name, [("delete", {"id": int(number)}) for number in chosen[first : first + STEP]])
    writer.close()
