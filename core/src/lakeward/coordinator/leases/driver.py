"""The service's lease: executes the commands of `machines/leases` by calls of the lease backend.

One task executes the commands in order, so that state is on disk before the calls that follow it are made. Backend
calls run on daemon threads with a time limit: a slow or dead lease server blocks nothing. After the limit the outcome
of a call is unknown, and the machine decides what to do.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from lakeward.coordinator.workers.calls import call
from lakeward.coordinator.workers.step_log import step_log
from lakeward.errors import LakewardError, LeaseError, OutcomeUnknownError, in_words
from lakeward.machines.driver import MachineDriver
from lakeward.machines.leases import (
    Acquired,
    CallAcquire,
    CallDrop,
    CallFailed,
    CallOutcomeUnknown,
    CallRelease,
    CallVerify,
    Done,
    HeldLeases,
    Leases,
    LeasesCommand,
    LeasesEvent,
    LeaseTick,
    Persist,
    Protected,
    StartGeneration,
    Verified,
)
from lakeward.model.leases import Failover, FailoverAction, FailoverAnswer, Lease

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from lakeward.hooks.backend import LeaseBackend
    from lakeward.model.settings import LeaseSettings
    from lakeward.model.tables import TableBucket
    from lakeward.ports import Clock, Source

_log = structlog.get_logger("lakeward.leases")
_Call = CallAcquire | CallVerify | CallRelease | CallDrop


class LeaseDriver:
    """Executes the lease machine's commands. Used on the event loop only."""

    def __init__(
        self,
        machine: Leases,
        backend: LeaseBackend,
        source: Source,
        clock: Clock,
        *,
        settings: LeaseSettings,
        duration_s: float,
    ) -> None:
        """Keep the parts; `source` is for its own lease API, and for verification.

        `settings`: when a call is of unknown outcome. `duration_s`: seconds that the lease lives without renewal; the
        backend's own where the settings have none.
        """
        self._machine = machine
        self._backend = backend
        self._source = source
        self._clock = clock
        self.duration_s = duration_s
        self._settings = settings
        self._driver = MachineDriver(machine, on_step=step_log("lakeward.leases", "leases"))
        self._commands: asyncio.Queue[tuple[LeasesCommand, LeasesEvent]] = asyncio.Queue()
        self._not_persisted: tuple[LeasesEvent, str] | None = None
        """The event after which the state could not be written, and why: its calls are not made."""
        self._running: set[asyncio.Task[None]] = set()
        self.message = ""
        """What is wrong with the lease, empty if nothing is."""

    @property
    def held_leases(self) -> HeldLeases:
        """The snapshots that are leased."""
        return self._machine.held_leases

    @property
    def next_due(self) -> float | None:
        """When `tick` has something to do."""
        return self._machine.next_due

    def step(self, event: LeasesEvent) -> None:
        """Post an event to the machine; its commands are executed in order."""
        for command in self._driver.step(event):
            self._commands.put_nowait((command, event))

    def tick(self) -> None:
        """Post a `LeaseTick` if the machine has something due."""
        due = self._machine.next_due
        if due is not None and due <= self._clock.now():
            self.step(LeaseTick(now=self._clock.now()))

    def lease(self) -> Lease:
        """Return the lease as the backend sees it."""
        held = self._machine.held_leases
        return self._lease(held.lease_id, held.generation, held.held)

    def state(self) -> bytes | None:
        """Return the bytes that the backend wants persisted."""
        return self._backend.serialize_state(self.lease())

    async def failover(self, failover: Failover) -> FailoverAnswer:
        """Ask the backend what a failure means; ACQUIRE starts a new generation."""
        lease = self.lease()
        answer = await call(
            lambda: self._backend.on_failover(lease, failover),
            what="on_failover",
            timeout_s=self._settings.call_timeout_s,
        )
        if answer.action is FailoverAction.ACQUIRE and answer.restored is None and self.held_leases.held:
            self.step(StartGeneration(now=self._clock.now()))
        return answer

    async def run(self, notify: Callable[[LeasesCommand], None], persist: Callable[[], Awaitable[None]]) -> None:
        """Execute commands until cancelled.

        `notify` is told what happens to the lease: `Protected`, `NotProtected`, `ProtectionLost`, `LeaseStopped`.
        `persist` writes the service's state, this lease included, durably.
        """
        while True:
            command, event = await self._commands.get()
            await self._execute(command, event, notify, persist)

    async def _execute(
        self,
        command: LeasesCommand,
        event: LeasesEvent,
        notify: Callable[[LeasesCommand], None],
        persist: Callable[[], Awaitable[None]],
    ) -> None:
        match command:
            case Persist():
                reason = await _try(persist)
                self._not_persisted = None if reason is None else (event, reason)
            case CallAcquire() | CallVerify() | CallRelease() | CallDrop():
                if self._not_persisted is not None and self._not_persisted[0] is event:
                    self.step(CallFailed(now=self._clock.now(), call=command.call, reason=self._not_persisted[1]))
                    return
                task = asyncio.create_task(self._call(command))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
            case Protected() if self._machine.is_waiting(command.table_id):
                return  # this answers an earlier round of the table, which has released the snapshots since
            case _:
                notify(command)

    async def _call(self, command: _Call) -> None:
        try:
            event = await self._answer(command)
        except OutcomeUnknownError as error:
            self._complain(command, str(error))
            event = CallOutcomeUnknown(now=self._clock.now(), call=command.call, reason=str(error))
        except Exception as error:  # noqa: BLE001 - whatever a backend raises fails this call alone, by name
            reason = in_words(error)
            self._complain(command, reason)
            # A backend that raised something of its own, or answered nonsense, may have acquired all the same.
            broken = isinstance(error, LeaseError) and isinstance(command, CallAcquire)
            event = (CallOutcomeUnknown if broken else CallFailed)(
                now=self._clock.now(), call=command.call, reason=reason
            )
        else:
            self.message = ""
        self.step(event)

    async def _answer(self, command: _Call) -> LeasesEvent:
        match command:
            case CallAcquire():
                lease = self._lease(command.lease_id, command.generation, command.snapshots)
                work = lambda: self._backend.acquire(lease, command.snapshots)  # noqa: E731 - read at its use
                protection = await call(work, what=self._name("acquire"), timeout_s=self._settings.call_timeout_s)
                return Acquired(now=self._clock.now(), call=command.call, protection=protection)
            case CallVerify():
                missing = await call(
                    lambda: self._source.missing_snapshots(command.snapshots),
                    what="verify snapshots",
                    timeout_s=self._settings.call_timeout_s,
                )
                return Verified(now=self._clock.now(), call=command.call, missing=missing)
            case CallRelease():
                lease = self._lease(command.lease_id, command.generation, self.held_leases.held)
                await call(
                    lambda: self._backend.release(lease, command.buckets),
                    what=self._name("release"),
                    timeout_s=self._settings.call_timeout_s,
                )
            case CallDrop():
                lease = self._lease(command.lease_id, command.generation, {})
                await call(
                    lambda: self._backend.drop(lease), what=self._name("drop"), timeout_s=self._settings.call_timeout_s
                )
        return Done(now=self._clock.now(), call=command.call)

    def _complain(self, command: _Call, reason: str) -> None:
        self.message = f"{type(command).__name__.removeprefix('Call').lower()}: {reason}"
        _log.warning("lease call failed", call=type(command).__name__, reason=reason)

    def _name(self, hook: str) -> str:
        return f"lease backend {self._backend.name!r}, {hook}"

    def _lease(self, lease_id: str, generation: int, held: Mapping[TableBucket, int]) -> Lease:
        ours = self._machine.held_leases
        return Lease(
            lease_id=lease_id,
            generation=generation,
            duration_s=self.duration_s,
            held=dict(held),
            server=self._source.leases,
            releasing=ours.releasing,
            old_ids=ours.old_ids,
        )


async def _try(persist: Callable[[], Awaitable[None]]) -> str | None:
    """Persist, which logs its failure; return why that failed, None if it succeeded."""
    try:
        await persist()
    except LakewardError as error:
        return f"the service's state could not be written: {error}"
    return None
