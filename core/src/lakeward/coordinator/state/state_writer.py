"""The service's own state on disk: the assigned tables, and the bytes that the lease backend wants persisted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from lakeward.coordinator.workers.calls import call
from lakeward.errors import FencedError, LakewardError
from lakeward.storage.newer_formats import refuse_newer
from lakeward.storage.service_state import ServiceState, ServiceStateStore, StoredTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.machines.rounds import TableStatus
    from lakeward.model.identity import Incarnation
    from lakeward.model.tiering import TableAssignment
    from lakeward.ports import Clock

_log = structlog.get_logger("lakeward.state")
_WRITE_S = 30.0


class ServiceStateWriter:
    """Reads the last start's state once, and writes this start's state, one write at a time."""

    def __init__(self, store: ServiceStateStore, incarnation: Incarnation, backend: str, clock: Clock) -> None:
        """Keep the parts; `backend` is the lease backend's name, written beside its bytes."""
        self._store = store
        self._incarnation = incarnation
        self._backend = backend
        self._clock = clock
        self._lock = asyncio.Lock()
        self._written: dict[int, int] = {}
        """By table: its newest epoch in a state that this start wrote."""

    def load(self) -> ServiceState | None:
        """Read what the last start wrote, None if there was none. Blocking.

        Raises:
            CorruptFileError: the file is damaged.
            NewerFormatError: it, a journal or a checkpoint is of a newer release.
        """
        refuse_newer(self._store.files, self._incarnation.service)
        return self._store.load(self._incarnation.service)

    async def overtaken(self) -> str:
        """Return the later start that has written the state, empty if none has; a failure to read it is logged."""
        try:
            await call(lambda: self._store.check(self._incarnation), what="read the service's state")
        except FencedError as error:
            return error.by
        except LakewardError as error:
            _log.warning("the service's state could not be read; commits are fenced by the lake", reason=str(error))
        return ""

    async def save(
        self,
        tables: tuple[TableStatus, ...],
        lease: bytes | None,
        now: float,
        *,
        lease_ids: tuple[str, ...] = (),
        invalidated: Mapping[int, str] | None = None,
    ) -> None:
        """Write the state durably.

        `tables`: those that the source assigned to this service. `lease`: the bytes that the lease backend wants
        persisted. `now`: seconds on the service's clock, at which `renewed_at` of the tables is counted. `lease_ids`:
        the lease's own id, and earlier ones that are still to be dropped. `invalidated`: by table id, why its
        checkpoints must not be resumed from.

        Raises:
            FencedError: a later start of this service has written the file.
            StorageError: it could not be written.
        """
        wall = self._clock.wall_ms()
        state = ServiceState(
            incarnation=self._incarnation,
            tables=tuple(_stored(status, wall, now) for status in tables),
            lease_backend=self._backend if lease is not None else None,
            lease_state=lease,
            lease_ids=lease_ids,
            invalidated=invalidated or {},
        )
        before = self._written
        # Before the write: if its outcome is unknown, a later start may have read the new state.
        self._written = before | {table.table_id: table.epoch for table in state.tables}
        try:
            async with self._lock:
                await call(lambda: self._store.save(state), what="write the service's state", timeout_s=_WRITE_S)
        except FencedError:
            self._written = before
            raise

    def is_written(self, assignment: TableAssignment) -> bool:
        """Return whether a later start may know this assignment, because a written state contains it."""
        return self._written.get(assignment.table_id) == assignment.epoch

    def forget(self, table_id: int) -> None:
        """Forget a table that the source has dropped: its id is never used again."""
        self._written.pop(table_id, None)


def _stored(status: TableStatus, wall_ms: int, now: float) -> StoredTable:
    assignment = status.assignment
    return StoredTable(
        path=assignment.path,
        table_id=assignment.table_id,
        epoch=assignment.epoch,
        coordinator_epoch=assignment.coordinator_epoch,
        freshness_s=assignment.freshness_s,
        renewed_ms=wall_ms - int((now - status.renewed_at) * 1000),
    )
