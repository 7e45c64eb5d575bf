"""An event loop on a daemon thread, for callers that know no asyncio."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, TypeVar

from lakeward.errors import UsageError
from lakeward_fluss.wire.errors import ClientClosedError

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for other threads, as many at once as they ask for."""

    def __init__(self, name: str) -> None:
        """Start the thread.

        Args:
            name: the thread's name.
        """
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._closed = False
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and wait for it.

        Args:
            work: the coroutine.

        Returns:
            Its result.

        Raises:
            ClientClosedError: the thread is closed, or was meanwhile.
            UsageError: this process was forked from the one that started the thread.
        """
        if os.getpid() != self._process:
            work.close()
            message = "a client must be opened in the process that uses it: expected no fork since then"
            raise UsageError(message)
        # Under the lock, so that nothing is handed to a loop that has stopped: that would never be answered.
        with self._lock:
            if self._closed:
                work.close()
                raise _closed()
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError as error:
            raise _closed() from error
        except BaseException:
            future.cancel()
            raise

    def close_after(self, last: Coroutine[Any, Any, None]) -> None:
        """Run one more coroutine, cancel what runs and end the thread; a second time is harmless.

        Args:
            last: closes what the coroutines used.
        """
        with self._lock:
            if self._closed or os.getpid() != self._process:
                last.close()
                return
            self._closed = True
            end = asyncio.run_coroutine_threadsafe(_end(last), self._loop)
        end.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _end(last: Coroutine[Any, Any, None]) -> None:
    await last
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_default_executor()


def _closed() -> ClientClosedError:
    return ClientClosedError("the client is closed")
