"""What checkpoints of an exchange cost: one every second, aligned or unaligned, against rounds without any, in turn.

python benchmarks/exchange_checkpoints.py [--rows 8000000] [--pairs 2] [--interval 1.0] [--level 1] [--during-recovery]

Log tables of 8 columns, embedded to Iceberg, `local[2]`, lake tables partitioned by `day(at), bucket(16, id)`: 64 open
files of 128 MiB. Writing is slower than reading, so the channels are under back-pressure; a higher zstd level makes it
slower still, for more checkpoints a round. Printed for each kind: rows a second and processor time (its ratio tells
more where other work shares the machine), how many checkpoints completed, for how long channels were blocked by an
alignment (p50, p99), how long a checkpoint took, and the bytes that checkpoints wrote to the store for each byte of
rows (Arrow). With `--during-recovery` unaligned ones with `checkpoint.during_recovery` are compared with unaligned ones
without: no round of either recovers.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from exchange import TABLES, fill_paused, spread
from lakeward.coordinator.rounds.job import Job
from lakeward.machines.checkpoints.messages import PartStored
from lakeward.model.settings import CheckpointSettings
from lakeward_source_embedded.store import EmbeddedStore
from log_to_iceberg import rows
from running_service import CONFIG, RunningService, cpu_s, running

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.model.checkpoints import SubtaskSnapshot
    from lakeward.model.tables import TablePath

STEP = 250_000
OFTEN = CheckpointSettings(pause_s=0.0)
POLICIES = {
    "without": CheckpointSettings(interval_s=0.0),
    "aligned": replace(OFTEN, unaligned=False),
    "unaligned": replace(OFTEN, unaligned=True, aligned_timeout_s=0.0),
}
DURING_RECOVERY = {
    "without": replace(POLICIES["unaligned"], during_recovery=False),
    "unaligned": replace(POLICIES["unaligned"], during_recovery=True),
}


class Parts:
    """What the subtasks stored: bytes, and for how long channels were blocked."""

    def __init__(self) -> None:
        """Listen to the parts of all checkpoints."""
        self.blocked_s: list[float] = []
        self.size_bytes = 0
        self._segments: set[str] = set()
        take = Job.take

        def heard(job: Job, event: object) -> Iterable[Any]:
            if isinstance(event, PartStored):
                self._take(event)
            return take(job, event)

        Job.take = heard  # type: ignore[method-assign, assignment] # only looks, and passes on

    def _take(self, event: PartStored) -> None:
        self.size_bytes += event.part.size_bytes  # type: ignore[attr-defined] # opaque to the machine alone
        snapshot: SubtaskSnapshot = event.snapshot  # type: ignore[assignment] # as above
        if snapshot.exchange is None:
            return
        self.blocked_s.append(snapshot.exchange.blocked_s)
        for segment in snapshot.exchange.segments():
            if segment.name not in self._segments:
                self._segments.add(segment.name)
                self.size_bytes += segment.size_bytes

    def clear(self) -> None:
        """Begin another round."""
        self.blocked_s, self.size_bytes = [], 0


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=8_000_000)
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--interval", type=float, default=1.0, help="seconds from one checkpoint to the next")
    parser.add_argument("--level", type=int, default=1, help="of zstd")
    parser.add_argument("--during-recovery", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as place:
        bench(Path(place), options)


def bench(directory: Path, options: argparse.Namespace) -> None:
    """Make the rows, then tier them in turn."""
    total, pairs = options.rows, options.pairs
    store = EmbeddedStore.create(directory / "store")
    data = [spread(rows(start, STEP)) for start in range(0, total, STEP)]
    row_bytes = sum(piece.nbytes for piece in data)
    parts = Parts()
    policies = DURING_RECOVERY if options.during_recovery else POLICIES
    spent: dict[str, list[float]] = {kind: [] for kind in policies}
    blocked: dict[str, list[float]] = {kind: [] for kind in policies}
    processor: dict[str, list[float]] = {kind: [] for kind in policies}
    completed = dict.fromkeys(policies, 0)
    names = [f"{kind}{number}" for number in range(pairs) for kind in policies]
    paused = {f"bench.exchange{name}" for name in ("warm", *names)}
    config = CONFIG.format(level=options.level, rounds=1, backend="fluss") + TABLES
    with running(directory, config=config, paused=paused) as service:
        service.wait(str(fill_paused(store, paused, "exchangewarm", [data[0].slice(0, 10_000)])), 10_000)
        for number in range(pairs):
            for kind in sorted(policies, reverse=number % 2 == 0):  # in turn: a machine gets slower or faster
                parts.clear()
                policy = policies[kind]
                if policy.interval_s:
                    policy = replace(policy, interval_s=options.interval)
                service.take_checkpoints(policy)
                table = fill_paused(store, paused, f"exchange{kind}{number}", data)
                before_s = cpu_s()
                seconds, taken, lasted = tier(service, store, table, total)
                processor[kind].append(cpu_s() - before_s)
                spent[kind].append(seconds)
                completed[kind] += taken
                blocked[kind] += parts.blocked_s
                line = (
                    f"  {kind}: {total / seconds / 1e6:.2f} M rows/s, {processor[kind][-1]:.1f} s of processor time, "
                    f"{taken} checkpoints, the last in {lasted:.2f} s"
                )
                print(line + show(parts.blocked_s), flush=True)
                if parts.size_bytes:
                    print(f"    {parts.size_bytes / row_bytes:.2f} bytes stored for each byte of rows", flush=True)
                shutil.rmtree(directory / "warehouse" / "bench" / f"exchange{kind}{number}" / "data")
    for kind in sorted(set(policies) - {"without"}):
        ratios = [without / with_ for without, with_ in zip(spent["without"], spent[kind], strict=True)]
        goal = 0.99 if options.during_recovery else 0.97
        print(f"rate with {kind} ones / without: {statistics.median(ratios):.3f} (goal {goal}), {ratios}")
        ratios = [without / with_ for without, with_ in zip(processor["without"], processor[kind], strict=True)]
        print(f"  by processor time: {statistics.median(ratios):.3f}, {ratios}")
        print(f"  all parts of {completed[kind]} {kind} ones{show(blocked[kind])}")


def show(blocked_s: list[float]) -> str:
    """Describe for how long channels were blocked in the parts of checkpoints."""
    if not blocked_s:
        return ""
    blocked = sorted(blocked_s)
    p50, p99 = (blocked[min(len(blocked) - 1, int(len(blocked) * share))] * 1000 for share in (0.5, 0.99))
    return f", blocked p50 {p50:.0f} ms, p99 {p99:.0f} ms, most {blocked[-1] * 1000:.0f} ms of {len(blocked)} parts"


def tier(service: RunningService, store: EmbeddedStore, table: TablePath, total: int) -> tuple[float, int, float]:
    """Wait for a table's rows; returns seconds of its rounds, completed checkpoints, and seconds of the last one."""
    done = service.wait(str(table), total)
    reports = [report.checkpoint for report in done if report.checkpoint is not None and report.checkpoint.name]
    taken = int(reports[-1].name.rpartition("-")[2]) if reports else 0
    store.drop_table(table)
    seconds = sum((report.ended_ms or 0) - report.started_ms for report in done) / 1000
    return seconds, taken, reports[-1].seconds if reports else 0.0


if __name__ == "__main__":
    main()
