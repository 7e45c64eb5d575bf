"""What the compaction of an Iceberg table costs, against pyiceberg and DuckDB that read and write the same rows.

    python benchmarks/compaction_iceberg.py [--mib 1024] [--files 64]

Tiers a log table of about so many MiB in so many files of one partition, through the lake port. Then, each in a process
of its own: pyiceberg reads the table and appends its rows to another one; DuckDB reads it by its Iceberg extension, and
copies it to Parquet in the order of the rows; and the job of upkeep that is due is planned, done and committed. All
write zstd 1. Printed: processor time of each (all threads, without imports), peak memory, files and bytes that were
written, and the compaction's time as a multiple of the others'. DuckDB reads the same sums before and after.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from lakeward.clock import SystemClock
from lakeward.model.batches import SourceBatch, batch_schema, log_records
from lakeward.model.identity import UPKEEP, RoundId
from lakeward.model.results import CommitOutcome
from lakeward.model.tables import Change
from lakeward.model.upkeep import UpkeepCommit, UpkeepOutcome
from lakeward_lake_iceberg.options import IcebergOptions
from lakeward_lake_iceberg.plugin import IcebergLakePlugin
from lakeward_testing.lake_tables import PATH, TieringRound, head_of, incarnation, log_split, log_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyiceberg.table import Table

MIB = 1 << 20
BATCH_ROWS = 1 << 16
ROW_BYTES = 18
"""Of a row, compressed by zstd 1."""
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("part", pa.int32()),
        pa.field("price", pa.float64()),
        pa.field("discount", pa.float64()),
        pa.field("shipped", pa.date32()),
        pa.field("status", pa.string()),
        pa.field("clerk", pa.string()),
        pa.field("comment", pa.string()),
    ]
)
WORDS = np.array([f"{first}{last}" for first in ("qui", "fur", "sle", "blit", "pend") for last in range(200)])


class Spent(NamedTuple):
    """What one way took and wrote."""

    cpu_s: float
    peak_mib: float
    files: int
    size_mib: float


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--files", type=int, default=64)
    told = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as folder:
        warehouse = f"{folder}/warehouse"
        rows = tier(warehouse, told.mib, told.files)
        before = summed(warehouse)
        ways: dict[str, Callable[[str, str], None]] = {"pyiceberg": append_again, "DuckDB": copy, "Lakeward": compact}
        found: dict[str, Spent] = {}
        for name, way in ways.items():
            # A new process for each: its peak is its own.
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
                found[name] = pool.submit(measured, way, warehouse, f"{folder}/{name}").result()
        print(f"{rows:,} rows in {told.files} files of about {told.mib} MiB")
        for name, one in found.items():
            print(
                f"{name}: {one.cpu_s:.1f} s of processor time, peak {one.peak_mib:.0f} MiB, "
                f"{one.files} files of {one.size_mib:.0f} MiB"
            )
        for name in ("pyiceberg", "DuckDB"):
            print(f"Lakeward / {name} = {found['Lakeward'].cpu_s / found[name].cpu_s:.2f}")
        assert summed(warehouse) == before


def tier(warehouse: str, mib: int, files: int) -> int:
    """Write a table of so many files; return how many rows it has."""
    plugin = IcebergLakePlugin()
    lake: Any = plugin.open(IcebergOptions(warehouse=warehouse), SystemClock())
    table, random = log_table(SCHEMA, buckets=1), np.random.default_rng(7)
    rows = 0
    for number in range(1, files + 1):
        tiering = TieringRound(plugin, lake, table, incarnation(), number)
        batches: list[SourceBatch] = []
        for _ in range(max(1, mib * MIB // files // ROW_BYTES // BATCH_ROWS)):
            batches.append(batch_of(random, rows))
            rows += BATCH_ROWS
        tiering.write(log_split(table), batches)
        assert lake.commit(tiering.request()) is CommitOutcome.LANDED
    lake.close()
    return rows


def batch_of(random: np.random.Generator, start: int) -> SourceBatch:
    """Return rows of which some columns repeat and some do not."""
    count = BATCH_ROWS
    words = WORDS[random.integers(0, len(WORDS), (4, count))]
    comment = np.char.add(np.char.add(words[0], " "), np.char.add(np.char.add(words[1], " "), words[2]))
    columns = [
        pa.array(np.arange(start, start + count)),
        pa.array(random.integers(0, 200_000, count, dtype=np.int32)),
        pa.array(np.round(random.random(count) * 100_000, 2)),
        pa.array(random.integers(0, 11, count) / 100),
        pa.array(random.integers(8000, 11_000, count, dtype=np.int32)).cast(pa.date32()),
        pa.array(np.array(["open", "shipped", "returned"])[random.integers(0, 3, count)]),
        pa.array(np.char.add("clerk-", random.integers(0, 1000, count).astype(str))),
        pa.array(comment),
    ]
    rows = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    return SourceBatch(log_records(batch_schema(SCHEMA), rows, Change.APPEND, start, 0), start + count)


def measured(way: Callable[[str, str], None], warehouse: str, out: str) -> Spent:
    """Do it one way, in this process."""
    started = time.process_time()
    way(warehouse, out)
    cpu_s = time.process_time() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    where, names = (warehouse, "merged-*.parquet") if way is compact else (out, "*.parquet")
    written = [*Path(where).rglob(names)]
    return Spent(cpu_s, peak, len(written), sum(one.stat().st_size for one in written) / MIB)


def compact(warehouse: str, _: str) -> None:
    """Do what upkeep is due."""
    plugin = IcebergLakePlugin()
    lake: Any = plugin.open(IcebergOptions(warehouse=warehouse), SystemClock())
    upkeep_id = RoundId(incarnation(), 7, UPKEEP, 1)
    plan = lake.plan_upkeep(PATH, upkeep_id, 8)
    results = tuple(plugin.upkeep(task, 0, lambda: None) for task in plan.tasks)
    commit = UpkeepCommit(PATH, upkeep_id, lake.new_ids(PATH), head_of(lake).snapshot_id, plan.tasks, results)
    assert lake.commit_upkeep(commit) is UpkeepOutcome.LANDED
    lake.close()


def append_again(warehouse: str, out: str) -> None:
    """Read by pyiceberg, and append to a table without partitions."""
    source = loaded(warehouse)
    Path(out).mkdir()
    catalog = SqlCatalog("other", uri=f"sqlite:///{out}/catalog.db", warehouse=f"file://{out}")
    catalog.create_namespace("shop")
    properties = {"write.parquet.compression-codec": "zstd", "write.parquet.compression-level": "1"}
    properties["write.target-file-size-bytes"] = str(128 * MIB)
    rows = source.scan().to_arrow()
    catalog.create_table("shop.orders", rows.schema, properties=properties).append(rows)


def copy(warehouse: str, out: str) -> None:
    """Copy by DuckDB."""
    Path(out).mkdir()
    scan = f"iceberg_scan('{loaded(warehouse).metadata_location}')"
    how = "FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, FILE_SIZE_BYTES '128MiB'"
    duckdb_connection().execute(f"COPY (SELECT * FROM {scan}) TO '{out}' ({how})")  # noqa: S608 - of this file


def summed(warehouse: str) -> list[tuple[object, ...]]:
    """Return sums over the rows of the table."""
    scan = f"iceberg_scan('{loaded(warehouse).metadata_location}')"
    query = f"SELECT count(*), sum(id), sum(part), max(comment), sum(hash(clerk, status)) FROM {scan}"  # noqa: S608 - of this file
    return cast("list[tuple[object, ...]]", duckdb_connection().execute(query).fetchall())


def loaded(warehouse: str) -> Table:
    """Load the table as another program does."""
    return SqlCatalog("lakeward", uri=f"sqlite:///{warehouse}/catalog.db").load_table(str(PATH))


def duckdb_connection() -> Any:  # noqa: ANN401 - DuckDB is not typed
    """Open DuckDB with its Iceberg extension."""
    duckdb = import_module("duckdb")
    connection = duckdb.connect()
    for name in ("avro", "iceberg"):
        package = Path(import_module(f"duckdb_extension_{name}").__path__[0])
        connection.execute(f"LOAD '{package}/extensions/v{duckdb.__version__}/{name}.duckdb_extension'")
    return connection


if __name__ == "__main__":
    main()
