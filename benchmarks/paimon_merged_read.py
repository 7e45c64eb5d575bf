"""What reading a key table of Paimon costs after many rounds, with our compaction and without, by Paimon's own reader.

    python benchmarks/paimon_merged_read.py [--rounds 100] [--changes 2000] [--keys 50000]

Two tables of one bucket get the same rounds of upserts and deletes of random keys through the lake port, in turn; one
is compacted after each round, as far as it is due. Then pypaimon, in an environment of its own, and the lake reads
all rows of each, and the rows are compared. Printed for each table: files of the bucket, seconds of processor time of
rounds and of compaction; for each reader the fastest of three reads by the clock, and without / with.
"""

from __future__ import annotations

import argparse
import tempfile
import time

import pyarrow as pa

from lakeward_lake_paimon.options import PaimonOptions
from lakeward_lake_paimon.plugin import PaimonLakePlugin
from lakeward_paimon_kit.reader import PythonReader
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import PATH, head_of
from paimon_compaction import READS, compact, read, tier


class Contender:
    """One of the two tables, in a warehouse of its own, with what it has cost in seconds of processor time."""

    def __init__(self, warehouse: str, *, compacts: bool) -> None:
        """Open the lake."""
        self.warehouse = warehouse
        self.rounds_s = self.compaction_s = 0.0
        self._plugin = PaimonLakePlugin()
        self.lake = self._plugin.open(PaimonOptions(warehouse=warehouse), FakeClock())
        self._compacts = compacts
        self._jobs = 0

    def tier(self, number: int, changes: int, keys: int) -> None:
        """Run a round, and compact what is due."""
        started = time.process_time()
        tier(self._plugin, self.lake, number, changes, keys)
        between = time.process_time()
        if self._compacts:
            self._jobs = compact(self._plugin, self.lake, self._jobs)
        self.rounds_s += between - started
        self.compaction_s += time.process_time() - between

    def read_by(self, reader: PythonReader) -> tuple[float, pa.Table]:
        """Return the seconds of the fastest read by pypaimon, and the rows in the order of their keys."""
        spent, rows = float("inf"), pa.table({})
        for _ in range(READS):
            started = time.perf_counter()
            rows = reader.rows(self.warehouse, str(PATH))
            spent = min(spent, time.perf_counter() - started)
        return spent, rows.select(["id", "name"]).sort_by("id").combine_chunks()


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--changes", type=int, default=2000)
    parser.add_argument("--keys", type=int, default=50_000)
    told = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as place, PythonReader.running() as reader:
        both = {
            "without": Contender(f"{place}/without", compacts=False),
            "with": Contender(f"{place}/with", compacts=True),
        }
        for number in range(1, told.rounds + 1):
            for one in both.values():
                one.tier(number, told.changes, told.keys)
        for name, one in both.items():
            cost = f"{one.rounds_s:.2f} CPU-s of rounds, {one.compaction_s:.2f} of compaction"
            print(f"{told.rounds} rounds {name} compaction: {head_of(one.lake).files} files, {cost}")
        show("pypaimon", *(one.read_by(reader) for one in both.values()))
        show("the lake's reader", *(read(one.lake) for one in both.values()))


def show(reader: str, without: tuple[float, pa.Table], with_it: tuple[float, pa.Table]) -> None:
    """Print what a reader took, once it is seen that it found the same rows."""
    assert without[1].num_rows
    assert without[1].equals(with_it[1])
    ratio = without[0] / with_it[0]
    print(
        f"{reader}, {without[1].num_rows} rows: {without[0]:.3f} s without, {with_it[0]:.3f} s with: {ratio:.1f} times"
    )


if __name__ == "__main__":
    main()
