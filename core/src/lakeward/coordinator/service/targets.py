"""`run --once`: the end offsets at the start, and which tables have reached them (like Spark's availableNow)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.coordinator.rounds.context import tiered_offsets
from lakeward.coordinator.workers.calls import call

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakeward.model.tables import TableBucket, TablePath, TableSpec
    from lakeward.ports import Lake, Source


class TargetOffsets:
    """The end offsets of every table at one moment."""

    def __init__(self) -> None:
        """Start without targets."""
        self._ends: dict[TablePath, dict[TableBucket, int]] = {}

    def look(self, source: Source, lake: Lake, included: Callable[[TablePath], bool]) -> None:
        """Record the end offsets of all included tables that are behind. Blocking.

        Args:
            source: the source.
            lake: the lake, for the offsets that are tiered already.
            included: whether the configuration includes a table.
        """
        for table in source.tables():
            if included(table.path):
                self._note(source, lake, table)

    async def aim(self, source: Source, lake: Lake, included: Callable[[TablePath], bool]) -> frozenset[TablePath]:
        """Record the targets, and make the tables due that are behind.

        Args:
            source: the source.
            lake: the lake.
            included: whether a table is ours to tier.

        Returns:
            Those tables.
        """
        await call(lambda: self.look(source, lake, included), what="look at the end offsets")
        paths = self.paths
        if paths:
            await call(lambda: source.make_due(paths), what="make tables due")
        return paths

    @property
    def paths(self) -> frozenset[TablePath]:
        """Tables that have not reached their target."""
        return frozenset(self._ends)

    def reached(self, path: TablePath, offsets: Mapping[TableBucket, int]) -> bool:
        """Return whether a table has reached its target; True for a table without one.

        Args:
            path: the table.
            offsets: the next offset to tier, by bucket.
        """
        ends = self._ends.get(path, {})
        if any(offsets.get(bucket, 0) < end for bucket, end in ends.items()):
            return False
        self._ends.pop(path, None)
        return True

    def _note(self, source: Source, lake: Lake, table: TableSpec) -> None:
        tiered = tiered_offsets(source, table, lake.head(table.path))
        states = source.buckets(table)
        self._ends[table.path] = {
            state.bucket: state.end for state in states if state.end > state.start or state.snapshot is not None
        }
        if all(tiered.get(state.bucket, 0) <= state.end for state in states):
            self.reached(table.path, tiered)  # else its round reports what is wrong
