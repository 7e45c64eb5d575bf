"""Pauses between attempts, up to a deadline on the event loop's clock."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakeward_source_fluss.rpc.options import ConnectOptions

_JITTER = 0.2


class Attempts:
    """The attempts of one call: how long is left, and the pauses between them.

    Attributes:
        last: why the last attempt failed.
    """

    __slots__ = ("_deadline", "_limit_s", "_pause_s", "last")

    def __init__(self, options: ConnectOptions, timeout_s: float) -> None:
        """Start the clock; must be called in the event loop. All attempts together have `timeout_s` seconds."""
        self._deadline = asyncio.get_running_loop().time() + timeout_s
        self._pause_s = options.backoff_s
        self._limit_s = options.backoff_limit_s
        self.last: Exception | None = None

    @property
    def deadline(self) -> float:
        """The end, on the event loop's clock."""
        return self._deadline

    @property
    def left_s(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self._deadline - asyncio.get_running_loop().time())

    async def pause(self, error: Exception) -> None:
        """Wait before the next attempt; `error`, why the last one failed, is raised if there is no time for another."""
        self.last = error
        # Many clients lose one server at the same moment; they shall not come back at the same moment too.
        pause_s = self._pause_s * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311  # no secret
        self._pause_s = min(self._pause_s * 2, self._limit_s)
        if pause_s >= self.left_s:
            raise error
        await asyncio.sleep(pause_s)
