"""Heartbeats to the source: what it is told of the tables, and what it answers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import structlog

from lakeward.coordinator.service.stop import give_back
from lakeward.coordinator.workers.calls import call
from lakeward.errors import LakewardError
from lakeward.machines.rounds import HeartbeatAnswered, HeartbeatFailed

if TYPE_CHECKING:
    from lakeward.coordinator.effects.lease import LeaseProtection
    from lakeward.coordinator.service.components import ServiceComponents, ServiceOptions
    from lakeward.coordinator.state.persistence import StatePersistence
    from lakeward.coordinator.workers.event_loop import EventLoop
    from lakeward.model.tiering import HeartbeatRequest

_log = structlog.get_logger("lakeward.service")


class Heartbeats:
    """Sends heartbeats. Used on the event loop only."""

    def __init__(
        self,
        *,
        components: ServiceComponents,
        options: ServiceOptions,
        loop: EventLoop,
        protection: LeaseProtection,
        persistence: StatePersistence,
    ) -> None:
        self._clock = components.clock
        self._source = components.source
        self._state = components.state
        self._options = options
        self._loop = loop
        self._protection = protection
        self._persistence = persistence

    async def send(self, request: HeartbeatRequest) -> HeartbeatAnswered | HeartbeatFailed:
        """Send a heartbeat; return what became of it."""
        timeout_s = self._options.heartbeat_call_timeout_s
        try:
            response = await call(partial(self._source.heartbeat, request), what="heartbeat", timeout_s=timeout_s)
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
            await give_back(self._source, given)
