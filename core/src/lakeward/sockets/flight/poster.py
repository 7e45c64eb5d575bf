"""One thread of an exchange that writes small messages, and one that notices who is silent."""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.ports import Clock


class Poster:
    """Writes marks, credits and pings in order, so that nobody else waits for the network with them.

    They are a few bytes each, and every peer reads them at once: a stream takes thousands of them before a write would
    wait. The watch has a thread of its own all the same, so that it sees a peer that makes one wait.
    """

    def __init__(self, clock: Clock, ping_s: float, ping: Callable[[], None], watch: Callable[[], None]) -> None:
        """Start both threads.

        `ping` sends a ping on every stream, `watch` looks who is silent, every `ping_s` seconds.
        """
        self._clock = clock
        self._ping_s = ping_s
        self._ping = ping
        self._watch = watch
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._post, name="exchange-post", daemon=True),
            threading.Thread(target=self._look, name="exchange-watch", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def post(self, write: Callable[[], None]) -> None:
        """Queue a write, which must not raise."""
        self._queue.put(write)

    def stop(self, timeout_s: float) -> bool:
        """Write what is queued, then end both threads, at most `timeout_s` seconds each; return whether they ended."""
        self._stopped.set()
        self._queue.put(None)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout_s)
        return not any(thread.is_alive() for thread in self._threads if thread is not threading.current_thread())

    def _post(self) -> None:
        due = self._clock.now() + self._ping_s
        while True:
            try:
                write = self._queue.get(timeout=max(0.0, due - self._clock.now()))
            except Empty:
                write = self._ping
            if write is None:
                return
            write()
            if write is not self._ping and self._clock.now() >= due:
                self._ping()
            if self._clock.now() >= due:
                due = self._clock.now() + self._ping_s

    def _look(self) -> None:
        while not self._stopped.wait(self._ping_s):
            self._watch()
