"""Upkeep after a commit: deletes unneeded checkpoints and unreferenced files, and expires old lake snapshots.

The rows are in the lake by then, so a failure of upkeep does not fail the round. Upkeep has its own time limit and log
lines and is tried again, until the table's next commit replaces it.

Also deletes what tasks have written after the files of their round were deleted (`Cleaner`), once they have ended for
certain: in the time between two rounds of a table, for the opening of a round does the same.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import structlog

from lakeward.coordinator.tables.table import UpkeepDue
from lakeward.coordinator.workers.log_fields import fields_of_round, with_log_fields
from lakeward.errors import LakewardError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from lakeward.coordinator.checkpoints.restorer import Restorer
    from lakeward.coordinator.commits.cleaner import Cleaner
    from lakeward.coordinator.tables.tables import Tables
    from lakeward.coordinator.workers.event_loop import EventLoop
    from lakeward.coordinator.workers.table_locks import TableLocks
    from lakeward.model.identity import RoundId
    from lakeward.model.settings import Settings
    from lakeward.model.tables import TablePath, TableSpec
    from lakeward.ports import Clock, Lake

_log = structlog.get_logger("lakeward.upkeep")


class Upkeep:
    """Does the upkeep of all tables, each table's under its lock. Used on the event loop only."""

    def __init__(
        self,
        *,
        clock: Clock,
        lake: Lake,
        loop: EventLoop,
        locks: TableLocks,
        tables: Tables,
        cleaner: Cleaner,
        restorer: Restorer,
        settings: Settings,
    ) -> None:
        self._clock = clock
        self._lake = lake
        self._loop = loop
        self._locks = locks
        self._tables = tables
        self._cleaner = cleaner
        self._restorer = restorer
        self._settings = settings
        self._running = 0
        self._sweeping: set[TablePath] = set()

    @property
    def busy(self) -> bool:
        """True while upkeep runs that is within its time limit."""
        return self._running > 0 or bool(self._sweeping)

    def after_round(self, round_id: RoundId, spec: TableSpec, snapshot_id: int | None, *, landed: bool) -> None:
        """Start the upkeep after a round that is completely in the lake, in the background.

        `snapshot_id` is of its last commit, None if it had nothing to commit. `landed`: it has just committed; False if
        earlier steps had committed all of it, or it was empty.
        """
        table = self._tables.get(round_id.table_id)
        if table is None:
            return  # the source has dropped it
        expire = table.upkeep is not None and table.upkeep.expire
        if landed:
            table.commits += 1
            expire = expire or table.commits % self._settings.lake.expire_every == 0
        table.upkeep = due = UpkeepDue(spec.path, round_id, snapshot_id, expire, spec.lake_path)
        self._spawn(due.round_id, due.path, partial(self._try, due))

    def tick(self) -> None:
        """Retry failed upkeep after its pause, and sweep again what is due, of tables without a round in progress."""
        now = self._clock.now()
        for table in self._tables:
            due = table.upkeep
            if due is None or due.again_at is None or due.again_at > now or self._has_later_round(due):
                continue
            due.again_at = None
            self._spawn(due.round_id, due.path, partial(self._try, due))
        for path in self._cleaner.due() - self._sweeping - self._tables.paths_with_round:
            self._sweeping.add(path)
            self._loop.spawn(partial(self._sweep_again, path))

    async def _sweep_again(self, path: TablePath) -> None:
        limit = self._settings.lake.commit_timeout_s
        try:
            async with self._locks.hold(path, "the second sweep after a round", wait_s=limit) as held:
                if path not in self._tables.paths_with_round:
                    sweep = partial(self._cleaner.sweep_due, path)
                    await held.call(sweep, what=f"sweep again after {path}", timeout_s=limit)
        except Exception as error:  # noqa: BLE001 - one table's trouble, whatever it is, stays with that table
            unexpected = None if isinstance(error, LakewardError) else error
            reason = str(error)
            _log.warning("left-over files stay for now", table=str(path), reason=reason, exc_info=unexpected)
        finally:
            self._sweeping.discard(path)
            self._loop.wake()

    def _spawn(self, round_id: RoundId, path: TablePath, work: Callable[[], Coroutine[None, None, None]]) -> None:
        self._loop.spawn(with_log_fields(fields_of_round(round_id, path), work))

    async def _try(self, due: UpkeepDue) -> None:
        limit = self._settings.lake.commit_timeout_s
        self._running += 1
        try:
            async with self._locks.hold(due.path, "the upkeep after a commit", wait_s=limit) as held:
                if not self._is_due(due):
                    return  # the upkeep after a later commit does it as well
                if self._has_later_round(due):
                    due.again_at = self._clock.now()
                    return
                await held.call(self._sweep(due), what=f"sweep after {due.path}", timeout_s=limit)
                if due.expire and due.snapshot_id is not None:
                    keep = frozenset({due.snapshot_id})
                    expire = f"expiry of {due.path}"
                    await held.call(
                        partial(self._lake.expire, due.lake_path or due.path, keep), what=expire, timeout_s=limit
                    )
        except Exception as error:  # noqa: BLE001 - the round has committed, whatever this is
            self._put_off(due, error)
        else:
            table = self._tables.get(due.round_id.table_id)
            if table is not None and table.upkeep is due:
                table.upkeep = None
        finally:
            self._running -= 1
            self._loop.wake()

    def _is_due(self, due: UpkeepDue) -> bool:
        table = self._tables.get(due.round_id.table_id)
        return table is not None and table.upkeep is due

    def _sweep(self, due: UpkeepDue) -> Callable[[], None]:
        """Return the work of a worker for a table."""
        path, round_id, table_id = due.path, due.round_id, due.round_id.table_id
        landed = due.snapshot_id is not None

        def work() -> None:
            table = self._tables.get(table_id)
            if table is not None and table.newest_round == round_id.number:
                self._restorer.drop_all(table_id, "its round has nothing left to commit")
                if landed:
                    self._restorer.known.landed(table_id)
            if landed:
                self._cleaner.after_commit(path, round_id, due.lake_path)

        return work

    def _put_off(self, due: UpkeepDue, error: Exception) -> None:
        settings = self._settings.service
        pause = min(settings.backoff_most_s, settings.backoff_first_s * 2.0 ** min(due.failures, 60))
        due.failures += 1
        due.again_at = self._clock.now() + pause
        unexpected = None if isinstance(error, LakewardError) else error
        _log.warning(
            "upkeep after a commit failed; the rows are in the lake, and it is tried again",
            reason=str(error),
            again_in_s=pause,
            exc_info=unexpected,
        )

    def _has_later_round(self, due: UpkeepDue) -> bool:
        return self._tables.has_other_round(due.path, due.round_id)
