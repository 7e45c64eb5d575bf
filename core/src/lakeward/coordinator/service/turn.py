"""What the service does each time that its loop wakes up."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakeward.coordinator.effects.executor import RoundExecutor
    from lakeward.coordinator.effects.lease import LeaseProtection
    from lakeward.coordinator.effects.upkeep import Upkeep
    from lakeward.coordinator.leases.driver import LeaseDriver
    from lakeward.coordinator.service.all_tables import AllTables
    from lakeward.coordinator.service.controls import Controls
    from lakeward.coordinator.service.housekeeping import Housekeeping


class Turn:
    """One turn of the loop. Used on the event loop only."""

    def __init__(
        self,
        *,
        tables: AllTables,
        controls: Controls,
        protection: LeaseProtection,
        leases: LeaseDriver,
        executor: RoundExecutor,
        upkeep: Upkeep,
        housekeeping: Housekeeping,
    ) -> None:
        self._tables = tables
        self._controls = controls
        self._protection = protection
        self._leases = leases
        self._executor = executor
        self._upkeep = upkeep
        self._housekeeping = housekeeping

    def take(self) -> None:
        """Do what is due: take requests of people, let time pass for each machine, and clean up."""
        for request in self._controls.read():
            self._tables.post(request)
        self._tables.tick()
        self._protection.hold_checkpoints()
        self._housekeeping.review()
        self._leases.tick()
        self._executor.tick()
        self._upkeep.tick()
        self._housekeeping.tick()
