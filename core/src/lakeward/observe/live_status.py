"""What is known of a service in its own process: its newest report, its signs of life, and what is open.

The service's event loop and the threads that open source, lake and Spark write it; the threads of the status page
read it. Each value is replaced as a whole, so nobody waits for anybody.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakeward.model.status import RoundReport, ServiceReport
    from lakeward.ports import Clock

STEP_S = 1.0
SILENT_AFTER_S = 10.0
"""An event loop that has not stepped for so long hangs: its longest piece of work takes less than a second."""
REPORT_LATE_S = 30.0
"""A service that serves reports every 5 s at least; after this long its rounds are not driven any more."""


class Part(Enum):
    """What a service needs before it serves."""

    SOURCE = "source"
    LAKE = "lake"
    SPARK = "Spark"


class LiveStatus:
    """One service as its own process knows it."""

    def __init__(self, clock: Clock) -> None:
        """Start without a report."""
        self._clock = clock
        self._stepped_at = clock.now()
        self._report: ServiceReport | None = None
        self._reported_at = 0.0
        self._open: frozenset[Part] = frozenset()
        self._rounds_of: Callable[[int], Sequence[RoundReport]] = lambda _: ()

    @property
    def report(self) -> ServiceReport | None:
        """The newest report; None until the service has made one."""
        return self._report

    @property
    def wall_ms(self) -> int:
        """Milliseconds since 1970, now."""
        return self._clock.wall_ms()

    @property
    def state(self) -> str:
        """As in a report; `starting` until there is one."""
        return "starting" if self._report is None else self._report.state

    def update(self, report: ServiceReport) -> None:
        """Take the newest report. Called on the event loop."""
        self._report, self._reported_at = report, self._clock.now()

    def remembers(self, rounds_of: Callable[[int], Sequence[RoundReport]]) -> None:
        """Take what knows the ended rounds of a table by its id, the oldest first; any thread may ask it."""
        self._rounds_of = rounds_of

    def rounds_of(self, table_id: int) -> Sequence[RoundReport]:
        """Return the ended rounds of a table that are kept, the oldest first; none before Spark has started."""
        return self._rounds_of(table_id)

    def opened(self, *parts: Part) -> None:
        """Note what is open. Called by one thread at a time."""
        self._open |= frozenset(parts)

    def stepped(self) -> None:
        """Note that the event loop steps."""
        self._stepped_at = self._clock.now()

    async def watch_loop(self) -> None:
        """Show that the event loop steps, until cancelled."""
        while True:
            self.stepped()
            await asyncio.sleep(STEP_S)

    def trouble(self) -> str:
        """Return why the service does not live, in words; empty if it lives."""
        now = self._clock.now()
        if (silent := now - self._stepped_at) > SILENT_AFTER_S:
            return f"the event loop has not stepped for {silent:.0f} s"
        if self.state == "serving" and (silent := now - self._reported_at) > REPORT_LATE_S:
            return f"the service has not reported for {silent:.0f} s"
        return ""

    def missing(self) -> tuple[str, ...]:
        """Return what keeps the service from serving, in words; nothing if it serves."""
        parts = tuple(f"{part.value} is not open yet" for part in Part if part not in self._open)
        state = () if self.state == "serving" else (f"the service is {self.state}",)
        trouble = self.trouble()
        return (*parts, *state, *((trouble,) if trouble else ()))
