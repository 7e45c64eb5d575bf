"""How a service starts: it continues where its last start ended, with its lease and its assigned tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.coordinator.workers.calls import call
from lakeward.machines.rounds import Resumed, Targets

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.coordinator.checkpoints.known import KnownCheckpoints
    from lakeward.coordinator.effects.lease import LeaseProtection
    from lakeward.coordinator.service.components import ServiceComponents, ServiceOptions
    from lakeward.coordinator.service.heartbeats import Heartbeats
    from lakeward.coordinator.service.housekeeping import Housekeeping
    from lakeward.coordinator.state.persistence import StatePersistence
    from lakeward.coordinator.tables.targets import TargetOffsets
    from lakeward.machines.rounds import RoundsEvent


@dataclass(frozen=True, eq=False, kw_only=True)
class Start:
    """Starts a service. Used on the event loop only."""

    components: ServiceComponents
    options: ServiceOptions
    targets: TargetOffsets
    heartbeats: Heartbeats
    protection: LeaseProtection
    checkpoints: KnownCheckpoints
    persistence: StatePersistence
    housekeeping: Housekeeping

    async def leasing(self) -> None:
        """Make the calls of the lease until cancelled."""
        await self.protection.run()

    async def run(self, post: Callable[[RoundsEvent], None]) -> None:
        """Start; `post` tells the machine of all tables what it begins with."""
        options, clock = self.options, self.components.clock
        state = await call(self.components.state.load, what="read the service's state")
        # Read the tables first: the first write of this start replaces the last start's state.
        resumed = await self.heartbeats.resume(state)
        assignments = tuple(one for one in resumed if options.included(one.path))
        for one in set(resumed) - set(assignments):  # excluded since the last start
            await self.heartbeats.give_back(one)
        if options.once:
            paths = await self.targets.aim()
            # Each assigned table gets a round, even if that has nothing to do but to report the table as finished.
            paths |= {one.path for one in assignments}
            post(Targets(now=clock.now(), paths=paths))
        if assignments:
            post(Resumed(now=clock.now(), assignments=assignments))
        for table_id, because in state.invalidated.items() if state is not None else ():
            self.checkpoints.invalidate(table_id, because)  # before the first write, as above
        copy = None if state is not None else await self.housekeeping.find_lease()
        released = await self.protection.restore(state, copy)
        await self.persistence.write()
        self.protection.take_over({one.table_id for one in assignments})
        await self.housekeeping.sweep()
        self.checkpoints.invalidate_tables_that_need(released, "the lease backend released its snapshots at the start")
        self.housekeeping.release_stray()
