"""How long a checkpoint takes, and for how long it blocks, with 2 subtasks and with 100.

python benchmarks/checkpoint_duration.py [--checkpoints 20]

No Spark: what is timed is the protocol and the store. Once with a simulated transport that takes no time, the
coordinator and all subtasks one after the other on one thread, so that a checkpoint takes what all of it costs
together; once over real sockets, each subtask a thread of this one process (which has one interpreter lock: a bound
from above for processes). Printed: milliseconds from a checkpoint's start to its end, and of a closed gateway as the
coordinator hears it. `checkpoint_cost.py` prints the same of two real subtasks on Spark.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checkpoint_cost import Gates
from lakeward.coordinator.rounds.job import Job
from lakeward.hooks import discovery
from lakeward.machines.checkpoints.messages import GatewayOpened
from lakeward.model.tables import TablePath
from lakeward.observe.logs import setup_logs
from lakeward.subtask.run import run_subtask
from lakeward_service_kit.held_source import HeldSource
from lakeward_service_kit.jobs import ThreadJobs
from lakeward_service_kit.service_world import World
from lakeward_simulator.faults import Faults
from lakeward_simulator.world import World as SimWorld
from lakeward_source_embedded.store import EmbeddedStore

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTRY_POINTS = (
    ("lakeward.lake", "folder", "lakeward_testing.folder_lake:FolderLakePlugin"),
    ("lakeward.source", "held", "lakeward_service_kit.held_source:HeldSourcePlugin"),
)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--checkpoints", type=int, default=20)
    options = parser.parse_args()
    setup_logs("text", "warning")
    for subtasks in (2, 100):
        simulate(subtasks, options.checkpoints)
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as place:
        _publish(Path(place))
        for subtasks in (2, 100):
            asyncio.run(bench(Path(place) / str(subtasks), subtasks, options.checkpoints))


class Wall:
    """Wall time of checkpoints in a simulated world, where the clock of the world stands still meanwhile."""

    def __init__(self) -> None:
        """Listen to every event of jobs."""
        self.whole_s: list[float] = []
        self.blocked_s: list[float] = []
        self._began = 0.0
        self._take = Job.take
        wall = self

        def heard(job: Job, event: object) -> Iterator[Any]:
            return wall.hear(job, event)

        Job.take = heard  # type: ignore[method-assign, assignment] # only looks, and passes on

    def hear(self, job: Job, event: object) -> Iterator[Any]:
        """Look at what runs before and after an event."""
        checkpoints = job.checkpoints
        before, now = checkpoints.running, time.perf_counter()
        yield from self._take(job, event)
        if checkpoints.running is not None and checkpoints.running != before:
            self._began = now
        if isinstance(event, GatewayOpened):
            self.blocked_s.append(now - self._began)  # from before it was told to close: more than it was blocked
        if before is not None and checkpoints.running is None:
            self.whole_s.append(time.perf_counter() - self._began)

    def forget(self) -> None:
        """Listen no more."""
        Job.take = self._take  # type: ignore[method-assign] # as it was


def simulate(subtasks: int, wanted: int) -> None:
    """Let one round read in all subtasks, on a transport that takes no time, and take checkpoints of it."""
    wall = Wall()
    world = SimWorld(1, Faults([]), story=False)
    world.slots, world.latency_s = subtasks, 0.0
    path = TablePath("shop", "log")
    with world.alive():
        world.source.create(path, buckets=subtasks, keyed=False)
        world.append(path, 400 * subtasks)
        world.start()
        world.run(300.0, lambda: len(wall.whole_s) >= wanted)
        for one in world.coordinators:
            one.loop.kill()
            one.loop.dispose()
    wall.forget()
    _say(f"{subtasks} subtasks, simulated transport", wall.whole_s, wall.blocked_s)


async def bench(directory: Path, subtasks: int, wanted: int) -> None:
    """Let one round stand still in all subtasks and take checkpoints of it."""
    world = World.create(directory)
    table = world.table("log", buckets=subtasks)
    world.load(table, 0, 100 * subtasks)
    gate = directory / "gate"
    gate.touch()
    service = world.service(
        source=HeldSource(EmbeddedStore.open(world.store.root), gate, 2),
        source_type="held",
        interval_s=0.5,
        pause_s=0.0,
        jobs=ThreadJobs(run_subtask, slots=subtasks + 1),
        subtask_timeout_s=60.0,
    )
    gates = Gates()
    seen: dict[str, float] = {}
    serving = asyncio.create_task(service.serve())
    while len(seen) < wanted:
        await asyncio.sleep(0.1)
        for report in world.reports[-1:]:
            for line in report.tables:
                taken = line.round.checkpoint if line.round is not None else None
                if taken is not None and taken.name:
                    seen[taken.name] = taken.seconds
    gate.unlink()
    serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving
    _say(f"{subtasks} subtasks on threads", list(seen.values()), gates.blocked_s)


def _say(what: str, whole_s: list[float], blocked_s: list[float]) -> None:
    whole, blocked = sorted(whole_s), sorted(blocked_s)
    print(
        f"{what}, {len(whole)} checkpoints: median {statistics.median(whole) * 1000:.1f} ms, "
        f"most {whole[-1] * 1000:.1f} ms; blocked median {statistics.median(blocked) * 1000:.1f} ms, "
        f"most {blocked[-1] * 1000:.1f} ms",
        flush=True,
    )


def _publish(place: Path) -> None:
    """Publish the two plugins of the test kit as an installed package would."""
    info = place / "bench_kit-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bench-kit\nVersion: 0.1\n", encoding="utf-8")
    lines = [f"[{group}]\n{name} = {value}\n" for group, name, value in ENTRY_POINTS]
    (info / "entry_points.txt").write_text("".join(lines), encoding="utf-8")
    sys.path.insert(0, str(place))
    discovery.forget()


if __name__ == "__main__":
    main()
