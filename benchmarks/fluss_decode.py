"""How fast Fluss's formats become Arrow, without a server: rows, log batches, a KV snapshot. One thread.

python benchmarks/fluss_decode.py [--rows 500000]
"""

from __future__ import annotations

import argparse
import struct
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import google_crc32c
import pyarrow as pa
from rocksdict import Options, Rdict, WriteBatch

from lakeward_source_fluss.formats import rows
from lakeward_source_fluss.formats.encodings import Encoding
from lakeward_source_fluss.formats.kvsnapshot import read
from lakeward_source_fluss.formats.logbatch import decode, iter_batches
from lakeward_source_fluss.formats.rows import Rows
from lakeward_source_fluss.formats.schema import FlussSchema
from lakeward_source_fluss.formats.types import FlussField, FlussType, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

COLUMNS = {
    "id": FlussType(Kind.BIGINT, nullable=False),
    "small": FlussType(Kind.INTEGER),
    "kind": FlussType(Kind.STRING),
    "text": FlussType(Kind.STRING),
    "price": FlussType(Kind.DOUBLE),
    "at": FlussType(Kind.TIMESTAMP, precision=6),
    "flag": FlussType(Kind.BOOLEAN),
    "total": FlussType(Kind.DECIMAL, precision=12, scale=2),
}
SCHEMA = FlussSchema(tuple(FlussField(name, kind, None, number) for number, (name, kind) in enumerate(COLUMNS.items())))
BATCH = 10_000


def varint(value: int) -> bytes:
    """Encode an unsigned LEB128."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def compacted(count: int) -> list[bytes]:
    """Make rows: text of 20 and of 60 characters, one null in ten."""
    found = []
    for number in range(count):
        small = b"" if number % 10 == 0 else varint(number % 1000)
        stamp = varint(1_700_000_000_000 + number) + varint(number % 1000 * 1000)
        texts = b"\x14" + f"kind-{number % 20:015d}".encode() + b"\x3c" + f"{number:060d}".encode()
        head = (b"\0" if small else b"\2") + varint(number) + small
        found.append(head + texts + struct.pack("<d", number / 3) + stamp + bytes([number & 1]) + varint(number * 7))
    return found


def indexed(count: int) -> list[bytes]:
    """Make the same rows in the indexed format, without nulls."""
    return [
        b"\0"
        + struct.pack("<iiqi", 20, 60, number, number % 1000)
        + f"kind-{number % 20:015d}{number:060d}".encode()
        + struct.pack("<dqi?q", number / 3, 1_700_000_000_000 + number, number % 1000 * 1000, number & 1, number * 7)
        for number in range(count)
    ]


def arrow_log(table: pa.Table, codec: str | None) -> bytes:
    """Make a log of Arrow batches."""
    options = pa.ipc.IpcWriteOptions(compression=codec)
    log = bytearray()
    for number, batch in enumerate(table.to_batches(max_chunksize=BATCH)):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
            writer.write_batch(batch)
        messages = pa.ipc.MessageReader.open_stream(sink.getvalue())
        messages.read_next_message()
        payload = messages.read_next_message().serialize().to_pybytes()
        tail = struct.pack("<hbiqii", 1, 1, batch.num_rows - 1, -1, -1, batch.num_rows) + payload
        head = struct.pack("<bqI", 0, 0, google_crc32c.value(tail))
        log += struct.pack("<qi", number * BATCH, len(head) + len(tail)) + head + tail
    return bytes(log)


def snapshot(values: list[bytes], directory: Path) -> None:
    """Make a database."""
    database = Rdict(str(directory), Options(raw_mode=True))
    for start in range(0, len(values), BATCH):
        batch = WriteBatch(raw_mode=True)
        for number, value in enumerate(values[start : start + BATCH], start):
            batch.put(number.to_bytes(8, "big"), b"\1\0" + value)
        database.write(batch)
    database.flush()
    database.close()


def measure(what: str, count: int, work: Callable[[], Iterable[pa.RecordBatch]]) -> None:
    """Print the best of three, in seconds of CPU: other work on the machine does not count."""
    best = min(_once(count, work) for _ in range(3))
    print(f"{what:44} {count / best / 1e6:7.2f} M rows/s/core")


def _once(count: int, work: Callable[[], Iterable[pa.RecordBatch]]) -> float:
    start = time.process_time()
    assert sum(batch.num_rows for batch in work()) == count
    return time.process_time() - start


def main() -> None:
    """Measure every decoder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    count = parser.parse_args().rows
    pa.set_cpu_count(1)
    target = SCHEMA.to_arrow()
    values = compacted(count)
    parts = [Rows.of(values[start : start + (1 << 15)]) for start in range(0, count, 1 << 15)]
    both = {"compacted": (Encoding.COMPACTED, parts), "indexed": (Encoding.INDEXED, [Rows.of(indexed(count))])}
    for name, (encoding, some) in both.items():
        measure(f"{name} rows, 8 columns", count, partial(_rows, some, encoding))
    table = pa.Table.from_batches([rows.decode(part, SCHEMA, target, Encoding.COMPACTED) for part in parts])
    for codec in (None, "lz4", "zstd"):
        log = memoryview(arrow_log(table, codec))
        name = f"Arrow log, {codec or 'not compressed'}, {len(log) // count} bytes/row"
        measure(name, count, partial(_log, log))
    with tempfile.TemporaryDirectory() as directory:
        snapshot(values, Path(directory))
        measure("KV snapshot, from RocksDB to Arrow", count, lambda: read(Path(directory), {1: SCHEMA}, target))


def _rows(parts: list[Rows], encoding: Encoding) -> list[pa.RecordBatch]:
    return [rows.decode(part, SCHEMA, SCHEMA.to_arrow(), encoding) for part in parts]


def _log(log: memoryview) -> list[pa.RecordBatch]:
    return [decode(batch, SCHEMA, SCHEMA.to_arrow()) for batch in iter_batches(log)]


if __name__ == "__main__":
    main()
