"""The real executor: daemon threads.

Daemon threads, because work that hangs (a dead lease server, a source that does not answer) must never keep the
process from ending.
"""

from __future__ import annotations

import threading
from concurrent.futures import Executor, Future
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


class ThreadExecutor:
    """See `lakeward.ports.Executor`."""

    def start(self, work: Callable[[], object], *, name: str) -> RunningThread:
        """See `lakeward.ports.Executor`."""
        return RunningThread(work, name)

    def worker(self, *, name: str) -> ThreadWorker:
        """See `lakeward.ports.Executor`."""
        return ThreadWorker(name)


class RunningThread:
    """See `lakeward.ports.Running`."""

    def __init__(self, work: Callable[[], object], name: str) -> None:
        self._thread = threading.Thread(target=work, name=name, daemon=True)
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        """See `lakeward.ports.Running`."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()


class ThreadWorker:
    """See `lakeward.ports.Worker`."""

    def __init__(self, name: str) -> None:
        """Start no thread before there is work."""
        self._name = name
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: RunningThread | None = None
        self._stopped = False

    def submit(self, work: Callable[[], None]) -> None:
        """See `lakeward.ports.Worker`."""
        with self._lock:
            if self._stopped:
                return
            self._queue.put(work)
            if self._thread is None:
                self._thread = RunningThread(self._run, self._name)

    def stop(self, timeout_s: float) -> bool:
        """See `lakeward.ports.Worker`."""
        with self._lock:
            self._stopped = True
            self._queue.put(None)
            thread = self._thread
        return thread is None or thread.join(timeout_s)

    def _run(self) -> None:
        while (work := self._queue.get()) is not None and not self._stopped:
            work()


class LoopThreads(Executor):
    """What an event loop runs one blocking call on (`loop.run_in_executor`): a daemon thread of its own.

    The pool of `concurrent.futures` would wait for a call that hangs when the process ends.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Start a thread. The future stays pending: the call itself tells whoever waits for it."""
        ThreadExecutor().start(partial(fn, *args, **kwargs), name=self._name)
        return Future()
