"""What the service does each time that its loop wakes up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.machines.rounds import PauseRequested, ResumeRequested

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakeward.coordinator.effects.executor import RoundExecutor
    from lakeward.coordinator.effects.lease import LeaseProtection
    from lakeward.coordinator.effects.replay import LetterReplayer
    from lakeward.coordinator.effects.upkeep import Upkeep
    from lakeward.coordinator.effects.upkeep_jobs import UpkeepJobs
    from lakeward.coordinator.leases.driver import LeaseDriver
    from lakeward.coordinator.service.all_tables import AllTables
    from lakeward.coordinator.service.components import ServiceOptions
    from lakeward.coordinator.service.housekeeping import Housekeeping
    from lakeward.model.dead_letters import LetterFilter, ReplayRequest
    from lakeward.model.tables import TablePath
    from lakeward.ports import Clock


class Controls:
    """What people ask of the running service by commands: to pause or resume tables, upkeep, to replay dead letters."""

    def __init__(self, options: ServiceOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._paused: frozenset[str] = frozenset()
        self._resumed: Mapping[str, int] | None = None
        self._upkeep: Mapping[str, int] | None = None
        self._replay: Mapping[str, ReplayRequest] | None = None

    def read(self) -> Iterator[PauseRequested | ResumeRequested]:
        """Yield what is requested now, and was not before."""
        options, now = self._options, self._clock.now()
        resumed, wanted = options.resumed(), options.paused()
        if resumed == self._resumed and wanted == self._paused:
            return
        for name in wanted - self._paused:
            yield PauseRequested(now=now, path=options.path(name))
        # Resume requests from before this start have no effect: nothing is suspended yet.
        known = resumed if self._resumed is None else self._resumed
        again = {name for name, times in resumed.items() if times != known.get(name)} - wanted
        for name in sorted(again | (self._paused - wanted)):
            yield ResumeRequested(now=now, path=options.path(name))
        self._paused, self._resumed = wanted, resumed

    def read_upkeep(self) -> frozenset[str]:
        """Return the names of the tables whose upkeep is requested now, and was not before."""
        known, self._upkeep = self._upkeep, self._options.upkeep()
        if known is None or known == self._upkeep:
            return frozenset()  # what was asked before this start is due after the first round anyway
        return frozenset(name for name, times in self._upkeep.items() if times != known.get(name))

    def read_replays(self) -> Mapping[TablePath, LetterFilter]:
        """Return by table which dead letters are to be replayed, as is requested now and was not before."""
        known, self._replay = self._replay, self._options.replay()
        if known is None or known == self._replay:
            return {}  # whether a request from before this start was done, nobody knows: a person asks again
        new = {name: one for name, one in self._replay.items() if one != known.get(name)}
        return {self._options.path(name): one.wanted for name, one in new.items()}


@dataclass(frozen=True, eq=False, kw_only=True)
class Turn:
    """One turn of the loop. Used on the event loop only."""

    tables: AllTables
    controls: Controls
    protection: LeaseProtection
    leases: LeaseDriver
    executor: RoundExecutor
    upkeep: Upkeep
    upkeep_jobs: UpkeepJobs
    replayer: LetterReplayer
    housekeeping: Housekeeping

    def take(self) -> None:
        """Do what is due: take requests of people, let time pass for each machine, and clean up."""
        for request in self.controls.read():
            self.tables.post(request)
        self.tables.tick()
        self.protection.hold_checkpoints()
        self.housekeeping.review()
        self.leases.tick()
        self.executor.tick()
        self.upkeep.tick()
        self.upkeep_jobs.ask(self.controls.read_upkeep())
        self.upkeep_jobs.tick()
        self.replayer.ask(self.controls.read_replays())
        self.housekeeping.tick()
