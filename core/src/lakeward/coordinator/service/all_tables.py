"""Steps the machine of all tables (`machines/rounds`), and takes what has happened from the inbox."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, cast

from lakeward.coordinator.effects.items import ForRound, OfRound
from lakeward.coordinator.workers.event_loop import Superseded
from lakeward.coordinator.workers.step_log import step_log
from lakeward.machines.driver import MachineDriver, Step
from lakeward.machines.rounds import (
    HeartbeatAnswered,
    RoundsCommand,
    SendHeartbeat,
    Stopped,
    StopRequested,
    StopTimedOut,
    Tick,
)

if TYPE_CHECKING:
    from lakeward.coordinator.commits.fence import CommitFence
    from lakeward.coordinator.effects.executor import RoundExecutor
    from lakeward.coordinator.service.commands import Commands
    from lakeward.coordinator.service.heartbeats import Heartbeats
    from lakeward.coordinator.workers.event_loop import EventLoop
    from lakeward.machines.rounds import Rounds, RoundsEvent
    from lakeward.model.tiering import HeartbeatRequest
    from lakeward.ports import Clock


class AllTables:
    """The machine of all tables, its inbox and its commands. Used on the event loop only."""

    def __init__(
        self,
        *,
        clock: Clock,
        rounds: Rounds,
        loop: EventLoop,
        fence: CommitFence,
        executor: RoundExecutor,
        commands: Commands,
        heartbeats: Heartbeats,
        turn_s: float,
    ) -> None:
        """Step nothing yet. After each step `fence` is told when tables were last renewed. `turn_s`: longest sleep."""
        self.stopped: Stopped | None = None
        """Set once all rounds have ended, after the service was asked to stop."""
        self.heartbeat: asyncio.Task[None] | None = None
        """The newest one."""
        self._clock = clock
        self._rounds = rounds
        self._loop = loop
        self._fence = fence
        self._executor = executor
        self._commands = commands
        self._heartbeats = heartbeats
        self._turn_s = turn_s
        self._log_step = step_log("lakeward.service", "rounds")
        self._driver: MachineDriver[RoundsEvent, RoundsCommand] = MachineDriver(rounds, on_step=self._on_step)

    @property
    def sleep_s(self) -> float:
        """Seconds until the service has to wake up by itself."""
        due = self._rounds.next_due
        return self._turn_s if due is None else min(self._turn_s, max(0.0, due - self._clock.now()))

    async def take_inbox(self) -> None:
        """Take what has happened, one after the other, for as long as the service lives."""
        while True:
            await self._loop.filled()
            for item in self._loop.take():
                try:
                    self._take(item)
                except Exception as error:  # noqa: BLE001 - a mistake of ours: the service ends in order
                    self._loop.fail(error)

    def post(self, event: RoundsEvent) -> None:
        """Step the machine, and execute its commands; nothing is done once a later start has taken over."""
        if self._loop.superseded_by:
            return
        for command in self._driver.step(event):
            match command:
                case SendHeartbeat():
                    self.heartbeat = self._loop.spawn(partial(self._send_heartbeat, command.request))
                case Stopped():
                    self.stopped = command
                case _:
                    self._commands.execute(command)
        self._loop.wake()

    def request_stop(self, timeout_s: float) -> None:
        """Let all rounds end: early within the time limit, at once after it, and whatever they do after twice of it."""
        self.post(StopRequested(now=self._clock.now()))
        for delay in (timeout_s, timeout_s * 2):
            self._loop.running.call_later(delay, lambda: self.post(StopTimedOut(now=self._clock.now())))

    def tick(self) -> None:
        """Tell the machine the time, if it waits for that."""
        due = self._rounds.next_due
        if due is not None and due <= self._clock.now():
            self.post(Tick(now=self._clock.now()))

    def _take(self, item: object) -> None:
        match item:
            case ForRound():
                self._executor.take(item.round, item.event)
            case Superseded():
                self._executor.cancel_all()  # what jobs write from now on is neither committed nor deleted
            case OfRound():
                if not item.round.ended:
                    self.post(item.event)
            case _:
                self.post(cast("RoundsEvent", item))

    async def _send_heartbeat(self, request: HeartbeatRequest) -> None:
        event = await self._heartbeats.send(request)
        self.post(event)
        if isinstance(event, HeartbeatAnswered):
            await self._heartbeats.persist(event)

    def _on_step(self, step: Step[RoundsEvent, RoundsCommand]) -> None:
        self._log_step(step)
        self._fence.publish(self._rounds.renewed, stopping=self._rounds.stopping)
