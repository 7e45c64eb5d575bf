"""Closes what a service has opened: the newest first, each on a thread of its own, each with a time limit.

A resource that fails or hangs while it is closed does not keep others open, nor the process alive.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import structlog

from lakeward.coordinator.workers.calls import call
from lakeward.errors import OutcomeUnknownError, in_words

if TYPE_CHECKING:
    from collections.abc import Callable

CLOSE_S = 15.0
"""Seconds that one resource has to close."""
_log = structlog.get_logger("lakeward.closing")


class OpenResources:
    """The open resources, in the order in which they were opened. Thread-safe."""

    def __init__(self, limit_s: float = CLOSE_S) -> None:
        """Hold nothing; each resource has `limit_s` seconds to close, > 0."""
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._open: list[tuple[str, Callable[[], None]]] = []
        self._closed = False

    def add(self, name: str, close: Callable[[], None]) -> None:
        """Add a resource, named for the log; `close` is called once: immediately if `close_all` has already run."""
        with self._lock:
            if not self._closed:
                self._open.append((name, close))
                return
        close()

    async def close_all(self) -> tuple[str, ...]:
        """Close everything; log and return by name what fails or takes too long, and do not wait for it."""
        with self._lock:
            self._closed = True
            found, self._open = self._open, []
        return tuple([name for name, close in reversed(found) if not await self._close(name, close)])

    async def _close(self, name: str, close: Callable[[], None]) -> bool:
        try:
            await call(close, what=f"close the {name}", timeout_s=self._limit_s)
        except OutcomeUnknownError:
            _log.warning("not closed in time, left behind", resource=name, limit_s=self._limit_s)
        except Exception as error:  # noqa: BLE001 - whatever a plugin raises: the others are closed all the same
            _log.warning("could not be closed", resource=name, reason=in_words(error))
        else:
            return True
        return False
