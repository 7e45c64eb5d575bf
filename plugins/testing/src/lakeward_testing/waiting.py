"""Waits for what has no event of its own: a state in a store, a process, a line of a log.

Where there is an event, a queue or a thread's end, a test waits for that instead, for as long as `LIMIT_S`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

LIMIT_S = 300.0
"""Seconds after which what a test waits for never comes. It ends what hangs: a slow machine stays below it."""
_TURN_S = 0.02


def wait_until(look: Callable[[], object], what: str, limit_s: float = LIMIT_S, turn_s: float = _TURN_S) -> None:
    """Look again and again, until `look` returns something true: `what` in words, for the error.

    `turn_s` are seconds between two looks: longer for one that costs the machine much.

    Raises:
        AssertionError: it did not become true.
    """
    deadline = time.monotonic() + limit_s
    while not look():
        if time.monotonic() > deadline:
            message = f"waited {limit_s:.0f} s for: {what}"
            raise AssertionError(message)
        time.sleep(turn_s)


async def until(look: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    """Look again and again while the event loop goes on, until `look` returns something true; `limit_s` is in seconds.

    Raises:
        TimeoutError: it did not become true.
    """
    async with asyncio.timeout(limit_s):
        while not look():  # noqa: ASYNC110 - what is looked at has no event of its own
            await asyncio.sleep(_TURN_S)
