"""A session that is being started, while its service opens everything else: most of a start is waiting for Java."""

from __future__ import annotations

import threading
from concurrent.futures import Future, wait
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.ports import Executor
    from lakeward.spark.session import SparkHandle


ABANDON_S = 14.0
"""Seconds that the end of a start may take: its Java process may not be reachable yet, which lasts on a busy machine.
What is left after that stays behind. It is less than what a resource has to close (`CLOSE_S`).
"""


class StartingSpark:
    """Starts a session on a thread of its own. Thread-safe."""

    def __init__(self, start: Callable[[threading.Event], SparkHandle], executor: Executor) -> None:
        """Begin: `start` starts the session on the executor; blocking.

        It gives up soon after the event that it gets is set.
        """
        self._started: Future[SparkHandle] = Future()
        self._abandoned = threading.Event()
        executor.start(partial(self._run, start), name="start Spark")

    def wait(self) -> SparkHandle:
        """Wait until the session is there.

        Raises:
            Exception: what its start raised.
        """
        return self._started.result()

    def abandon(self) -> None:
        """End a start that nobody waits for any longer, within `ABANDON_S`. One that has ended is left alone."""
        self._abandoned.set()
        wait([self._started], ABANDON_S)

    def _run(self, start: Callable[[threading.Event], SparkHandle]) -> None:
        try:
            handle = start(self._abandoned)
        except BaseException as error:  # noqa: BLE001 - carried to whoever waits
            self._started.set_exception(error)
        else:
            self._started.set_result(handle)
