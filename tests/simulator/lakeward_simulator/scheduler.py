"""Virtual time: one heap of things to do, one random generator, and the processes that do them.

Nothing here waits. A call that blocks its caller lets the rest of the world go on in a nested run (`Process.wait`):
what a thread would do, in an order that a seed replays exactly.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

FENCE_S = 16.0
"""Seconds without a heartbeat after which a service commits nothing more."""
_STEPS = 400_000
"""Things done in one run at the most: a world that goes round in circles is a finding, not a hang."""


class Killed(BaseException):
    """Unwinds what a process was doing when it died; nothing that is caught on purpose catches it."""


class RunawayError(Exception):
    """A run did more than any healthy one does."""


class Scheduler:
    """Does everything in the order of its time; what has the same time, in the order in which it was put in."""

    def __init__(self, random: Random) -> None:
        """Start at zero.

        Args:
            random: the one source of chance.
        """
        self.random = random
        self.now = 0.0
        self.steps = 0
        self.halted = False
        """Set where a check has failed: there is no point in going on."""
        self._heap: list[tuple[float, int, Callable[..., object], tuple[Any, ...], Process | None]] = []
        self._number = 0

    def at(self, time: float, work: Callable[..., object], *args: Any, who: Process | None = None) -> None:  # noqa: ANN401 - passed on
        """Do something at a time, in seconds.

        Args:
            time: when.
            work: what.
            args: for it.
            who: whose doing it is: not done if that process is dead by then, later if it stands still.
        """
        self._number += 1
        heappush(self._heap, (max(self.now, time), self._number, work, args, who))

    def after(self, delay: float, work: Callable[..., object], *args: Any) -> None:  # noqa: ANN401 - passed on
        """Do something after a delay, in seconds."""
        self.at(self.now + delay, work, *args)

    def run_until(self, end: float, stop: Callable[[], bool] | None = None, every_s: float = 0.0) -> None:
        """Let time go on.

        Args:
            end: the time to stop at, in seconds.
            stop: looked at before each step; ends the run early.
            every_s: seconds that pass between two looks at `stop`, where looking costs more than most steps do.

        Raises:
            RunawayError: too much was done in too little time.
        """
        heap = self._heap
        look_at = self.now
        while heap and heap[0][0] <= end:
            if stop is not None and (self.halted or (self.now >= look_at and stop())):
                return
            if self.now >= look_at:
                look_at = self.now + every_s
            now, _, work, args, who = heappop(heap)
            self.now = now
            self.steps += 1
            if self.steps > _STEPS:
                message = f"{_STEPS} steps were made by {self.now:.1f} s"
                raise RunawayError(message)
            if who is None:
                work(*args)
            elif who.alive:
                if now < who.frozen_until:
                    self.at(who.frozen_until, work, *args, who=who)
                else:
                    work(*args)
        self.now = max(self.now, end)


class Process:
    """Something that can die, and stand still and wake up again with what it had in memory."""

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        """Start alive.

        Args:
            scheduler: the world's.
            name: for the story.
        """
        self.scheduler = scheduler
        self.name = name
        self.alive = True
        self.frozen_until = 0.0
        self._frozen_at = 0.0
        self.slept_s = 0.0
        """Seconds of its longest stand-still."""

    @property
    def random(self) -> Random:
        """The one source of chance."""
        return self.scheduler.random

    @property
    def frozen(self) -> bool:
        """Whether it stands still."""
        return self.scheduler.now < self.frozen_until

    def after(self, delay: float, work: Callable[..., object], *args: Any) -> None:  # noqa: ANN401 - passed on
        """Do something as this process: not if it is dead by then, later if it stands still."""
        scheduler = self.scheduler
        scheduler.at(scheduler.now + delay, work, *args, who=self)

    def kill(self) -> None:
        """Die: nothing that was to be done is done."""
        self.alive = False

    def freeze(self, seconds: float) -> None:
        """Stand still, and go on as if nothing had happened; who does already stands still for longer."""
        if not self.frozen:
            self._frozen_at = self.scheduler.now
        self.frozen_until = max(self.frozen_until, self.scheduler.now + seconds)
        self.slept_s = max(self.slept_s, self.frozen_until - self._frozen_at)

    def wait(self, seconds: float) -> None:
        """Block for some time, and for as long as this process stands still; the world goes on.

        Raises:
            Killed: it died meanwhile.
        """
        if seconds > 0:
            self.scheduler.run_until(self.scheduler.now + seconds)
        while self.alive and self.frozen:
            self.scheduler.run_until(self.frozen_until)
        if not self.alive:
            raise Killed


class SimClock:
    """A `lakeward.ports.Clock`: the boot-time clock is virtual time, the wall clock can be set."""

    def __init__(self, scheduler: Scheduler, sleep: Callable[[float], None]) -> None:
        """Start at some wall time.

        Args:
            scheduler: the world's.
            sleep: lets the process that acts stand still for so many seconds.
        """
        self._scheduler = scheduler
        self._sleep = sleep
        self.offset_ms = 1_700_000_000_000

    def now(self) -> float:
        """See Protocol."""
        return self._scheduler.now

    def wall_ms(self) -> int:
        """See Protocol."""
        return self.offset_ms + round(self._scheduler.now * 1000)

    def sleep(self, seconds: float) -> None:
        """See Protocol."""
        self._sleep(seconds)
