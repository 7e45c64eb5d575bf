"""Waits in the event loop of a test for what has no event of its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


async def until(true: Callable[[], object], seconds: float = 20.0) -> None:
    """Look again and again.

    Args:
        true: what is looked at.
        seconds: after which it counts as never coming.

    Raises:
        TimeoutError: it did not become true.
    """
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 - what is looked at has no event of its own
            await asyncio.sleep(0.02)
