"""Upkeep after a commit: deletes unneeded checkpoints and unreferenced files, and expires old lake snapshots.

The rows are in the lake by then, so a failure of upkeep does not fail the round. Upkeep has its own time limit and log
lines and is tried again, until the table's next commit replaces it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import structlog

from lakeward.coordinator.workers.calls import call
from lakeward.coordinator.workers.log_fields import fields_of_round, with_log_fields
from lakeward.errors import LakewardError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from lakeward.coordinator.commits.cleaner import Cleaner
    from lakeward.coordinator.workers.background import Background
    from lakeward.coordinator.workers.table_locks import TableLocks
    from lakeward.model.identity import RoundId
    from lakeward.model.settings import LakeSettings, ServiceSettings
    from lakeward.model.tables import TableBucket, TablePath, TableSpec
    from lakeward.ports import Clock, Lake, Source

_log = structlog.get_logger("lakeward.upkeep")


@dataclass(slots=True)
class _Due:
    """The upkeep after the newest commit of one table."""

    path: TablePath
    round_id: RoundId
    snapshot_id: int | None
    """Of the round's last commit; None if it had nothing to commit."""
    expire: bool
    failures: int = 0
    again_at: float | None = None
    """When it is tried again; None while it runs."""


class Upkeep:
    """Does the upkeep of all tables, each table's under its lock. Used on the event loop only."""

    def __init__(
        self,
        *,
        clock: Clock,
        source: Source,
        lake: Lake,
        background: Background,
        locks: TableLocks,
        cleaner: Cleaner,
        drop_checkpoints: Callable[[int, str], None],
        has_other_round: Callable[[TablePath, RoundId], bool],
        note_lag: Callable[[int, TablePath, float], None],
        lake_settings: LakeSettings,
        service_settings: ServiceSettings,
    ) -> None:
        """Start with nothing due.

        Args:
            clock: the service's clock.
            source: knows how far behind a table is.
            lake: expires snapshots.
            background: where upkeep runs.
            locks: one worker at a time for each table.
            cleaner: sweeps files.
            drop_checkpoints: deletes every checkpoint of a table id, for a reason; blocking.
            has_other_round: says whether another round than this one is in progress on a table: then upkeep waits.
            note_lag: is told how far behind a table is after a commit, in seconds.
            lake_settings: time limits, and how often snapshots are expired.
            service_settings: pauses after failures.
        """
        self._clock = clock
        self._source = source
        self._lake = lake
        self._background = background
        self._locks = locks
        self._cleaner = cleaner
        self._drop_checkpoints = drop_checkpoints
        self._has_other_round = has_other_round
        self._tell_lag = note_lag
        self._lake_settings = lake_settings
        self._service_settings = service_settings
        self._due: dict[TablePath, _Due] = {}
        self._newest: dict[int, int] = {}
        """By table id: number of its newest round."""
        self._commits: dict[int, int] = {}
        self._running = 0

    @property
    def busy(self) -> bool:
        """True while upkeep runs that is within its time limit."""
        return self._running > 0

    def begin_round(self, round_id: RoundId) -> None:
        """Note that a round started: from now on the table's checkpoints are this round's."""
        self._newest[round_id.table_id] = round_id.number

    def forget(self, table_id: int) -> None:
        """Forget a table that was dropped."""
        self._newest.pop(table_id, None)
        self._commits.pop(table_id, None)
        self._due = {path: due for path, due in self._due.items() if due.round_id.table_id != table_id}

    def after_round(
        self,
        round_id: RoundId,
        table: TableSpec,
        snapshot_id: int | None,
        offsets: Mapping[TableBucket, int],
        *,
        landed: bool,
    ) -> None:
        """Start the upkeep after a round, in the background.

        Args:
            round_id: the round, which is completely in the lake.
            table: its table.
            snapshot_id: of its last commit, None if it had nothing to commit.
            offsets: the offsets in the lake now.
            landed: whether it has just committed; False if earlier steps had committed all of it, or it was empty.
        """
        path, table_id = table.path, round_id.table_id
        earlier = self._due.get(path)
        expire = earlier is not None and earlier.expire
        if landed:
            self._commits[table_id] = self._commits.get(table_id, 0) + 1
            expire = expire or self._commits[table_id] % self._lake_settings.expire_every == 0
            self._spawn(round_id, path, partial(self._note_lag, table, table_id, offsets))
        self._due[path] = due = _Due(path, round_id, snapshot_id, expire)
        self._spawn(due.round_id, path, partial(self._try, due))

    def tick(self) -> None:
        """Retry failed upkeep after its pause, if the table has no round in progress."""
        now = self._clock.now()
        for due in self._due.values():
            if due.again_at is not None and due.again_at <= now and not self._has_later_round(due):
                due.again_at = None
                self._spawn(due.round_id, due.path, partial(self._try, due))

    def _spawn(self, round_id: RoundId, path: TablePath, work: Callable[[], Coroutine[None, None, None]]) -> None:
        self._background.spawn(with_log_fields(fields_of_round(round_id, path), work))

    async def _try(self, due: _Due) -> None:
        limit = self._lake_settings.commit_timeout_s
        self._running += 1
        try:
            async with self._locks.hold(due.path, "the upkeep after a commit", wait_s=limit) as held:
                if self._due.get(due.path) is not due:
                    return  # the upkeep after a later commit does it as well
                if self._has_later_round(due):
                    due.again_at = self._clock.now()
                    return
                await held.call(self._sweep(due), what=f"sweep after {due.path}", timeout_s=limit)
                if due.expire and due.snapshot_id is not None:
                    keep = frozenset({due.snapshot_id})
                    expire = f"expiry of {due.path}"
                    await held.call(partial(self._lake.expire, due.path, keep), what=expire, timeout_s=limit)
        except Exception as error:  # noqa: BLE001 - the round has committed, whatever this is
            self._put_off(due, error)
        else:
            if self._due.get(due.path) is due:
                del self._due[due.path]
        finally:
            self._running -= 1
            self._background.wake()

    def _sweep(self, due: _Due) -> Callable[[], None]:
        """Return the work of a worker for a table."""
        path, round_id, table_id = due.path, due.round_id, due.round_id.table_id
        landed = due.snapshot_id is not None

        def work() -> None:
            if self._newest.get(table_id) == round_id.number:
                self._drop_checkpoints(table_id, "its round has nothing left to commit")
            if landed:
                self._cleaner.after_commit(path, round_id)

        return work

    def _put_off(self, due: _Due, error: Exception) -> None:
        settings = self._service_settings
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

    async def _note_lag(self, table: TableSpec, table_id: int, offsets: Mapping[TableBucket, int]) -> None:
        what, limit = f"lag of {table.path}", self._lake_settings.commit_timeout_s
        self._running += 1
        try:
            since = await call(partial(self._source.pending_since_ms, table, offsets), what=what, timeout_s=limit)
        except Exception as error:  # noqa: BLE001 - as above; the next commit asks again
            _log.warning("the lag after a commit is not known", reason=str(error))
            return
        finally:
            self._running -= 1
        lag_s = 0.0 if since is None else max(0.0, (self._clock.wall_ms() - since) / 1000)
        self._tell_lag(table_id, table.path, lag_s)

    def _has_later_round(self, due: _Due) -> bool:
        return self._has_other_round(due.path, due.round_id)
