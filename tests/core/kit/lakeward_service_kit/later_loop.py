"""An event loop whose time a test sets forward: a limit passes when the test says so, on no machine earlier."""

from __future__ import annotations

import asyncio


class LaterLoop(asyncio.SelectorEventLoop):
    """What has begun to wait when its time is set forward has waited for so long."""

    _ahead_s = 0.0

    def time(self) -> float:
        """See asyncio."""
        return super().time() + self._ahead_s

    def advance(self, seconds: float) -> None:
        """Let so much time pass at once."""
        self._ahead_s += seconds
