"""A service running in this process, for benchmarks: started warm, asked to tier, timed from outside."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, cast

from msgspec import structs

from lakeward import container as containers
from lakeward import serve
from lakeward.clock import SystemClock
from lakeward.config.loader import load_config
from lakeward.observe.logs import setup_logs
from lakeward.observe.progress import show_progress

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from lakeward.model.settings import CheckpointSettings
    from lakeward.model.status import RoundReport
    from lakeward.model.tiering import HeartbeatRequest, HeartbeatResponse
    from lakeward.ports import Source

CONFIG = """
[service]
name = "bench"
poll_s = 0.05
rounds = {rounds}
[source]
type = "embedded"
path = "store"
[lake]
type = "iceberg"
warehouse = "warehouse"
compression_level = {level}
[lease]
backend = "{backend}"
[spark]
master = "local[2]"
"""


_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s() -> float:
    """Return the processor time of this process and of all below it, also of those that have ended."""
    times: dict[int, tuple[int, int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text(encoding="utf-8", errors="replace").rsplit(")", 1)[1].split()
            except (OSError, IndexError):
                continue
            times[int(entry.name)] = (int(fields[1]), sum(map(int, fields[11:15])))
    found = {os.getpid()}
    while more := {pid for pid, (parent, _) in times.items() if parent in found} - found:
        found |= more
    return sum(times[pid][1] for pid in found) / _TICKS


class HandTimes:
    """A source that remembers how long the service had each table in hand, from hand-out to finished.

    `of` maps a table's path to seconds, oldest first.
    """

    def __init__(self, source: Source) -> None:
        """Stand before a source."""
        self._source = source
        self._since: dict[int, tuple[str, float]] = {}
        self.of: dict[str, list[float]] = {}

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the source has
        """Be the source in everything else."""
        return getattr(self._source, name)

    def heartbeat(self, beat: HeartbeatRequest) -> HeartbeatResponse:
        """Note what is handed out and what is finished."""
        answer = self._source.heartbeat(beat)
        now = time.perf_counter()
        for claim in beat.finished:
            if claim.table_id in self._since and claim.table_id not in answer.refused:
                path, since = self._since.pop(claim.table_id)
                self.of.setdefault(path, []).append(now - since)
        if answer.assignment is not None:
            self._since[answer.assignment.table_id] = (str(answer.assignment.path), now)
        return answer


class RunningService:
    """One service on Spark `local[2]`. `rounds` receives every round that is over."""

    def __init__(
        self,
        directory: Path,
        *,
        level: int = 3,
        rounds: int = 2,
        backend: str = "fluss",
        config: str = "",
        paused: Collection[str] = (),
    ) -> None:
        """Write a configuration and start.

        Args:
            directory: holds `store`, `warehouse` and the state.
            level: zstd level of data files.
            rounds: rounds side by side.
            backend: the lease backend.
            config: a whole configuration; default: one of the embedded source.
            paused: tables that are left alone; looked at each turn.
        """
        file = directory / "lakeward.toml"
        text = config or CONFIG.format(level=level, rounds=rounds, backend=backend)
        file.write_text(text, encoding="utf-8")
        setup_logs("text", "warning")
        loaded = load_config(file, {})
        self.container = containers.build(loaded)
        self.rounds: SimpleQueue[RoundReport] = SimpleQueue()
        silent = show_progress(loaded.settings, SystemClock(), on=False)
        options = serve._options(self.container, loaded, silent, once=False, final=False)  # noqa: SLF001 - as `serve` does
        options = replace(
            options,
            on_round=self.rounds.put,
            paused=lambda: frozenset(paused),
            resumed=dict,
        )
        components = self.container.components()
        self.hands = HandTimes(components.source)
        components = replace(components, source=cast("Source", self.hands))
        self.objects = containers.service_container(components, options)
        self.service = self.objects.service()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait(self, table: str, rows: int, timeout_s: float = 600) -> list[RoundReport]:
        """Wait until a table's committed rounds add up to so many rows; returns these rounds."""
        return self.wait_all({table: rows}, timeout_s)

    def wait_all(self, rows: Mapping[str, int], timeout_s: float = 600) -> list[RoundReport]:
        """Wait until the committed rounds of tables add up to so many rows of each; returns these rounds."""
        found: list[RoundReport] = []
        left = dict(rows)
        while any(count > 0 for count in left.values()):
            report = self._next(timeout_s)
            if report.table in left and report.rows:
                left[report.table] -= report.rows
                found.append(report)
        return found

    def _next(self, timeout_s: float) -> RoundReport:
        report = self.rounds.get(timeout=timeout_s)
        if report.outcome not in {"committed", "running"}:
            message = f"{report.table}: {report.outcome}: {report.reason}"
            raise RuntimeError(message)
        return report

    def take_checkpoints(self, policy: CheckpointSettings) -> None:
        """Let the next rounds have a policy of checkpoints; where these lie stays."""
        planning = self.objects.planning()
        settings = planning._settings  # noqa: SLF001 - nobody else changes them while a service runs
        kept = structs.replace(policy, root=settings.checkpoint.root, retained=settings.checkpoint.retained)
        planning._settings = structs.replace(settings, checkpoint=kept)  # noqa: SLF001 - as above

    def close(self) -> None:
        """Stop the service and Spark."""
        self.loop.call_soon_threadsafe(self.service.stop)
        self._thread.join()
        self.container.shutdown_resources()

    def _run(self) -> None:
        self.loop.run_until_complete(self.service.serve())


@contextlib.contextmanager
def running(directory: Path, **options: int | str | Collection[str]) -> Iterator[RunningService]:
    """Run a service for the length of a block."""
    service = RunningService(directory, **options)  # type: ignore[arg-type] # forwarded as they are
    try:
        yield service
    finally:
        service.close()
