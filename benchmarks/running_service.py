"""A service running in this process, for benchmarks: started warm, asked to tier, timed from outside."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from lakeward import container as containers
from lakeward.config.loader import load_config
from lakeward.coordinator.service import Service

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.model.status import RoundReport

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


class RunningService:
    """One service on Spark `local[2]`. `rounds` receives every round that is over."""

    def __init__(self, directory: Path, *, level: int = 3, rounds: int = 2, backend: str = "fluss") -> None:
        """Write a configuration and start.

        Args:
            directory: holds `store`, `warehouse` and the state.
            level: zstd level of data files.
            rounds: rounds side by side.
            backend: the lease backend.
        """
        file = directory / "lakeward.toml"
        file.write_text(CONFIG.format(level=level, rounds=rounds, backend=backend), encoding="utf-8")
        loaded = load_config(file, {})
        self.container = containers.build(loaded)
        self.rounds: SimpleQueue[tuple[str, RoundReport]] = SimpleQueue()
        options = containers._options(self.container, loaded, None, once=False, final=False)  # noqa: SLF001 - as `serve` does
        options = replace(options, on_round=lambda table, report: self.rounds.put((table, report)))
        self.service = Service(self.container.parts(), options)
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait(self, table: str, rows: int, timeout_s: float = 600) -> list[RoundReport]:
        """Wait until a table's committed rounds add up to so many rows; returns these rounds."""
        found: list[RoundReport] = []
        while sum(report.rows for report in found) < rows:
            path, report = self.rounds.get(timeout=timeout_s)
            if report.outcome not in ("committed", "running"):
                message = f"{path}: {report.outcome}: {report.reason}"
                raise RuntimeError(message)
            if path == table:
                found.append(report)
        return found

    def close(self) -> None:
        """Stop the service and Spark."""
        self.loop.call_soon_threadsafe(self.service.stop)
        self._thread.join()
        self.container.shutdown_resources()

    def _run(self) -> None:
        self.loop.run_until_complete(self.service.serve())


@contextlib.contextmanager
def running(directory: Path, **options: int | str) -> Iterator[RunningService]:
    """Run a service for the length of a block."""
    service = RunningService(directory, **options)  # type: ignore[arg-type] # forwarded as they are
    try:
        yield service
    finally:
        service.close()
