"""The service: executes the commands of `machines/rounds` on one event loop that owns all state.

Blocking work runs in `workers.calls.call` and comes back as an event. A service that learns that a later start of it
has taken over (by a stamp on a lake table, or by the state file) stops at once: it reports nothing, releases no lease
and deletes no file that the later start may use.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, cast

import structlog

from lakeward.coordinator.effects.items import ForRound, OfRound
from lakeward.coordinator.service.shutdown import (
    drop_own_lease,
    give_back,
    settle_lease,
    wait_for_jobs,
    wait_for_upkeep,
)
from lakeward.coordinator.service.startup import lease_of_checkpoint, restore_lease, resume
from lakeward.coordinator.workers.calls import call
from lakeward.coordinator.workers.event_loop import Superseded
from lakeward.coordinator.workers.step_log import step_log
from lakeward.errors import LakewardError, SparkError, UsageError
from lakeward.machines.driver import MachineDriver, Step
from lakeward.machines.rounds import (
    AcquireLeases,
    CommitRound,
    EndRound,
    FinishRoundEarly,
    Forget,
    HeartbeatAnswered,
    HeartbeatFailed,
    LaunchJob,
    OpenRound,
    PauseRequested,
    Resumed,
    ResumeRequested,
    RoundsCommand,
    SendHeartbeat,
    Stopped,
    StopRequested,
    StopTimedOut,
    Targets,
    Tick,
)
from lakeward.model.tiering import Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.coordinator.commits.fence import CommitFence
    from lakeward.coordinator.service.components import ServiceComponents, ServiceOptions
    from lakeward.coordinator.service.parts import ServiceParts
    from lakeward.coordinator.workers.event_loop import EventLoop
    from lakeward.machines.rounds import Rounds, RoundsEvent
    from lakeward.model.tables import TablePath
    from lakeward.model.tiering import HeartbeatRequest

_DROPPED = frozenset({"dropped", Refusal.GONE.value})
_log = structlog.get_logger("lakeward.service")


@dataclass(frozen=True, slots=True)
class ServiceEnd:
    """How the service ended. With `--once`, `failed` lists the tables that did not reach their target, and why."""

    failed: tuple[tuple[TablePath, str], ...] = ()
    superseded_by: str = ""
    started: bool = True
    """False if it was asked to stop before it served; the next start then finds everything as it was."""


class Service:
    """One run of the service."""

    def __init__(
        self,
        *,
        components: ServiceComponents,
        options: ServiceOptions,
        rounds: Rounds,
        loop: EventLoop,
        fence: CommitFence,
        parts: ServiceParts,
    ) -> None:
        """Keep the collaborators; nothing is started. After each step `fence` is told when tables were last renewed."""
        self._components = components
        self._clock = components.clock
        self._options = options
        self._settings = options.settings
        self._stop_timeout_s = options.settings.service.stop_timeout_s
        self._rounds = rounds
        self._loop = loop
        self._fence = fence
        self._parts = parts
        self._log_step = step_log("lakeward.service", "rounds")
        self._driver: MachineDriver[RoundsEvent, RoundsCommand] = MachineDriver(rounds, on_step=self._on_step)
        self._heartbeat: asyncio.Task[None] | None = None
        self._starting: asyncio.Timeout | None = None
        self._stop_requested = False
        self._stopped: Stopped | None = None
        self._broken: BaseException | None = None
        self._end_by = float("inf")
        """When a service that failed ends, even if something is still pending."""
        self._jobs_gone = False
        self._paused: frozenset[str] = frozenset()
        self._resumed: Mapping[str, int] | None = None
        self._review_at = 0.0

    @property
    def state(self) -> str:
        """The service's state: starting, serving, stopping or stopped."""
        return self._parts.reporter.state

    # --- life -----------------------------------------------------------------------------------------------

    async def serve(self) -> ServiceEnd:
        """Run until stopped (or, with `once`, until every target is settled); return how it ended.

        Raises:
            LakewardError: it could not start.
        """
        self._loop.begin()
        self._parts.address.port = await self._parts.server.start(self._options.bind, self._settings.service.port)
        leasing = asyncio.create_task(
            self._parts.leases.run(self._parts.protection.on_lease, self._parts.persistence.write)
        )
        leasing.add_done_callback(self._loop.task_ended)
        taking = self._loop.spawn(self._take_inbox)
        started = False
        try:
            started = await self._start_in_time()
            if started:
                await self._run()
            if not started:
                _log.warning("stopped before the start was over; the next start begins where this one did")
            elif self._loop.superseded_by:
                await self._end_superseded()
            else:
                await self._end_in_order()
            await wait_for_jobs(self._parts.executor, self._clock)
        finally:
            leasing.cancel()
            taking.cancel()
            self._parts.executor.cancel_all()
            await self._parts.server.close()
            self._parts.reporter.state = "stopped"
            self._parts.reporter.report(force=True)
        # A UsageError from inside the service is a bug in it, not a mistake of the user.
        if isinstance(self._broken, LakewardError) and not isinstance(self._broken, UsageError):
            raise self._broken
        if self._broken is not None:
            how = "stopped in order" if self._stopped is not None else "gave up what it had in hand"
            message = f"internal error, the service {how}: {type(self._broken).__name__}: {self._broken}"
            raise LakewardError(message) from self._broken
        return ServiceEnd(self._stopped.failed if self._stopped else (), self._loop.superseded_by, started)

    def stop(self, timeout_s: float | None = None) -> None:
        """Ask the service to end: rounds finish early and commit what is complete; the lease id is kept.

        If the service is still starting, the start ends first, so that tables of the last start are handled in order.
        After the time limit the start is given up. `timeout_s`: seconds for the rounds to end; None:
        `service.stop_timeout_s`.
        """
        if self._stop_requested or self.state == "stopped":
            return
        self._stop_requested = True
        self._stop_timeout_s = self._settings.service.stop_timeout_s if timeout_s is None else timeout_s
        if self.state == "starting":
            self._parts.reporter.state = "stopping"
            if self._starting is not None:
                self._starting.reschedule(self._loop.running.time() + self._stop_timeout_s)
        else:
            self._stop()

    # --- start and end ----------------------------------------------------------------------------------------

    async def _start_in_time(self) -> bool:
        """Start; return False if a stop was requested and the start did not end in time."""
        try:
            # The time limit of a stop that was requested earlier begins now.
            async with asyncio.timeout(self._stop_timeout_s if self._stop_requested else None) as self._starting:
                await self._start()
        except TimeoutError:
            if self._starting is None or not self._starting.expired():
                raise
            return False
        if self._stop_requested:
            self._stop()
        else:
            self._parts.reporter.state = "serving"
        return True

    def _stop(self) -> None:
        self._parts.reporter.state = "stopping"
        self._post(StopRequested(now=self._clock.now()))
        for delay in (self._stop_timeout_s, self._stop_timeout_s * 2):
            self._loop.running.call_later(delay, lambda: self._post(StopTimedOut(now=self._clock.now())))
        self._parts.reporter.report(force=True)  # a stop may end before the next report is due, and depends on none

    async def _start(self) -> None:
        options = self._options
        state = await call(self._components.state.load, what="read the service's state")
        # Read the tables first: the first write of this start replaces the last start's state.
        resumed = await resume(self._components.source, self._clock, state, options.settings.source.heartbeat_timeout_s)
        assignments = tuple(one for one in resumed if options.included(one.path))
        for one in set(resumed) - set(assignments):  # excluded since the last start
            await give_back(self._components.source, one)
        if options.once:
            paths = await self._parts.targets.aim(self._components.source, self._components.lake, options.included)
            # Each assigned table gets a round, even if that has nothing to do but to report the table as finished.
            paths |= {one.path for one in assignments}
            self._post(Targets(now=self._clock.now(), paths=paths))
        if assignments:
            self._post(Resumed(now=self._clock.now(), assignments=assignments))
        for table_id, because in state.invalidated.items() if state is not None else ():
            self._parts.restorer.invalidate(table_id, because)  # before the first write, as above
        copy = None if state is not None else await lease_of_checkpoint(self._parts.restorer)
        released = await restore_lease(
            self._parts.leases, state, self._components.backend.name, self._clock.now(), copy
        )
        await self._parts.persistence.write()
        self._parts.protection.take_over({one.table_id for one in assignments})
        await self._parts.housekeeping.sweep()
        self._parts.restorer.invalidate_tables_that_need(
            released, "the lease backend released its snapshots at the start"
        )
        self._release_stray()

    async def _end_superseded(self) -> None:
        if self._heartbeat is not None:
            await asyncio.wait({self._heartbeat}, timeout=self._options.heartbeat_call_timeout_s)
        await drop_own_lease(
            self._parts.leases, self._components.backend, self._components.state, self._settings.lease.call_timeout_s
        )

    async def _end_in_order(self) -> None:
        await wait_for_upkeep(self._parts.upkeep, self._parts.lag, self._clock, self._stop_timeout_s)
        self._parts.protection.stop(final=self._options.final)
        await settle_lease(self._parts.leases, self._parts.protection.stopped, self._settings.lease.call_timeout_s)
        await self._parts.persistence.try_write()

    def _look_at_failure(self) -> None:
        """End the service if something has failed unexpectedly."""
        if self._loop.failure is None or self._broken is not None:
            return
        self._broken = self._loop.failure
        # The machine may wait for the task that failed: allow two time limits of a stop, and one for last messages.
        self._end_by = min(self._end_by, self._clock.now() + self._stop_timeout_s * 3)
        self.stop()

    # --- the inbox ------------------------------------------------------------------------------------------------

    async def _take_inbox(self) -> None:
        """Take what has happened, one after the other, for as long as the service lives."""
        while True:
            await self._loop.filled()
            for item in self._loop.take():
                try:
                    self._take(item)
                except Exception as error:  # noqa: BLE001 - a mistake of ours: the service ends in order
                    self._loop.fail(error)

    def _take(self, item: object) -> None:
        match item:
            case ForRound():
                self._parts.executor.take(item.round, item.event)
            case Superseded():
                self._parts.executor.cancel_all()  # what jobs write from now on is neither committed nor deleted
            case OfRound():
                if not item.round.ended:
                    self._post(item.event)
            case _:
                self._post(cast("RoundsEvent", item))

    def _post(self, event: RoundsEvent) -> None:
        """Step the machine of all tables, and execute its commands."""
        if self._loop.superseded_by:
            return
        for command in self._driver.step(event):
            self._execute(command)
        self._loop.wake()

    def _on_step(self, step: Step[RoundsEvent, RoundsCommand]) -> None:
        self._log_step(step)
        renewed = {status.assignment: status.renewed_at for status in self._rounds.tables}
        self._fence.publish(renewed, stopping=self._rounds.stopping)

    # --- the loop -----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        fence_s, loop, persistence = self._settings.service.fence_s, self._loop, self._parts.persistence
        last = self._clock.now()
        while self._stopped is None and not loop.superseded_by:
            now = self._clock.now()
            if now >= self._end_by:
                _log.error("the service did not come to its end in order; the next start goes on with what is left")
                return
            if now - last > fence_s:
                await persistence.check()
            elif now - persistence.checked_at > fence_s / 2:
                persistence.checked_at = now
                loop.spawn(persistence.check)
            last = now
            self._tick()
            self._parts.reporter.report()
            due, most = self._rounds.next_due, self._options.turn_s
            await loop.sleep(most if due is None else min(most, max(0.0, due - self._clock.now())))

    def _tick(self) -> None:
        if self._loop.superseded_by:
            return
        self._look_at_failure()
        self._read_control()
        self._look_at_jobs()
        due = self._rounds.next_due
        if due is not None and due <= self._clock.now():
            self._post(Tick(now=self._clock.now()))
        self._parts.protection.hold_checkpoints()
        if self._clock.now() >= self._review_at:
            self._review_at = float("inf")
            self._loop.spawn(self._review)
        self._parts.leases.tick()
        self._parts.executor.tick()
        self._parts.upkeep.tick()
        self._parts.housekeeping.tick()

    async def _review(self) -> None:
        """Check whether checkpoints of tables without a round are still valid; as often as the lease is renewed."""
        await self._parts.housekeeping.review_checkpoints()
        self._release_stray()

    def _release_stray(self) -> None:
        known = self._parts.protection.release_stray()
        self._review_at = self._clock.now() + (
            self._parts.leases.duration_s / 3 if known else self._settings.service.fence_s
        )

    def _look_at_jobs(self) -> None:
        gone = self._components.jobs.gone()
        if gone is None or self._jobs_gone:
            return
        self._jobs_gone = True
        if self._stop_requested:
            # A signal to the whole process group also ends Spark's Java; the next start resumes from checkpoints.
            _log.warning("no job can run any more, while the service stops", reason=gone)
        elif self._broken is None:
            _log.error("no job can run any more, the service stops", reason=gone)
            self._broken = SparkError(gone)
            self.stop()

    def _read_control(self) -> None:
        options, now = self._options, self._clock.now()
        resumed, wanted = options.resumed(), options.paused()
        for name in wanted - self._paused:
            self._post(PauseRequested(now=now, path=options.path(name)))
        # Resume requests from before this start have no effect: nothing is suspended yet.
        known = resumed if self._resumed is None else self._resumed
        again = {name for name, times in resumed.items() if times != known.get(name)} - wanted
        for name in sorted(again | (self._paused - wanted)):
            self._post(ResumeRequested(now=now, path=options.path(name)))
        self._paused, self._resumed = wanted, resumed

    # --- commands of the machine --------------------------------------------------------------------------------

    def _execute(self, command: RoundsCommand) -> None:
        match command:
            case SendHeartbeat():
                self._heartbeat = self._loop.spawn(partial(self._send_heartbeat, command.request))
            case OpenRound():
                self._parts.executor.start(command)
            case AcquireLeases():
                self._parts.protection.protect(command.table_id)
            case LaunchJob() | FinishRoundEarly() | CommitRound():
                self._parts.executor.pass_on(command)
            case EndRound():
                self._end_round(command)
            case Forget():
                self._forget(command)
            case Stopped():
                self._stopped = command

    def _end_round(self, command: EndRound) -> None:
        if command.outcome == "dropped":
            self._parts.restorer.invalidate(command.table_id, "its table was dropped")
        ended = self._parts.executor.end(command)
        if ended is not None:
            self._parts.reporter.round_ended(ended)
        self._parts.protection.end_round(command.table_id)

    def _forget(self, command: Forget) -> None:
        if command.reason == Refusal.GONE.value:
            self._parts.restorer.invalidate(command.table_id, "its table was dropped")
        self._parts.reporter.forget(command.table_id, command.reason)
        if command.reason in _DROPPED:
            self._loop.spawn(partial(self._parts.housekeeping.forget_table, command.table_id))
        self._loop.spawn(self._parts.persistence.try_write)

    async def _send_heartbeat(self, request: HeartbeatRequest) -> None:
        timeout_s = self._options.heartbeat_call_timeout_s
        try:
            response = await call(
                partial(self._components.source.heartbeat, request), what="heartbeat", timeout_s=timeout_s
            )
        except LakewardError as error:
            _log.warning("heartbeat failed", reason=str(error))
            self._post(HeartbeatFailed(now=self._clock.now(), cause=str(error)))
            return
        self._parts.protection.note_coordinator(response.coordinator_epoch)
        if response.assignment is not None:
            response = replace(response, assignment=self._options.as_promised(response.assignment))
        self._post(HeartbeatAnswered(now=self._clock.now(), request=request, response=response))
        if request.renewed or response.assignment is not None:
            await self._parts.persistence.try_write()
        given = response.assignment
        if self._loop.superseded_by and given is not None and not self._components.state.is_written(given):
            await give_back(self._components.source, given)
