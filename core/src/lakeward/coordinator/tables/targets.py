"""`run --once`: the end offsets at the start, and which tables have reached them (like Spark's availableNow)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import structlog

from lakeward.coordinator.rounds.context import tiered_offsets
from lakeward.coordinator.rounds.mirroring import configured_tables
from lakeward.coordinator.workers.calls import call
from lakeward.errors import LakeAwayError, LakewardError, TableGoneError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakeward.model.settings import TableSettings
    from lakeward.model.tables import BucketState, TableBucket, TablePath, TableSpec
    from lakeward.ports import Lake, Source, TableQueue

_log = structlog.get_logger("lakeward.startup")


class TargetOffsets:
    """The end offsets of every table at one moment."""

    def __init__(
        self,
        source: Source,
        lake: Lake,
        queue: TableQueue,
        rules: Callable[[TablePath], TableSettings],
        *,
        mirrors: bool,
    ) -> None:
        self._source = source
        self._lake = lake
        self._queue = queue
        self._rules = rules
        self._mirrors = mirrors
        self._ends: dict[TablePath, dict[TableBucket, int]] = {}
        self._unseen: set[TablePath] = set()
        """Tables whose end offsets could not be looked at."""

    def look(self) -> None:
        """Record the end offsets of all included tables that are behind. Blocking.

        A table that cannot be looked at is a target too: its first round finds its end offsets, or what is wrong.

        Raises:
            LakewardError: the tables cannot be listed, or the lake's catalog does not answer.
        """
        tables = configured_tables(self._source, self._rules, mirrors=self._mirrors)
        for table in tables:
            if self._rules(table.path).include:
                self._look_at(table)

    async def aim(self) -> frozenset[TablePath]:
        """Record the targets, make the tables due that are behind, and return these."""
        await call(self.look, what="look at the end offsets")
        paths = self.paths
        if paths:
            await call(partial(self._queue.make_due, paths), what="make tables due")
        return paths

    @property
    def paths(self) -> frozenset[TablePath]:
        """Tables that have not reached their target."""
        return frozenset(self._ends) | self._unseen

    def reached(self, path: TablePath, offsets: Mapping[TableBucket, int], buckets: Sequence[BucketState]) -> bool:
        """Return whether a table has reached its target; True for a table without one.

        `offsets`: the next to tier, by bucket. `buckets`: as the round found them; their ends are the target of a table
        without known end offsets.
        """
        if path in self._unseen:
            self._unseen.discard(path)
            self._ends[path] = _ends(buckets)
        ends = self._ends.get(path, {})
        if any(offsets.get(bucket, 0) < end for bucket, end in ends.items()):
            return False
        self._ends.pop(path, None)
        return True

    def _look_at(self, table: TableSpec) -> None:
        try:
            self._note(table)
        except LakeAwayError:
            raise  # no table's own failure
        except TableGoneError as gone:
            _log.info("a table was dropped while the service started", table=str(table.path), reason=str(gone))
        except LakewardError as error:
            self._unseen.add(table.path)
            reason = str(error)
            _log.warning("the end offsets of a table could not be looked at", table=str(table.path), reason=reason)

    def _note(self, table: TableSpec) -> None:
        table.check_readable()
        tiered = tiered_offsets(self._source, table, self._lake.head(table.in_lake.path))
        states = self._source.buckets(table)
        self._ends[table.path] = _ends(states)
        if all(tiered.get(state.bucket, 0) <= state.end for state in states):
            self.reached(table.path, tiered, states)  # else its round reports what is wrong


def _ends(states: Sequence[BucketState]) -> dict[TableBucket, int]:
    """Return the end offsets of the buckets that have rows."""
    return {state.bucket: state.end for state in states if state.end > state.start or state.snapshot is not None}
