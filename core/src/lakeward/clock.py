"""The real clock, for everything outside the machines."""

from __future__ import annotations

import time


class SystemClock:
    """See `lakeward.ports.Clock`."""

    def now(self) -> float:
        """Return seconds on the boot-time clock; where the system has none, on the monotonic clock."""
        boot_time = getattr(time, "CLOCK_BOOTTIME", None)
        return time.monotonic() if boot_time is None else time.clock_gettime(boot_time)

    def wall_ms(self) -> int:
        """Return milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        """Block for so many seconds."""
        time.sleep(seconds)
