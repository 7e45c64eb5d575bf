"""Executes what the machine of all tables orders, but for heartbeats."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lakeward.machines.rounds import (
    AcquireLeases,
    CommitRound,
    EndRound,
    FinishRoundEarly,
    Forget,
    LaunchJob,
    OpenRound,
    RoundsCommand,
)
from lakeward.model.tiering import Refusal

if TYPE_CHECKING:
    from lakeward.coordinator.checkpoints.known import KnownCheckpoints
    from lakeward.coordinator.effects.executor import RoundExecutor
    from lakeward.coordinator.effects.lease import LeaseProtection
    from lakeward.coordinator.service.housekeeping import Housekeeping
    from lakeward.coordinator.service.reporter import Reporter
    from lakeward.coordinator.state.persistence import StatePersistence
    from lakeward.coordinator.workers.event_loop import EventLoop

_DROPPED = frozenset({"dropped", Refusal.GONE.value})
_IS_DROPPED = "its table was dropped"


@dataclass(frozen=True, eq=False, kw_only=True)
class Commands:
    """Executes commands about one table. Used on the event loop only."""

    loop: EventLoop
    executor: RoundExecutor
    protection: LeaseProtection
    checkpoints: KnownCheckpoints
    reporter: Reporter
    housekeeping: Housekeeping
    persistence: StatePersistence

    def execute(self, command: RoundsCommand) -> None:
        """Execute a command."""
        match command:
            case OpenRound():
                self.executor.start(command)
            case AcquireLeases():
                self.protection.protect(command.table_id)
            case LaunchJob() | FinishRoundEarly() | CommitRound():
                self.executor.pass_on(command)
            case EndRound():
                self._end_round(command)
            case Forget():
                self._forget(command)

    def _end_round(self, command: EndRound) -> None:
        if command.outcome == "dropped":
            self.checkpoints.invalidate(command.table_id, _IS_DROPPED)
        ended = self.executor.end(command)
        if ended is not None:
            self.reporter.round_ended(ended)
        self.protection.end_round(command.table_id)

    def _forget(self, command: Forget) -> None:
        if command.reason == Refusal.GONE.value:
            self.checkpoints.invalidate(command.table_id, _IS_DROPPED)
        self.reporter.forget(command.table_id, command.reason)
        if command.reason in _DROPPED:
            self.loop.spawn(partial(self.housekeeping.forget_table, command.table_id))
        self.loop.spawn(self.persistence.try_write)
