"""Executes what the machine of all tables orders, but for heartbeats."""

from __future__ import annotations

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


class Commands:
    """Executes commands about one table. Used on the event loop only."""

    def __init__(
        self,
        *,
        loop: EventLoop,
        executor: RoundExecutor,
        protection: LeaseProtection,
        checkpoints: KnownCheckpoints,
        reporter: Reporter,
        housekeeping: Housekeeping,
        persistence: StatePersistence,
    ) -> None:
        self._loop = loop
        self._executor = executor
        self._protection = protection
        self._checkpoints = checkpoints
        self._reporter = reporter
        self._housekeeping = housekeeping
        self._persistence = persistence

    def execute(self, command: RoundsCommand) -> None:
        """Execute a command."""
        match command:
            case OpenRound():
                self._executor.start(command)
            case AcquireLeases():
                self._protection.protect(command.table_id)
            case LaunchJob() | FinishRoundEarly() | CommitRound():
                self._executor.pass_on(command)
            case EndRound():
                self._end_round(command)
            case Forget():
                self._forget(command)

    def _end_round(self, command: EndRound) -> None:
        if command.outcome == "dropped":
            self._checkpoints.invalidate(command.table_id, _IS_DROPPED)
        ended = self._executor.end(command)
        if ended is not None:
            self._reporter.round_ended(ended)
        self._protection.end_round(command.table_id)

    def _forget(self, command: Forget) -> None:
        if command.reason == Refusal.GONE.value:
            self._checkpoints.invalidate(command.table_id, _IS_DROPPED)
        self._reporter.forget(command.table_id, command.reason)
        if command.reason in _DROPPED:
            self._loop.spawn(partial(self._housekeeping.forget_table, command.table_id))
        self._loop.spawn(self._persistence.try_write)
