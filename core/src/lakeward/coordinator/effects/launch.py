"""Launches and cancels jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.coordinator.effects.items import ForRound
from lakeward.coordinator.effects.work import Handlers
from lakeward.coordinator.rounds.effects import StartLaunch, StopLaunch
from lakeward.coordinator.rounds.round import LaunchGone

if TYPE_CHECKING:
    from lakeward.coordinator.effects.upkeep_jobs import UpkeepJobs
    from lakeward.coordinator.rounds.round import Round
    from lakeward.coordinator.workers.event_loop import EventLoop
    from lakeward.ports import Jobs


class Launching:
    """Launches jobs; their ends come into the inbox, from any thread."""

    def __init__(self, jobs: Jobs, loop: EventLoop, upkeep: UpkeepJobs) -> None:
        self._jobs = jobs
        self._loop = loop
        self._upkeep = upkeep

    @property
    def handlers(self) -> Handlers:
        """How the effects of this module are executed."""
        return Handlers(at_once={StartLaunch: self.start, StopLaunch: self.stop})

    def start(self, one: Round, effect: StartLaunch) -> None:
        """Launch a job of a round; nothing is launched once a later start of the service has taken over."""
        if not self._loop.superseded_by:
            spec, loop = effect.spec, self._loop
            self._upkeep.look()  # its jobs give way
            self._jobs.launch(spec, lambda reason: loop.put_from_thread(ForRound(one, LaunchGone(spec, reason))))

    def stop(self, _: Round, effect: StopLaunch) -> None:
        """Cancel a job."""
        self._jobs.cancel(effect.spec)
