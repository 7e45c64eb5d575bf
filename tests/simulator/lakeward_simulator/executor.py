"""Blocking work in virtual time: done at a moment of its own, as the process that asked for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward_simulator.scheduler import Killed

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward_simulator.scheduler import Process
    from lakeward_simulator.world import World

_START_S = 0.3
"""Seconds until a piece of work begins at the latest."""


class SimExecutor:
    """See `lakeward.ports.Executor`: the threads of one process."""

    def __init__(self, world: World, process: Process) -> None:
        """Run nothing yet."""
        self._world = world
        self._process = process

    def start(self, work: Callable[[], object], *, name: str) -> SimRunning:
        """See `lakeward.ports.Executor`."""
        del name
        self._process.after(self._process.random.random() * _START_S, self.run, work)
        return SimRunning()

    def worker(self, *, name: str) -> SimWorker:
        """See `lakeward.ports.Executor`."""
        restored_s = self._world.partitioned.restored_s if name == "restore-rows" else None
        return SimWorker(self, self._process, self._world.read_s if restored_s is None else restored_s)

    def run(self, work: Callable[[], object]) -> None:
        """Do a piece of work now."""
        before = self._world.enter(self._process)
        try:
            work()
        except Killed:
            return
        finally:
            self._world.enter(before)


class SimRunning:
    """See `lakeward.ports.Running`. Nobody waits here: what is not done when a process ends is never done."""

    def join(self, timeout_s: float) -> bool:
        """See `lakeward.ports.Running`."""
        del timeout_s
        return True


class SimWorker:
    """See `lakeward.ports.Worker`. What is submitted while it works is done after that, as on a thread."""

    def __init__(self, executor: SimExecutor, process: Process, longest_s: float) -> None:
        """Take no work yet.

        Args:
            executor: does the work.
            process: whose worker it is.
            longest_s: seconds that a piece of work takes at the most, but for what it waits for.
        """
        self._executor = executor
        self._process = process
        self._longest_s = longest_s
        self._free_at = 0.0
        self._stopped = False
        self._busy = False
        self._waiting: list[Callable[[], None]] = []
        """What became due while a piece of work took long."""

    def submit(self, work: Callable[[], None]) -> None:
        """See `lakeward.ports.Worker`."""
        now = self._process.scheduler.now
        self._free_at = max(self._free_at, now) + self._process.random.random() * self._longest_s
        self._process.after(self._free_at - now, self._work, work)

    def stop(self, timeout_s: float) -> bool:
        """See `lakeward.ports.Worker`."""
        del timeout_s
        self._stopped = True
        return True

    def _work(self, work: Callable[[], None]) -> None:
        if self._stopped:
            return
        if self._busy:
            self._waiting.append(work)
            return
        self._busy = True
        self._executor.run(work)
        self._busy = False
        if self._waiting:
            self._process.after(0.0, self._work, self._waiting.pop(0))
