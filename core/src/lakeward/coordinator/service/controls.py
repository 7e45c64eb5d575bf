"""What people ask of the running service by commands: to pause tables, and to resume them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.machines.rounds import PauseRequested, ResumeRequested

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakeward.coordinator.service.components import ServiceOptions
    from lakeward.ports import Clock


class Controls:
    """Notices what has changed since it was last asked."""

    def __init__(self, options: ServiceOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._paused: frozenset[str] = frozenset()
        self._resumed: Mapping[str, int] | None = None

    def read(self) -> Iterator[PauseRequested | ResumeRequested]:
        """Yield what is requested now, and was not before."""
        options, now = self._options, self._clock.now()
        resumed, wanted = options.resumed(), options.paused()
        for name in wanted - self._paused:
            yield PauseRequested(now=now, path=options.path(name))
        # Resume requests from before this start have no effect: nothing is suspended yet.
        known = resumed if self._resumed is None else self._resumed
        again = {name for name, times in resumed.items() if times != known.get(name)} - wanted
        for name in sorted(again | (self._paused - wanted)):
            yield ResumeRequested(now=now, path=options.path(name))
        self._paused, self._resumed = wanted, resumed
