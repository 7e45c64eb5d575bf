"""The Fluss source with a point before its COMMIT, where services are paused. Needs the end-to-end tests' kit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeward_faulty.points import name_driver, reached
from lakeward_source_fluss.source.options import FlussOptions
from lakeward_source_fluss.source.plugin import FlussSourcePlugin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.model.tables import TableBucket, TableSpec
    from lakeward.ports import Clock, Source, SourceReader


class FaultySource:
    """Hands everything to the Fluss source."""

    def __init__(self, inner: Source) -> None:
        """Wrap a source."""
        self._inner = inner

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the port has
        """Give what the source has."""
        return getattr(self._inner, name)

    def commit(self, table: TableSpec, snapshot_id: int, prepared: str, offsets: Mapping[TableBucket, int]) -> None:
        """See Protocol."""
        reached(f"before-source-commit.{table.path.table}")
        self._inner.commit(table, snapshot_id, prepared, offsets)


class FaultyFlussPlugin:
    """The source `fluss-faulty`."""

    options = FlussOptions

    def open(self, options: FlussOptions, clock: Clock) -> FaultySource:
        """See Protocol."""
        name_driver()
        return FaultySource(FlussSourcePlugin().open(options, clock))

    def reader(self, task: bytes, table: TableSpec) -> SourceReader:
        """See Protocol."""
        return FlussSourcePlugin().reader(task, table)
