"""The port of time, for everything outside the machines."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Time, for everything outside the machines."""

    def now(self) -> float:
        """Return seconds on the boot-time clock, which goes on while the machine is suspended."""
        ...

    def wall_ms(self) -> int:
        """Return milliseconds since 1970; only for what is persisted or shown."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block for so many seconds, >= 0; only on a thread of one's own, never on the event loop."""
        ...
