"""Heartbeats to the source: what it is told of the tables, and what it answers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import structlog

from lakeward.coordinator.workers.calls import call
from lakeward.errors import LakewardError
from lakeward.machines.rounds import HeartbeatAnswered, HeartbeatFailed
from lakeward.model.tiering import HeartbeatRequest, TableAssignment, TableEpoch

if TYPE_CHECKING:
    from lakeward.coordinator.effects.lease import LeaseProtection
    from lakeward.coordinator.service.components import ServiceComponents, ServiceOptions
    from lakeward.coordinator.state.persistence import StatePersistence
    from lakeward.coordinator.workers.event_loop import EventLoop
    from lakeward.ports import TableQueue
    from lakeward.storage.service_state import ServiceState

_RESUME_S = 30.0
_GIVE_BACK_S = 5.0
_log = structlog.get_logger("lakeward.service")


class Heartbeats:
    """Sends heartbeats. Used on the event loop only."""

    def __init__(
        self,
        *,
        components: ServiceComponents,
        options: ServiceOptions,
        queue: TableQueue,
        loop: EventLoop,
        protection: LeaseProtection,
        persistence: StatePersistence,
    ) -> None:
        self._clock = components.clock
        self._queue = queue
        self._state = components.state
        self._options = options
        self._loop = loop
        self._protection = protection
        self._persistence = persistence

    async def resume(self, state: ServiceState | None) -> tuple[TableAssignment, ...]:
        """Renew the tables of the last start; return those that the source accepts, under their old epochs.

        One that was renewed longer ago than the source's timeout is left out.
        """
        if state is None or not state.tables:
            return ()
        oldest = self._clock.wall_ms() - int(self._options.settings.source.heartbeat_timeout_s * 1000)
        fresh = [table for table in state.tables if table.renewed_ms >= oldest]
        epochs = tuple(TableEpoch(table.table_id, table.epoch, table.coordinator_epoch) for table in fresh)
        if not epochs:
            return ()
        request, what = HeartbeatRequest(renewed=epochs), "renew the last start's tables"
        try:
            answer = await call(partial(self._queue.heartbeat, request), what=what, timeout_s=_RESUME_S)
        except LakewardError as error:
            _log.warning("the tables of the last start could not be renewed", reason=str(error))
            return ()
        return tuple(
            TableAssignment(table.path, table.table_id, table.epoch, table.coordinator_epoch, table.freshness_s)
            for table in fresh
            if table.table_id not in answer.refused
        )

    async def give_back(self, assignment: TableAssignment) -> None:
        """Give a table back that only this start knows to be assigned: else it would wait for its tiering timeout."""
        epoch = TableEpoch(assignment.table_id, assignment.epoch, assignment.coordinator_epoch)
        request, what = HeartbeatRequest(failed=(epoch,)), f"give {assignment.path} back"
        try:
            await call(partial(self._queue.heartbeat, request), what=what, timeout_s=_GIVE_BACK_S)
        except LakewardError as error:
            _log.warning("a table was not given back; the source takes it back in time", reason=str(error))

    async def send(self, request: HeartbeatRequest) -> HeartbeatAnswered | HeartbeatFailed:
        """Send a heartbeat; return what became of it."""
        timeout_s = self._options.heartbeat_call_timeout_s
        try:
            response = await call(partial(self._queue.heartbeat, request), what="heartbeat", timeout_s=timeout_s)
        except LakewardError as error:
            _log.warning("heartbeat failed", reason=str(error))
            return HeartbeatFailed(now=self._clock.now(), cause=str(error))
        self._protection.note_coordinator(response.coordinator_epoch)
        if response.assignment is not None:
            response = replace(response, assignment=self._options.as_promised(response.assignment))
        return HeartbeatAnswered(now=self._clock.now(), request=request, response=response)

    async def persist(self, answered: HeartbeatAnswered) -> None:
        """Write down what the machine has taken; give back what was assigned after a later start had taken over."""
        given = answered.response.assignment
        if answered.request.renewed or given is not None:
            await self._persistence.try_write()
        if self._loop.superseded_by and given is not None and not self._state.is_written(given):
            await self.give_back(given)
