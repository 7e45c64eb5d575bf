"""A clock that stands still until a test moves it."""

from __future__ import annotations


class FakeClock:
    """A `lakeward.ports.Clock` under the test's control."""

    def __init__(self, now: float = 1000.0, wall_ms: int = 1_700_000_000_000) -> None:
        """Start at `now` seconds on the boot-time clock, and `wall_ms` milliseconds since 1970."""
        self._now = now
        self._wall_ms = float(wall_ms)

    def now(self) -> float:
        """Return seconds on the boot-time clock."""
        return self._now

    def wall_ms(self) -> int:
        """Return milliseconds since 1970."""
        return round(self._wall_ms)

    def advance(self, seconds: float) -> None:
        """Let seconds (>= 0) pass, on both clocks."""
        self._now += seconds
        self._wall_ms += seconds * 1000

    def sleep(self, seconds: float) -> None:
        """Return at once, after so many seconds of the test's time."""
        self.advance(seconds)

    def jump_wall(self, seconds: float) -> None:
        """Set the wall clock, as a person or a time server does; the boot-time clock does not see it.

        Seconds go forward, or back where negative.
        """
        self._wall_ms += seconds * 1000
