"""Asks the source how far behind a table is after a commit."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import structlog

from lakeward.coordinator.workers.calls import call
from lakeward.ports import has_write_times

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.coordinator.tables.tables import Tables
    from lakeward.model.tables import TableBucket, TableSpec
    from lakeward.ports import Clock, Source

_log = structlog.get_logger("lakeward.upkeep")


class LagAfterCommit:
    """Keeps the lag of each table as of its newest commit."""

    def __init__(self, source: Source, clock: Clock, tables: Tables, limit_s: float) -> None:
        """Keep the source; it has `limit_s` seconds to answer."""
        self._source = source
        self._clock = clock
        self._tables = tables
        self._limit_s = limit_s
        self._running = 0

    @property
    def busy(self) -> bool:
        """True while the source is asked."""
        return self._running > 0

    async def ask(self, spec: TableSpec, offsets: Mapping[TableBucket, int]) -> None:
        """Ask for the oldest row that is not in the lake, which has these offsets."""
        work = partial(self._lag_s, spec, offsets)
        self._running += 1
        try:
            lag_s = await call(work, what=f"lag of {spec.path}", timeout_s=self._limit_s)
        except Exception as error:  # noqa: BLE001 - the round has committed, whatever this is; the next one asks again
            _log.warning("the lag after a commit is not known", reason=str(error))
            return
        finally:
            self._running -= 1
        table = self._tables.get(spec.table_id)
        if table is not None:
            table.history.note_lag(lag_s, self._clock.wall_ms())

    def _lag_s(self, spec: TableSpec, offsets: Mapping[TableBucket, int]) -> float | None:
        """Return for how long the oldest row has waited, None where rows wait whose source has no times. Blocking."""
        if not has_write_times(self._source):
            waits = any(state.end > offsets.get(state.bucket, state.start) for state in self._source.buckets(spec))
            return None if waits else 0.0
        since = self._source.pending_since_ms(spec, offsets)
        return 0.0 if since is None else max(0.0, (self._clock.wall_ms() - since) / 1000)
