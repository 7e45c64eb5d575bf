"""The network: connections between subtasks and coordinators, which deliver in order and break with what they carry."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from lakeward.errors import IllegalEventError, ProtocolError, UsageError
from lakeward.model.events import (
    AckCheckpoint,
    CheckpointComplete,
    DeclineCheckpoint,
    Deploy,
    Envelope,
    Register,
    SplitFinished,
    SubtaskDone,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.ports import Address, Receiver
    from lakeward_simulator.loop import SimLoop
    from lakeward_simulator.scheduler import Process
    from lakeward_simulator.world import World

_NOTICE_S = 1.0
"""Seconds until an end sees at the latest that its connection is gone."""
_CONNECT_S = 5.0
"""Seconds within which the first message has to be answered, as over sockets."""


class SimTransport:
    """See `lakeward.ports.Transport`: the connections of one process."""

    def __init__(self, world: World, process: Process, loop: SimLoop | None = None) -> None:
        """Connect nothing yet.

        Args:
            world: everything else.
            process: whose connections these are.
            loop: of that process, where it is a coordinator's: only that one listens.
        """
        self._world = world
        self._process = process
        self._loop = loop
        self.connections: list[SimConnection] = []
        """Those that are open, at either end."""

    async def listen(self, address: Address, receiver: Receiver) -> SimListener:
        """See `lakeward.ports.Transport`."""
        del address
        if self._loop is None:
            message = f"{self._process.name}: only a coordinator listens"
            raise UsageError(message)
        return SimListener(self._world, self, self._loop, receiver)

    def connect(self, address: Address, first: Envelope, receiver: Receiver, *, after_s: float) -> SimEnd:
        """See `lakeward.ports.Transport`."""
        end = SimEnd("up", self._process, receiver)
        self._process.after(after_s, self._connect, end, address.port, first)
        return end

    def break_all(self) -> None:
        """Break every connection, as the death of this process does."""
        for connection in [*self.connections]:
            connection.cut()

    def _connect(self, end: SimEnd, port: int, first: Envelope) -> None:
        if end.closed:
            return
        listener = self._world.listener_at(port)
        if listener is None:
            end.receiver.on_disconnect(end, ConnectionRefusedError("nobody listens"))
            return
        connection = end.connection = SimConnection(self._world, end, self, listener)
        if isinstance(first.event, Register) and first.event.attempt is not None:
            connection.is_reconnect = True
        end.send(first)
        self._process.after(_CONNECT_S, connection.time_out)


class SimListener:
    """See `lakeward.ports.Listener`."""

    def __init__(self, world: World, transport: SimTransport, loop: SimLoop, receiver: Receiver) -> None:
        """Listen."""
        self.transport = transport
        self.loop = loop
        self.receiver = receiver
        self.port = world.listen(self)

    async def close(self) -> None:
        """See `lakeward.ports.Listener`."""
        self.transport.break_all()


class SimEnd:
    """See `lakeward.ports.Connection`: one end, that sends in one direction."""

    def __init__(self, direction: str, process: Process, receiver: Receiver) -> None:
        """Start unconnected."""
        self.direction = direction
        self.process = process
        self.receiver = receiver
        self.connection: SimConnection | None = None
        self.closed = False

    def send(self, envelope: Envelope) -> None:
        """See `lakeward.ports.Connection`."""
        if self.connection is not None and not self.closed and self.process.alive:
            self.connection.send(self, envelope)

    def close(self) -> None:
        """See `lakeward.ports.Connection`; what was sent before still arrives."""
        if not self.closed:
            self.closed = True
            if self.connection is not None:
                self.connection.cut_after(self.direction)


class SimConnection:
    """One connection, with what is on its way."""

    def __init__(self, world: World, client: SimEnd, transport: SimTransport, listener: SimListener) -> None:
        """Connect."""
        self._world = world
        self.loop = listener.loop
        self.client = client
        self.server = SimEnd("down", self.loop, listener.receiver)
        self.server.connection = self
        self._last = {"up": 0.0, "down": 0.0}
        self._last_data = 0.0
        self.stalled_until = {"up": 0.0, "down": 0.0}
        self.open = True
        self.is_reconnect = False
        self._answered = False
        self._overtaken_until = 0.0
        """Until then messages without a number overtake those with one, on their way up."""
        self._cut_at = inf
        self.repeat = False
        """Cut it right after the next data event has arrived, before that is acknowledged."""
        self._lists = (transport.connections, listener.transport.connections, world.connections)
        for one in self._lists:
            one.append(self)

    def send(self, end: SimEnd, envelope: Envelope) -> None:
        """Put a message on the wire."""
        if not self.open:
            return
        world = self._world
        if end is self.server:
            if isinstance(envelope.event, CheckpointComplete):
                world.checks.completing(self.loop, envelope)
            if isinstance(envelope.event, Deploy):
                world.checks.deploying(self.loop, f"subtask {envelope.subtask} of {envelope.round}")
            self._put("down", self._receive_down, envelope, self.client.process)
            return
        if isinstance(envelope.event, AckCheckpoint):
            world.checks.acknowledging(end.process, envelope.event)
        if isinstance(envelope.event, DeclineCheckpoint):
            world.checks.declining(end.process, envelope.event)
        self._put("up", self._receive_up, envelope, self.loop)
        if envelope.sequence and world.lose_data and world.random.random() < 0.5:
            world.lose_data -= 1
            self.cut()

    def cut(self) -> None:
        """Lose it, and what is on its way."""
        if not self.open:
            return
        self.open = False
        self._cut_at = self._world.scheduler.now
        for one in self._lists:
            one.remove(self)
        random = self._world.random
        error = ConnectionResetError("the connection is gone")
        for end in (self.server, self.client):
            end.process.after(random.random() * _NOTICE_S, end.receiver.on_disconnect, end, error)

    def cut_after(self, direction: str) -> None:
        """Cut it once what was sent in a direction has arrived."""
        scheduler = self._world.scheduler
        scheduler.at(max(scheduler.now, self._last[direction], self._last_data), self.cut)

    def time_out(self) -> None:
        """Cut it if the first message was not answered in time."""
        if not self._answered:
            self.cut()

    def _put(
        self, direction: str, deliver: Callable[[Envelope, float], None], envelope: Envelope, who: Process
    ) -> None:
        scheduler = self._world.scheduler
        soon = scheduler.now + self._world.random.random() * self._world.latency_s
        at = max(soon, self._last[direction], self.stalled_until[direction])
        if direction == "up" and (envelope.sequence or isinstance(envelope.event, SubtaskDone)):
            # The protocol asks for less than TCP gives: what has no number may overtake data that is sent again.
            at = self._last_data = max(at, self._last_data, self._overtaken_until)
        elif direction == "up" and scheduler.now >= self._overtaken_until:
            at = max(at, self._last_data)
        if direction == "down" or scheduler.now >= self._overtaken_until:
            self._last[direction] = at
        scheduler.at(at, deliver, envelope, at, who=who)

    def _receive_down(self, envelope: Envelope, at: float) -> None:
        """Let the task receive it: also one that stood still when it arrived, and whose connection was cut since."""
        if at > self._cut_at:
            return
        if not self._answered:
            self._answered = True
            if self.is_reconnect:
                random = self._world.random
                self._overtaken_until = self._world.scheduler.now + random.random() * self._world.overtaken_s
        self.client.receiver.on_message(self.client, envelope)

    def _receive_up(self, envelope: Envelope, at: float) -> None:
        if at <= self._cut_at:
            self.loop.arrive(self._arrive, envelope)

    def _arrive(self, envelope: Envelope) -> None:
        if not self.open:
            return
        world = self._world
        try:
            self.server.receiver.on_message(self.server, envelope)
            if isinstance(envelope.event, SplitFinished):
                world.checks.finished(self.loop, envelope)
        except ProtocolError as error:
            world.story.note(self.loop.name, f"ends a connection: {error}")
            self.cut()
        except IllegalEventError as error:
            world.checks.fail(f"{self.loop.name}: {error}")
        if self.repeat and envelope.sequence:
            self.repeat = False
            self.cut()
