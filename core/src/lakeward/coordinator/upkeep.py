"""What follows a commit: checkpoints that no round needs, files that no snapshot names, snapshots that are too old.

The rows are in the lake by then, so trouble with upkeep is no trouble of the round: it has a time limit and log lines
of its own and is tried again, and what the next commit of the table makes superfluous is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import structlog

from lakeward.coordinator.calls import call
from lakeward.errors import LakewardError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.coordinator.cleaner import Cleaner
    from lakeward.coordinator.opening import Opening
    from lakeward.coordinator.restoring import Restorer
    from lakeward.coordinator.run import RoundRun
    from lakeward.coordinator.service import Service
    from lakeward.coordinator.table_locks import TableLocks
    from lakeward.model.identity import RoundId
    from lakeward.model.tables import TableBucket, TablePath

_log = structlog.get_logger("lakeward.upkeep")


@dataclass(slots=True)
class _Due:
    """The upkeep after the newest commit of one table."""

    path: TablePath
    round_id: RoundId
    snapshot_id: int | None
    """Of the round's last commit; None where it had nothing to commit."""
    expire: bool
    failures: int = 0
    again_at: float | None = None
    """When it is tried again; None while it is being tried."""


class Upkeep:
    """Does the upkeep of all tables, each table's under its lock. Used on the event loop only."""

    def __init__(self, service: Service, locks: TableLocks, cleaner: Cleaner, restorer: Restorer) -> None:
        """Start with nothing due.

        Args:
            service: for its parts and options, and for what is in hand.
            locks: one worker at a time for each table.
            cleaner: sweeps.
            restorer: drops checkpoints.
        """
        self._service = service
        self._parts = service.parts
        self._options = service.options
        self._locks = locks
        self._cleaner = cleaner
        self._restorer = restorer
        self._due: dict[TablePath, _Due] = {}
        self._newest: dict[int, int] = {}
        """Number of the newest round that was begun on each table, by its id."""
        self._commits: dict[int, int] = {}
        self._running = 0

    @property
    def busy(self) -> bool:
        """True while upkeep is under way that is within its time limit."""
        return self._running > 0

    def begin_round(self, round_id: RoundId) -> None:
        """Note that a round was begun: checkpoints of its table are its own from now on."""
        self._newest[round_id.table_id] = round_id.number

    def forget(self, table_id: int) -> None:
        """Keep nothing of a table that was dropped."""
        self._newest.pop(table_id, None)
        self._commits.pop(table_id, None)
        self._due = {path: due for path, due in self._due.items() if due.round_id.table_id != table_id}

    def after(self, run: RoundRun, opening: Opening, offsets: Mapping[TableBucket, int], *, landed: bool) -> None:
        """Begin the upkeep after a round, in the background.

        Args:
            run: the round; all of it is in the lake.
            opening: what it started from.
            offsets: what stands in the lake now.
            landed: whether it has just committed; else its steps had committed everything, or there was nothing.
        """
        path, table_id = run.offer.path, run.offer.table_id
        earlier = self._due.get(path)
        expire = earlier is not None and earlier.expire
        if landed:
            self._commits[table_id] = self._commits.get(table_id, 0) + 1
            expire = expire or self._commits[table_id] % self._options.expire_every == 0
            self._service.spawn(lambda: self._note_lag(run, opening, offsets))
        self._due[path] = due = _Due(path, run.round_id, run.snapshot_id, expire)
        self._service.spawn(partial(self._try, due))

    def tick(self) -> None:
        """Try again what failed, once its pause is over and the table has no round in work."""
        now = self._service.now()
        for due in self._due.values():
            if due.again_at is not None and due.again_at <= now and not self._has_later_round(due):
                due.again_at = None
                self._service.spawn(partial(self._try, due))

    async def _try(self, due: _Due) -> None:
        limit = self._options.commit_timeout_s
        self._running += 1
        try:
            async with self._locks.hold(due.path, "the upkeep after a commit", wait_s=limit) as held:
                if self._due.get(due.path) is not due:
                    return  # a later commit's upkeep does it as well
                if self._has_later_round(due):
                    due.again_at = self._service.now()
                    return
                await held.call(lambda: self._sweep(due), what=f"sweep after {due.path}", timeout_s=limit)
                if due.expire and due.snapshot_id is not None:
                    keep = frozenset({due.snapshot_id})
                    expire = f"expiry of {due.path}"
                    await held.call(lambda: self._parts.lake.expire(due.path, keep), what=expire, timeout_s=limit)
        except Exception as error:  # noqa: BLE001 - the round has committed, whatever this is
            self._put_off(due, error)
        else:
            if self._due.get(due.path) is due:
                del self._due[due.path]
        finally:
            self._running -= 1
            self._service.wake()

    def _sweep(self, due: _Due) -> None:
        table_id = due.round_id.table_id
        if self._newest.get(table_id) == due.round_id.number:
            self._restorer.drop_all(table_id, "its round has nothing left to commit")
        if due.snapshot_id is not None:
            self._cleaner.after_commit(due.path, due.round_id)

    def _put_off(self, due: _Due, error: Exception) -> None:
        policy = self._options.rounds
        pause = min(policy.backoff_most_s, policy.backoff_first_s * 2.0 ** min(due.failures, 60))
        due.failures += 1
        due.again_at = self._service.now() + pause
        unexpected = None if isinstance(error, LakewardError) else error
        _log.warning(
            "upkeep after a commit failed; the rows are in the lake, and it is tried again",
            table=str(due.path),
            reason=str(error),
            again_in_s=pause,
            exc_info=unexpected,
        )

    async def _note_lag(self, run: RoundRun, opening: Opening, offsets: Mapping[TableBucket, int]) -> None:
        what, limit = f"lag of {run.offer.path}", self._options.commit_timeout_s
        pending = self._parts.source.pending_since_ms
        self._running += 1
        try:
            since = await call(lambda: pending(opening.table, offsets), what=what, timeout_s=limit)
        except Exception as error:  # noqa: BLE001 - as above; the next commit asks again
            _log.warning("the lag after a commit is not known", table=str(run.offer.path), reason=str(error))
            return
        finally:
            self._running -= 1
        run.lag_s = 0.0 if since is None else max(0.0, (self._parts.clock.wall_ms() - since) / 1000)
        self._service.reporter.note_lag(run)

    def _has_later_round(self, due: _Due) -> bool:
        runs = self._service.desk.runs.values()
        return any(run.offer.path == due.path and run.round_id != due.round_id for run in runs)
