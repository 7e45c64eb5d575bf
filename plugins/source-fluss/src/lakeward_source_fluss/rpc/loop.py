"""An event loop on a daemon thread, for callers that know no asyncio."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from lakeward.errors import SourceError, UsageError
from lakeward_source_fluss.wire.errors import ClientClosedError

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")
CLOSE_S = 5.0
"""Seconds that the end of a thread may take."""
_LONGER_S = 1.0


class LoopThread:
    """Runs coroutines for other threads, as many at once as they ask for."""

    def __init__(self, name: str) -> None:
        """Start the thread."""
        self._loop = asyncio.new_event_loop()
        self._names = ThreadPoolExecutor(thread_name_prefix=f"{name}-names")
        self._loop.set_default_executor(self._names)
        self._lock = threading.Lock()
        self._closed = False
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and wait for its result.

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
        """Run one more coroutine, which closes what the others used, cancel what runs and end the thread.

        A second time is harmless.

        Raises:
            SourceError: not within `CLOSE_S`; the thread is left behind, and does not keep the process alive.
        """
        with self._lock:
            if self._closed or os.getpid() != self._process:
                last.close()
                return
            self._closed = True
            end = asyncio.run_coroutine_threadsafe(_end(last), self._loop)
        try:
            end.result(CLOSE_S + _LONGER_S)
        except TimeoutError as error:
            # At the end of the interpreter, for one, this thread stands still and will answer nobody.
            message = f"thread {self._thread.name!r}: expected to end within {CLOSE_S:.0f} s, found it at work or stuck"
            raise SourceError(message) from error
        finally:
            self._stop()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        # Names are looked up on threads of the loop's own, and a resolver can take minutes: nobody waits for it.
        self._names.shutdown(wait=False, cancel_futures=True)
        self._thread.join(CLOSE_S)
        if not self._thread.is_alive():
            self._loop.close()


async def _end(last: Coroutine[Any, Any, None]) -> None:
    async with asyncio.timeout(CLOSE_S):
        await last
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _closed() -> ClientClosedError:
    return ClientClosedError("the client is closed")
