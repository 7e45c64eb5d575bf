"""Decides when the service's state is written, and checks whether a later start has taken over."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from lakeward.errors import FencedError, LakewardError
from lakeward.repeated_failure import RepeatedFailure

if TYPE_CHECKING:
    from lakeward.coordinator.checkpoints.known import KnownCheckpoints
    from lakeward.coordinator.leases.driver import LeaseDriver
    from lakeward.coordinator.state.state_writer import ServiceStateWriter
    from lakeward.coordinator.workers.event_loop import EventLoop
    from lakeward.machines.rounds import Rounds
    from lakeward.ports import Clock

_log = structlog.get_logger("lakeward.state")


class StatePersistence:
    """Writes the state of the machines durably. Used on the event loop only."""

    def __init__(
        self,
        *,
        clock: Clock,
        rounds: Rounds,
        leases: LeaseDriver,
        checkpoints: KnownCheckpoints,
        writer: ServiceStateWriter,
        loop: EventLoop,
    ) -> None:
        """Keep the collaborators; `loop` is superseded if a later start has written the file."""
        self.lease_state: bytes | None = None
        """The lease backend's bytes as last written."""
        self.checked_at = 0.0
        """When the file was last known to be this start's, in seconds on the service's clock."""
        self._clock = clock
        self._rounds = rounds
        self._leases = leases
        self._checkpoints = checkpoints
        self._writer = writer
        self._loop = loop
        self._writing = asyncio.Lock()
        self._next_write: asyncio.Task[None] | None = None
        self._trouble = RepeatedFailure(
            _log.error, "the service's state could not be written", "the service's state is written again"
        )

    async def write(self) -> None:
        """Write the state. Callers that come while a write is in progress share the next one.

        Raises:
            FencedError: a later start of this service has written the file.
            StorageError: it could not be written.
        """
        if self._next_write is None:
            self._next_write = asyncio.get_running_loop().create_task(self._write_next())
            self._next_write.add_done_callback(_retrieve_error)
        await asyncio.shield(self._next_write)

    async def try_write(self) -> None:
        """Write the state; a failure is logged, as each of `write` is, and raises nothing."""
        with suppress(LakewardError):
            await self.write()

    async def check(self) -> None:
        """Check whether a later start has taken over: after a pause, or if nothing was written for a while."""
        if by := await self._writer.overtaken():
            self._loop.supersede(by)

    async def _write_next(self) -> None:
        async with self._writing:
            self._next_write = None
            await self._write_now()

    async def _write_now(self) -> None:
        if by := self._loop.superseded_by:
            message = "the state file belongs to a later start of this service"
            raise FencedError(message, by)
        lease, leases = self._leases.state(), self._leases.held_leases
        try:
            await self._writer.save(
                self._rounds.tables,
                lease,
                self._clock.now(),
                lease_ids=(leases.lease_id, *(lease_id for lease_id, _ in leases.old_ids)),
                invalidated=self._checkpoints.invalidated,
            )
        except FencedError as error:
            self._loop.supersede(error.by)
            raise
        except LakewardError as error:
            self._trouble.failed(str(error))
            raise
        self._trouble.succeeded()
        self.lease_state, self.checked_at = lease, self._clock.now()


def _retrieve_error(task: asyncio.Task[None]) -> None:
    """Retrieve the error of a write whose callers were all cancelled, so that asyncio does not complain."""
    if not task.cancelled():
        task.exception()
