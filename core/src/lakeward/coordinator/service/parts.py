"""Who does the work of a service: built by the container, kept by the service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakeward.coordinator.checkpoints.restorer import Restorer
    from lakeward.coordinator.effects.executor import RoundExecutor
    from lakeward.coordinator.effects.lag import LagAfterCommit
    from lakeward.coordinator.effects.lease import LeaseProtection
    from lakeward.coordinator.effects.upkeep import Upkeep
    from lakeward.coordinator.leases.driver import LeaseDriver
    from lakeward.coordinator.service.housekeeping import Housekeeping
    from lakeward.coordinator.service.reporter import Reporter
    from lakeward.coordinator.service.server import SubtaskServer
    from lakeward.coordinator.state.persistence import StatePersistence
    from lakeward.coordinator.tables.targets import TargetOffsets
    from lakeward.coordinator.workers.subtask_address import SubtaskAddress


@dataclass(frozen=True, slots=True)
class ServiceParts:
    """Who does the work of a service."""

    address: SubtaskAddress
    server: SubtaskServer
    targets: TargetOffsets
    leases: LeaseDriver
    protection: LeaseProtection
    restorer: Restorer
    executor: RoundExecutor
    upkeep: Upkeep
    lag: LagAfterCommit
    persistence: StatePersistence
    housekeeping: Housekeeping
    reporter: Reporter
