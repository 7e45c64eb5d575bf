"""SIGINT and SIGTERM: the first one asks for a stop, the second one ends the process.

One signal may arrive twice. `timeout` and some terminals send it to the process and to its group; and a process that is
being forked still has our handlers and our loop's wake-up pipe, so a signal to the group is reported by it as well. The
loop's own handlers count both (`Loop.add_signal_handler` counts bytes in that pipe); the ones here count what this
process itself received.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, TypeVar

import structlog

from lakeward.coordinator.workers.calls import call
from lakeward.errors import in_words

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

SAME_S = 0.02
"""Seconds within which a signal that is delivered again is the same one, sent twice; a person takes longer."""
DEATH_AHEAD_S = 0.2
"""Seconds that the death of a child may be ahead of the signal to the group that killed it."""
T = TypeVar("T")
_log = structlog.get_logger("lakeward.service")


class StopSignals:
    """What SIGINT and SIGTERM ask of a process. For the loop's thread, which must be the main thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_stop: Callable[[str], None]) -> None:
        """Listen from now on; `on_stop` is called on the loop with the name of the first signal."""
        self.asked = asyncio.Event()
        """Set once a stop was asked for."""
        self.then: Callable[[], object] = _nothing
        """What the first signal does besides; called on the loop."""
        self._loop = loop
        self._on_stop = on_stop
        self._process = os.getpid()
        self._last: tuple[int, float] = (0, 0.0)
        for number in (signal.SIGINT, signal.SIGTERM):
            # The loop's handler is there so that a signal wakes the loop, whichever thread it is delivered to.
            loop.add_signal_handler(number, _nothing)
            signal.signal(number, self._on_delivery)

    def _on_delivery(self, number: int, _frame: FrameType | None) -> None:
        if os.getpid() == self._process:  # A child that has not become another program yet has this handler, too.
            before, at = self._last
            self._last = (number, self._loop.time())
            if number != before or self._loop.time() - at >= SAME_S:
                self._loop.call_soon_threadsafe(self._on_signal, number)

    def _on_signal(self, number: int) -> None:
        if self.asked.is_set():
            os._exit(128 + number)
        else:
            self.asked.set()
            self._on_stop(signal.Signals(number).name)
            self.then()


async def unless_stopped(make: Callable[[], T], signals: StopSignals, *, what: str) -> T | None:
    """Make something on a thread, and stop waiting for it where a stop is asked for.

    A signal to the group kills programs that are being started as well. Their failure may be heard before the signal:
    it counts as the stop's. `make` is blocking; where nobody waits any longer, it goes on unheard. `what` describes the
    call, for the thread's name. Returns None where a stop was asked for meanwhile.

    Raises:
        Exception: what `make` raised.
    """
    making = asyncio.ensure_future(call(make, what=what))
    asked = asyncio.ensure_future(signals.asked.wait())
    await asyncio.wait({making, asked}, return_when=asyncio.FIRST_COMPLETED)
    if making.done() and making.exception() is not None:
        await asyncio.wait({asked}, timeout=DEATH_AHEAD_S)
    # The task that waits for it may be a turn behind.
    if not signals.asked.is_set():
        asked.cancel()
        return await making
    if not making.cancel() and (error := making.exception()) is not None:
        _log.info("what was asked to stop could not be started", reason=in_words(error))
    return None


def _nothing() -> None:
    pass
