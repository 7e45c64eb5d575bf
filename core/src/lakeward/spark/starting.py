"""A session that is being started, while its service opens everything else: most of a start is waiting for Java."""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.ports import Executor
    from lakeward.spark.session import SparkHandle


class StartingSpark:
    """Starts a session on a thread of its own. Thread-safe."""

    def __init__(self, start: Callable[[], SparkHandle], executor: Executor) -> None:
        """Begin.

        Args:
            start: starts the session; blocking.
            executor: where it runs.
        """
        self._started: Future[SparkHandle] = Future()
        executor.start(partial(self._run, start), name="start Spark")

    def wait(self) -> SparkHandle:
        """Wait until the session is there.

        Raises:
            Exception: what its start raised.
        """
        return self._started.result()

    def _run(self, start: Callable[[], SparkHandle]) -> None:
        try:
            handle = start()
        except BaseException as error:  # noqa: BLE001 - carried to whoever waits
            self._started.set_exception(error)
        else:
            self._started.set_result(handle)
