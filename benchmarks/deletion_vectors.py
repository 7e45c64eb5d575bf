"""What rounds of a key table and reads of it cost, with deletion vectors and with position deletes, in one run.

    python benchmarks/deletion_vectors.py [--keys 1000000] [--rounds 20] [--share 0.02]

Tiers a table of one bucket with so many keys and then so many rounds, each of which changes a share of random keys,
through the lake port: once in Iceberg's format version 2, with position deletes, and once in version 3, with deletion
vectors. The rounds of both alternate, so that a slow minute hits both, and nothing is merged. All seconds are those of
processor time, of all threads. Printed for each: seconds of a round (median of the first and of the last five), files
and bytes of deletes, seconds of the fastest of three reads by DuckDB and by pyarrow behind pyiceberg's plan, and the
ratios of both formats.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from lakeward.model.results import CommitOutcome
from lakeward.model.tables import CHANGE_COLUMN, OFFSET_COLUMN, TIMESTAMP_COLUMN, Change
from lakeward.ports import SourceBatch
from lakeward_lake_iceberg.options import IcebergOptions
from lakeward_lake_iceberg.plugin import IcebergLakePlugin
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import PATH, TieringRound, incarnation, key_table, log_split

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward_lake_iceberg.lake import IcebergLake

READS = 3
SHOWN = 5
BATCH_ROWS = 1 << 17
FORMATS = {"position deletes": "2", "deletion vectors": "3"}


@dataclass(slots=True)
class Measured:
    """A table of one format, and the seconds of its rounds."""

    plugin: IcebergLakePlugin
    lake: IcebergLake
    warehouse: str
    version: str
    rounds: list[float] = field(default_factory=list)

    def tier(self, number: int, keys: np.ndarray[Any, np.dtype[np.int64]], start: int) -> None:
        """Commit a round that sets these keys."""
        table = key_table(buckets=1, lake_properties={"format-version": self.version})
        started = time.process_time()
        tiering = TieringRound(self.plugin, self.lake, table, incarnation(), number)
        batches = [batch(number, keys[at : at + BATCH_ROWS], start + at) for at in range(0, len(keys), BATCH_ROWS)]
        tiering.write(log_split(table), batches)
        assert self.lake.commit(tiering.request()) is CommitOutcome.LANDED
        self.rounds.append(time.process_time() - started)

    @property
    def catalog(self) -> SqlCatalog:
        """The catalog as another program opens it."""
        return SqlCatalog(
            "lakeward", uri=f"sqlite:///{self.warehouse}/catalog.db", warehouse=f"file://{self.warehouse}"
        )


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--share", type=float, default=0.02)
    told = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as folder:
        tables = {name: opened(f"{folder}/{version}", version) for name, version in FORMATS.items()}
        random = np.random.default_rng(1)
        changed = int(told.keys * told.share)
        for number in range(told.rounds + 1):
            keys = random.permutation(told.keys) if number == 0 else random.choice(told.keys, changed, replace=False)
            for table in tables.values():
                table.tier(number + 1, keys, number * told.keys)
        print(f"{told.keys:,} keys, {told.rounds} rounds of {changed:,} changes")
        found = {name: measured(name, table) for name, table in tables.items()}
        for what in found["deletion vectors"]:
            old, new = (found[name][what] for name in FORMATS)
            print(f"{what}: position deletes / deletion vectors = {old / new:.2f}")
        for table in tables.values():
            table.lake.close()


def opened(warehouse: str, version: str) -> Measured:
    """Open a lake in which nothing is merged."""
    plugin = IcebergLakePlugin()
    lake = plugin.open(IcebergOptions(warehouse=warehouse, compaction="none"), FakeClock())
    return Measured(plugin, lake, warehouse, version)  # type: ignore[arg-type]  # the plugin opens this lake


def batch(number: int, keys: np.ndarray[Any, np.dtype[np.int64]], start: int) -> SourceBatch:
    """Return upserts of keys."""
    count = len(keys)
    offsets = np.arange(start, start + count, dtype=np.int64)
    columns = {
        "id": pa.array(keys, pa.int64()),
        "name": pa.array([f"{number}-{key}" for key in keys]),
        CHANGE_COLUMN: pa.array(np.full(count, Change.UPDATE_AFTER, dtype=np.uint8)),
        OFFSET_COLUMN: pa.array(offsets),
        TIMESTAMP_COLUMN: pa.array(offsets).cast(pa.timestamp("us", "UTC")),
    }
    return SourceBatch(pa.RecordBatch.from_pydict(columns), start + count)


def measured(name: str, table: Measured) -> dict[str, float]:
    """Read a table, print what was found, and return it for the ratios."""
    loaded = table.catalog.load_table(str(PATH))
    connection = duckdb.connect()
    for one in ("avro", "iceberg"):
        package = import_module(f"duckdb_extension_{one}")
        place = Path(package.__path__[0]) / "extensions" / f"v{duckdb.__version__}" / f"{one}.duckdb_extension"
        connection.execute(f"LOAD '{place}'")
    query = f"SELECT count(*), sum(id), max(name) FROM iceberg_scan('{loaded.metadata_location}')"  # noqa: S608 - our own path
    by_duckdb, rows = fastest(lambda: connection.execute(query).fetchall())
    by_pyarrow, count = fastest(lambda: loaded.scan(selected_fields=("id", "name")).to_arrow().num_rows)
    assert rows[0][0] == count
    deletes = [one for one in Path(table.warehouse).rglob("*-deletes.*") if one.is_file()]
    size = sum(one.stat().st_size for one in deletes)
    first, last = (statistics.median(some) for some in (table.rounds[1 : SHOWN + 1], table.rounds[-SHOWN:]))
    print(
        f"{name}: round {first:.3f} s at first, {last:.3f} s at last; {len(live_deletes(table))} live of "
        f"{len(deletes)} delete files of {size:,} bytes; DuckDB {by_duckdb:.3f} s, pyiceberg {by_pyarrow:.3f} s"
    )
    return {
        "round, first five": first,
        "round, last five": last,
        "delete files": len(live_deletes(table)),
        "read by DuckDB": by_duckdb,
        "read by pyiceberg": by_pyarrow,
    }


def live_deletes(table: Measured) -> set[str]:
    """Return the delete files of the head."""
    tasks = table.catalog.load_table(str(PATH)).scan().plan_files()
    return {one.file_path for task in tasks for one in task.delete_files}


def fastest(read: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds of the fastest read, and what it gave."""
    spent, found = [], None
    for _ in range(READS):
        started = time.process_time()
        found = read()
        spent.append(time.process_time() - started)
    return min(spent), found


if __name__ == "__main__":
    main()
