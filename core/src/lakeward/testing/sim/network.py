"""Connections between subtasks and coordinators: each direction in order, and lost with what is on its way."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING

from lakeward.errors import IllegalEventError, ProtocolError
from lakeward.machines.channel import Channel, ChannelKey
from lakeward.model.events import Cancel, CheckpointComplete, Envelope, Register, SplitFinished

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.coordinator.job import RoundJob
    from lakeward.testing.sim.loop import SimLoop
    from lakeward.testing.sim.scheduler import Process
    from lakeward.testing.sim.subtask import SimLink
    from lakeward.testing.sim.world import World

_NOTICE_S = 1.0
"""Seconds until an end sees at the latest that its connection is gone."""


class SimConnection:
    """One connection. `send` and `close` are the coordinator's end of it, as `server.Connection`."""

    def __init__(self, world: World, server: SimServer, link: SimLink) -> None:
        """Connect."""
        self._world = world
        self._server = server
        self._link = link
        self._last = {"up": 0.0, "down": 0.0}
        self.stalled_until = {"up": 0.0, "down": 0.0}
        self.open = True
        self._cut_at = inf
        self.repeat = False
        """Cut it right after the next data event has arrived, before that is acknowledged."""
        self.key: ChannelKey | None = None
        self.job: RoundJob | None = None
        server.connections.append(self)
        world.connections.append(self)

    def send(self, envelope: Envelope) -> None:
        """Put an envelope on the wire, down."""
        if self._server.loop.alive:
            if isinstance(envelope.event, CheckpointComplete) and self.job is not None:
                self._world.checks.completing(self.job, envelope.event)
            self._put("down", self._down, envelope, self._link.process)

    def close(self) -> None:
        """End it, as the coordinator."""
        self.cut()

    def up(self, envelope: Envelope) -> None:
        """Put an envelope on the wire, up."""
        self._put("up", self._arrive, envelope, self._server.loop)
        if envelope.sequence and self._world.lose_data and self._world.random.random() < 0.5:
            self._world.lose_data -= 1
            self.cut()

    def cut(self) -> None:
        """Lose it, and what is on its way."""
        if not self.open:
            return
        self.open = False
        self._cut_at = self._world.scheduler.now
        self._server.connections.remove(self)
        self._world.connections.remove(self)
        random = self._world.random
        self._server.loop.after(random.random() * _NOTICE_S, partial(self._server.gone, self))
        self._link.process.after(random.random() * _NOTICE_S, partial(self._link.broken, self))

    def _put(
        self, direction: str, deliver: Callable[[Envelope, float], None], envelope: Envelope, who: Process
    ) -> None:
        if not self.open:
            return
        scheduler = self._world.scheduler
        soon = scheduler.now + self._world.random.random() * self._world.latency_s
        at = max(soon, self._last[direction], self.stalled_until[direction])
        self._last[direction] = at
        scheduler.at(at, deliver, envelope, at, who=who)

    def _down(self, envelope: Envelope, at: float) -> None:
        """Let the task hear it: also one that stood still when it arrived, and whose connection was cut since."""
        if at <= self._cut_at:
            self._link.receive(self, envelope)

    def _arrive(self, envelope: Envelope, at: float) -> None:
        if at <= self._cut_at:
            self._server.loop.arrive(self._server.hear, self, envelope)


class SimServer:
    """As `coordinator.server.SubtaskServer`, without the wire."""

    def __init__(self, world: World, loop: SimLoop, find: Callable[[str, int], RoundJob | None]) -> None:
        """Listen nowhere yet."""
        self._world = world
        self.loop = loop
        self._find = find
        self.connections: list[SimConnection] = []
        self.port = 0

    async def start(self, host: str, port: int) -> int:
        """See `SubtaskServer.start`."""
        del host, port
        self.port = self._world.listen(self)
        return self.port

    async def close(self) -> None:
        """See `SubtaskServer.close`."""
        self.cut_all()

    def cut_all(self) -> None:
        """End every connection."""
        for connection in [*self.connections]:
            connection.cut()

    def hear(self, connection: SimConnection, envelope: Envelope) -> None:
        """Take an envelope, the first of a connection or a later one."""
        if not connection.open:
            return
        try:
            if connection.job is None or connection.key is None:
                self._attend(connection, envelope)
            else:
                connection.job.hear(connection.key, connection, envelope)  # type: ignore[arg-type] # has what is asked of it
                if isinstance(envelope.event, SplitFinished):
                    self._world.checks.finished(connection.job, connection.key, envelope.event)
        except ProtocolError as error:
            self._world.story.note(self.loop.name, f"ends a connection: {error}")
            connection.cut()
        except IllegalEventError as error:
            self._world.checks.fail(f"{self.loop.name}: {error}")
        if connection.repeat and envelope.sequence:
            connection.repeat = False
            connection.cut()

    def gone(self, connection: SimConnection) -> None:
        """A connection is lost."""
        if connection.job is not None and connection.key is not None:
            connection.job.leave(connection.key, connection)  # type: ignore[arg-type] # as above

    def _attend(self, connection: SimConnection, first: Envelope) -> None:
        if not isinstance(first.event, Register):
            message = f"expected Register, found {type(first.event).__name__}"
            raise ProtocolError(message)
        job = self._find(first.round, first.job_attempt)
        key = job.attend(first.event, connection) if job is not None else None  # type: ignore[arg-type] # as above
        if job is None or key is None:
            channel = Channel(ChannelKey(first.round, first.job_attempt, first.subtask, first.task_attempt), "down")
            connection.send(channel.send(Cancel(reason="this attempt no longer counts")))
            return
        connection.job, connection.key = job, key
