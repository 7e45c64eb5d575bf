"""What a service and its commands tell each other through the state root: the newest report, and requests."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

import structlog

from lakeward.errors import LakewardError
from lakeward.repeated_failure import RepeatedFailure

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.status import ServiceReport
    from lakeward.observe.control import Control

STORE_EVERY_S = 5.0
"""Seconds between two looks at a store: each is a few requests that are paid for."""
_log = structlog.get_logger("lakeward.exchange")


class Exchange(Protocol):
    """Used on the event loop: neither call may take long."""

    def publish(self, report: ServiceReport) -> None:
        """Write a report, now or soon; a later one replaces it."""
        ...

    def control(self) -> Control:
        """Return the requests that were read last."""
        ...

    def close(self) -> None:
        """Write the newest report if it is not written yet."""
        ...


class DirectExchange:
    """Through a directory of this machine: each call reads or writes at once."""

    def __init__(self, write: Callable[[ServiceReport], None], read: Callable[[], Control]) -> None:
        """Keep the two ways."""
        self.publish = write
        self.control = read

    def close(self) -> None:
        """Nothing is left to be written."""


class BackgroundExchange:
    """Through a store, on a thread of its own: a store that is slow or away keeps nobody from tiering."""

    def __init__(
        self,
        write: Callable[[ServiceReport], None],
        read: Callable[[], Control],
        every_s: float = STORE_EVERY_S,
    ) -> None:
        """Read the requests once, then go on in the background, every `every_s` seconds.

        `write` replaces the report; it may raise `LakewardError`, of which each new one is logged. `read` returns the
        requests; it raises nothing.
        """
        self._write = write
        self._read = read
        self._every_s = every_s
        self._control = read()
        self._newest: ServiceReport | None = None
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closing = False
        self._trouble = RepeatedFailure(
            _log.warning, "the service's report could not be written", "the service's report is written again"
        )
        self._thread = threading.Thread(target=self._run, name="exchange", daemon=True)
        self._thread.start()

    def publish(self, report: ServiceReport) -> None:
        """Write a report at the next look, which is now where the service's state has changed."""
        with self._lock:
            changed = self._newest is None or self._newest.state != report.state
            self._newest = report
        if changed:
            self._wake.set()

    def control(self) -> Control:
        """Return the requests that were read last."""
        return self._control

    def close(self) -> None:
        """Write the newest report and end the thread."""
        self._closing = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        written: ServiceReport | None = None
        while True:
            self._wake.wait(self._every_s)
            self._wake.clear()
            closing = self._closing
            with self._lock:
                newest = self._newest
            if newest is not None and newest is not written:
                self._write_newest(newest)
                written = newest
            if closing:
                return
            self._control = self._read()

    def _write_newest(self, report: ServiceReport) -> None:
        try:
            self._write(report)
        except LakewardError as error:
            self._trouble.failed(str(error))
        else:
            self._trouble.succeeded()
