"""Thousands of rounds in one process, with counters: `python -m lakeward_service_kit.soak --rounds 10000`.

A service tiers log and primary-key tables of an embedded store for as long as it takes. Some tables stay, others are
dropped and made anew all the time, so that leases, KV snapshots, journals and everything that is kept by a table's id
come and go as well. Old log records, files and commits are cleaned up as in operation. Every so many rounds the open
files, threads and memory of the process are counted, and what lies on disk: all of it has to stay as it is.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import sys
import tempfile
import threading
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from lakeward.clock import SystemClock
from lakeward.coordinator.workers.calls import call
from lakeward.hooks import discovery
from lakeward.hooks.plugins import LAKE_GROUP
from lakeward.model.tables import TablePath
from lakeward.observe.logs import setup_logs
from lakeward.subtask.run import run_subtask
from lakeward_service_kit.jobs import ThreadJobs
from lakeward_service_kit.service_world import SCHEMA, World
from lakeward_testing.folder_lake import FolderLake

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from lakeward.coordinator.service.service import Service
    from lakeward.model.jobs import JobSpec
    from lakeward.model.status import RoundReport
    from lakeward.ports import Lake

_ROWS = 20
_KEPT = 20
"""Commits of a table that the folder lake keeps, as an Iceberg table keeps snapshots."""
_STAYING = ("log", "keyed")
_METADATA = "t/{}/metadata/*"
_TTL_S = 45.0
_LIFE = 6
"""Rounds after which a table that comes and goes is made anew."""
_SETTLED = 0.4
"""Part of the run after which caches are warm and clean-up has begun."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What was counted after so many rounds. Memory in KiB; files by where they lie."""

    rounds: int
    open_files: int
    threads: int
    tasks: int
    objects: int
    rss_kib: int
    state_files: int
    store_files: int
    store_rows: int
    lake_metadata: int


_ROOM: dict[str, tuple[float, float]] = {
    "open_files": (1.0, 8),
    "threads": (1.0, 6),
    "tasks": (1.0, 6),
    "objects": (1.02, 2_000),
    "rss_kib": (1.05, 4_096),
    "state_files": (1.0, 12),
    "store_files": (1.2, 60),
    "store_rows": (1.2, 60),
    "lake_metadata": (1.1, 20),
}
"""How much more than before each may be: a factor, and a number beside it. A leak of one a round is far beyond."""


def grown(samples: Sequence[Sample]) -> tuple[str, ...]:
    """Say what has grown between the middle and the end of a run.

    Args:
        samples: in the order of rounds, at least six.

    Returns:
        One sentence for each count that is not flat: half of the last samples are beyond what half of those before
        allow for.
    """
    settled = samples[int(len(samples) * _SETTLED) :]
    middle = len(settled) // 2
    found = []
    for name, (factor, more) in _ROOM.items():
        before = median(getattr(sample, name) for sample in settled[:middle])
        after = median(getattr(sample, name) for sample in settled[middle:])
        if after > before * factor + more:
            found.append(f"{name}: median {before:g} up to round {settled[middle].rounds}, then {after:g}")
    return tuple(found)


class TrimmedLake(FolderLake):
    """A folder lake that forgets old commits with their files, as expiry and compaction do."""

    def expire(self, path: TablePath, keep: frozenset[int]) -> int:
        """See Protocol; what is to be kept is among the newest."""
        del keep
        with self._state(path) as state:
            old, state["log"] = state["log"][:-_KEPT], state["log"][-_KEPT:]
        for entry in old:
            for file in entry.get("files", ()):
                Path(file).unlink(missing_ok=True)
        return len(old)

    def delete(self, files: Collection[str]) -> None:
        """See Protocol; keeps no list of what it deleted."""
        super().delete(files)
        self.deleted.clear()


class ForgetfulJobs(ThreadJobs):
    """Jobs on threads, without the lists that tests look at."""

    def launch(self, job: JobSpec, on_done: Callable[[str | None], None]) -> None:
        """See `lakeward.ports.Jobs`."""
        super().launch(job, on_done)
        self.launched.clear()
        self.cancelled.clear()


