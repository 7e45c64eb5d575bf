"""Locks by name: writes of one file wait for each other, writes of different files do not."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class KeyedLock:
    """Locks by name; a lock exists as long as it is held or waited for. Thread-safe."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[str, tuple[threading.Lock, int]] = {}

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Wait until the lock of this name is free, and hold it."""
        lock = self._enter(name)
        try:
            with lock:
                yield
        finally:
            self._leave(name)

    def _enter(self, name: str) -> threading.Lock:
        with self._guard:
            lock, users = self._locks.get(name) or (threading.Lock(), 0)
            self._locks[name] = (lock, users + 1)
            return lock

    def _leave(self, name: str) -> None:
        with self._guard:
            lock, users = self._locks.pop(name)
            if users > 1:
                self._locks[name] = (lock, users - 1)
