"""What checkpoints cost: rounds with one every second against rounds without any, in turn, in one warm service.

python benchmarks/checkpoint_cost.py [--rows 10000000] [--pairs 2]

Log tables of 8 columns, embedded to Iceberg, `local[2]`. Printed: rows a second of each round, how many checkpoints
completed in it, without / with, sizes of the lake's files, and for how long a subtask was not let to send.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakeward.coordinator.rounds.job import Job
from lakeward.machines.checkpoints.messages import CloseAcked, GatewayOpened
from lakeward.model.settings import CheckpointSettings
from lakeward.model.tables import TablePath
from lakeward_source_embedded.store import EmbeddedStore
from log_to_iceberg import fill, rows
from running_service import RunningService, running

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

STEP = 500_000
POLICIES = {"without": CheckpointSettings(interval_s=0.0), "with": CheckpointSettings(interval_s=1.0, pause_s=0.0)}


class Gates:
    """For how long each subtask's gateway was closed, as the coordinator hears it: its round trip included."""

    def __init__(self) -> None:
        """Listen to every event of jobs."""
        self.blocked_s: list[float] = []
        self._closed: dict[tuple[int, int], float] = {}
        take = Job.take

        def heard(job: Job, event: object) -> Iterable[Any]:
            self._hear(event)
            return take(job, event)

        Job.take = heard  # type: ignore[method-assign, assignment] # only looks, and passes on

    def _hear(self, event: object) -> None:
        if isinstance(event, CloseAcked):
            self._closed[event.subtask, event.checkpoint] = event.now
        if isinstance(event, GatewayOpened):
            self.blocked_s.append(event.now - self._closed.pop((event.subtask, event.checkpoint), event.now))


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--pairs", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as place:
        bench(Path(place), options.rows, options.pairs)


def bench(directory: Path, total: int, pairs: int) -> None:
    """Fill tables, then tier them in turn."""
    store = EmbeddedStore.create(directory / "store")
    data = [rows(start, STEP) for start in range(0, total, STEP)]
    gates = Gates()
    spent: dict[str, list[float]] = {name: [] for name in POLICIES}
    sizes: list[int] = []
    with running(directory) as service:
        service.wait(fill(store, "warm", data[:1]), STEP)
        for number in range(pairs):
            for name in sorted(POLICIES, reverse=number % 2 == 0):  # in turn: a machine gets slower or faster
                seconds, taken = tier(service, store, f"{name}{number}", data, POLICIES[name])
                spent[name].append(seconds)
                print(f"  {name}: {total / seconds / 1e6:.2f} M rows/s, {taken} checkpoints", flush=True)
                sizes += clear(directory, store, f"{name}{number}")
    ratios = [without / within for without, within in zip(spent["without"], spent["with"], strict=True)]
    print(f"throughput with / without: {statistics.median(ratios):.3f}, pairs {[round(one, 3) for one in ratios]}")
    if gates.blocked_s:
        worst = max(gates.blocked_s)
        print(f"blocked: median {statistics.median(gates.blocked_s) * 1000:.1f} ms, most {worst * 1000:.1f} ms")
    print(f"lake files in MiB: {dict(sorted(Counter(sizes).items()))}")


def clear(directory: Path, store: EmbeddedStore, name: str) -> list[int]:
    """Make room for the next table; returns the sizes of the lake's files in MiB."""
    sizes = [file.stat().st_size >> 20 for file in (directory / "warehouse" / "bench" / name).rglob("*.parquet")]
    store.drop_table(TablePath("bench", name))
    shutil.rmtree(directory / "warehouse" / "bench" / name / "data")
    return sizes


def tier(
    service: RunningService, store: EmbeddedStore, name: str, data: list[pa.Table], policy: CheckpointSettings
) -> tuple[float, int]:
    """Fill and tier one table; returns seconds of its rounds and completed checkpoints."""
    service.take_checkpoints(policy)
    done = service.wait(fill(store, name, data), sum(piece.num_rows for piece in data))
    names = [report.checkpoint.name for report in done if report.checkpoint is not None]
    taken = int(names[-1].rpartition("-")[2]) if names and names[-1] else 0
    return sum((report.ended_ms or 0) - report.started_ms for report in done) / 1000, taken


if __name__ == "__main__":
    main()
