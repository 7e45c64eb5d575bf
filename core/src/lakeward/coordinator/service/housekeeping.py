"""Work beside rounds: delete files of earlier starts, check checkpoints, forget dropped tables."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import structlog

from lakeward.coordinator.checkpoints.restorer import is_gone
from lakeward.coordinator.workers.calls import call
from lakeward.errors import LakewardError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.coordinator.checkpoints.restorer import Restorer
    from lakeward.coordinator.commits.cleaner import Cleaner
    from lakeward.coordinator.effects.lease import LeaseProtection
    from lakeward.coordinator.service.components import ServiceComponents, ServiceOptions
    from lakeward.coordinator.service.reporter import Reporter
    from lakeward.coordinator.tables.tables import Tables
    from lakeward.coordinator.workers.event_loop import EventLoop
    from lakeward.model.checkpoints import LeaseCopy
    from lakeward.model.tables import TablePath

_log = structlog.get_logger("lakeward.service")


class Housekeeping:
    """Removes files and state that are no longer needed. Used on the event loop only."""

    def __init__(
        self,
        *,
        components: ServiceComponents,
        loop: EventLoop,
        restorer: Restorer,
        cleaner: Cleaner,
        tables: Tables,
        protection: LeaseProtection,
        reporter: Reporter,
        options: ServiceOptions,
    ) -> None:
        self._clock = components.clock
        self._source = components.source
        self._state = components.state
        self._committed = components.committed
        self._loop = loop
        self._restorer = restorer
        self._cleaner = cleaner
        self._tables = tables
        self._protection = protection
        self._reporter = reporter
        self._forget_every_s = options.forget_every_s
        self._fence_s = options.settings.service.fence_s
        self._forget_at = float("inf")
        self._review_at = 0.0

    def tick(self) -> None:
        """Check for dropped tables, if that is due."""
        if self._clock.now() >= self._forget_at:
            self._forget_at = float("inf")
            self._loop.spawn(self._forget_dropped)

    async def sweep(self) -> None:
        """Delete what earlier starts left, for the second time; a failure is logged and delays nothing."""
        try:
            await call(partial(self._restorer.start, self._source), what="look for checkpoints")
            await call(partial(self._cleaner.again, partial(is_gone, self._source)), what="second sweep")
        except LakewardError as error:
            _log.warning("left-over files stay for the next start", reason=str(error))
        await self._forget_dropped()

    async def find_lease(self) -> LeaseCopy | None:
        """Return the newest checkpoint's copy of the lease, which is used if the state file is missing."""
        try:
            return await call(self._restorer.lease, what="look for the lease in a checkpoint")
        except LakewardError as error:
            _log.warning("no lease could be read from a checkpoint", reason=str(error))
            return None

    def review(self) -> None:
        """Check whether checkpoints of tables without a round are still valid; as often as the lease is renewed."""
        if self._clock.now() >= self._review_at:
            self._review_at = float("inf")
            self._loop.spawn(self._review)

    def release_stray(self) -> None:
        """Release what the last start leased and nothing needs."""
        known = self._protection.release_stray()
        self._review_at = self._clock.now() + (self._protection.renewed_every_s if known else self._fence_s)

    async def _review(self) -> None:
        await self._review_checkpoints()
        self.release_stray()

    async def _review_checkpoints(self) -> None:
        """Check whether checkpoints of tables without a round are valid; on a failure all snapshots stay leased."""
        restorer = self._restorer
        idle = restorer.known.holding - {one.facts.table_id for one in self._tables.rounds}
        look = restorer.start if not restorer.known.was_read else partial(restorer.check_again, table_ids=idle)
        try:
            await call(partial(look, self._source), what="look at checkpoints again")
        except LakewardError as error:
            _log.warning("checkpoints could not be looked at; what they need is held on", reason=str(error))

    async def forget_table(self, table_id: int) -> None:
        """Forget a table that the source has dropped; its id is never used again."""
        self._protection.forget(table_id)
        self._state.forget(table_id)
        try:
            await call(partial(self._delete, table_id), what="forget a table that was dropped")
        except LakewardError as error:
            _log.warning("what is on disk of a dropped table stays for now", reason=str(error))
        else:
            self._tables.drop(table_id)

    def _delete(self, table_id: int) -> None:
        self._restorer.forget(table_id)
        self._committed.delete(table_id)

    async def _forget_dropped(self) -> None:
        """Forget tables that were dropped while they had no round: the source sends no notice of those."""
        self._forget_at = self._clock.now() + self._forget_every_s
        known = self._tables.paths
        try:
            for table_id in await call(partial(self._find_dropped, known), what="look for tables that were dropped"):
                self._reporter.forget(table_id, "dropped")
                await self.forget_table(table_id)
        except LakewardError as error:
            _log.warning("what is kept of dropped tables stays for now", reason=str(error))

    def _find_dropped(self, known: Mapping[int, TablePath]) -> tuple[int, ...]:
        paths = {**known, **{record.table_id: record.path for record in self._committed.list()}}
        return tuple(table_id for table_id, path in paths.items() if is_gone(self._source, path, table_id))