class Soak:
    """One service, and what feeds it: a table gets new rows as soon as its last ones are in the lake."""

    def __init__(self, directory: Path, lake: str = "folder") -> None:
        """Make a world in a directory.

        Args:
            directory: empty.
            lake: name of the lake's plugin.
        """
        self.world = World.create(directory)
        self.directory = directory
        self.samples: list[Sample] = []
        self.outcomes: dict[str, int] = {}
        self._lake: Any = _open_lake(lake, directory)
        self._lake_name = lake
        self._rounds = 0
        self._fed = 0
        self._ages: dict[str, int] = {}
        self._over: asyncio.Queue[str] = asyncio.Queue()

    async def run(self, rounds: int, every: int, say: Callable[[Sample], None] = lambda _: None) -> tuple[str, ...]:
        """Run so many rounds.

        Args:
            rounds: that many, > 0.
            every: rounds between two samples.
            say: is given each sample at once.

        Returns:
            What has grown; empty where all is flat.
        """
        names = (*_STAYING, *(f"fleeting_{name}" for name in _STAYING))
        paths = {name: TablePath("t", name) for name in names}
        for path in paths.values():
            self._make(path)
        service = self._service()
        serving = asyncio.create_task(service.serve())
        try:
            while self._rounds < rounds and not serving.done():
                path = paths[await self._next()]
                await call(partial(self._feed, path), what="feed")
                if self._rounds >= every * (len(self.samples) + 1):
                    sample = self._count()
                    self.samples.append(sample)
                    say(sample)
        finally:
            service.stop()
            await serving
            self._lake.close()
            self.world.store.close()
        return grown(self.samples)

    async def _next(self) -> str:
        try:
            async with asyncio.timeout(60):
                return await self._over.get()
        except TimeoutError as error:
            message = f"no round ended within 60 s; so far {self.outcomes}"
            raise AssertionError(message) from error

    def _service(self) -> Service:
        return self.world.service(
            lake=self._lake,
            lake_type=self._lake_name,
            jobs=ForgetfulJobs(run_subtask),
            rounds=3,
            poll_s=0.01,
            max_round_s=120.0,
            on_report=lambda _: None,
            on_round=self._on_round,
            forget_every_s=2.0,
        )

    def _on_round(self, report: RoundReport) -> None:
        self._rounds += 1
        self.world.backend.calls.clear()
        self.outcomes[report.outcome] = self.outcomes.get(report.outcome, 0) + 1
        self._over.put_nowait(report.table.partition(".")[2])

    def _make(self, path: TablePath) -> None:
        keyed = path.table.endswith("keyed")
        properties = {"table.log.ttl-s": str(_TTL_S), "table.kv.snapshot.rows": str(_ROWS * 2)}
        store = self.world.store
        store.create_table(path, SCHEMA, ["id"] if keyed else (), buckets=2, freshness_s=0.01, properties=properties)
        self._ages[path.table] = 0
        self._load(path)
        if keyed:
            store.snapshot(path)
            self._load(path)

    def _feed(self, path: TablePath) -> None:
        self._ages[path.table] += 1
        if path.table.startswith("fleeting") and self._ages[path.table] >= _LIFE:
            self.world.store.drop_table(path)
            self._make(path)
        else:
            self._load(path)

    def _load(self, path: TablePath) -> None:
        self.world.load(path, self._fed % 1_000, _ROWS)
        self._fed += _ROWS

    def _count(self) -> Sample:
        gc.collect()
        with self.world.store.database.read() as sql:
            tables = [name for (name,) in sql.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            rows = sum(int(sql.execute(f"SELECT COUNT(*) FROM {name}").fetchone()[0]) for name in tables)  # noqa: S608 - names of its own tables
        lake = self.directory / "lake"
        # A dropped table's lake table is set aside, for a person to delete: those that stay are looked at.
        metadata = [file for name in _STAYING for file in lake.glob(_METADATA.format(name)) if file.is_file()]
        return Sample(
            rounds=self._rounds,
            open_files=sum(1 for _ in Path("/dev/fd").iterdir()),
            threads=threading.active_count(),
            tasks=len(asyncio.all_tasks()),
            objects=len(gc.get_objects()),
            rss_kib=_rss_kib(),
            state_files=_files(self.directory / "state"),
            store_files=_files(self.directory / "store"),
            store_rows=rows,
            lake_metadata=len(metadata),
        )


def _files(directory: Path) -> int:
    return sum(len(files) for _, _, files in os.walk(directory))


def _rss_kib() -> int:
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return 0
    return int(statm.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def _open_lake(name: str, directory: Path) -> Lake:
    if name == "folder":
        return TrimmedLake(directory / "lake")
    plugin: Any = discovery.load(LAKE_GROUP, name)
    lake: Lake = plugin.open(plugin.options(warehouse=str(directory / "lake"), keep_snapshots=_KEPT), SystemClock())
    return lake


def publish_folder_lake(place: Path) -> None:
    """Publish the folder lake under its entry point, as an installed package would.

    Args:
        place: an empty directory; it is put on the path of imports.
    """
    info = place / "folder_lake-0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: folder-lake\nVersion: 0.1\n", encoding="utf-8")
    entry = "[lakeward.lake]\nfolder = lakeward_testing.folder_lake:FolderLakePlugin\n"
    (info / "entry_points.txt").write_text(entry, encoding="utf-8")
    sys.path.insert(0, str(place))
    discovery.forget()


def main() -> int:
    """Run what the command line asks for; return 1 if something has grown."""
    parser = argparse.ArgumentParser(prog="python -m lakeward_service_kit.soak", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10_000, help="rounds to run")
    parser.add_argument("--every", type=int, default=0, help="rounds between two samples; default: a twentieth")
    parser.add_argument("--lake", default="folder", help="name of the lake's plugin")
    options = parser.parse_args()
    setup_logs("text", "error")
    every = options.every or max(1, options.rounds // 20)
    with tempfile.TemporaryDirectory(prefix="lakeward-soak-") as place:
        publish_folder_lake(Path(place, "site"))
        soak = Soak(Path(place, "world"), options.lake)
        found = asyncio.run(soak.run(options.rounds, every, lambda sample: _say(_line(sample))))
    _say(f"{soak.outcomes}")
    for sentence in found:
        _say(f"GROWN {sentence}")
    return 1 if found else 0


def _line(sample: Sample) -> str:
    return "  ".join(f"{name} {number}" for name, number in asdict(sample).items())


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def run_rounds(directory: Path, rounds: int, samples: int) -> tuple[tuple[str, ...], int]:
    """Return what has grown in a run of its own, and how many of its rounds committed."""
    soak = Soak(directory)
    return asyncio.run(soak.run(rounds, samples)), soak.outcomes["committed"]


if __name__ == "__main__":
    sys.exit(main())
