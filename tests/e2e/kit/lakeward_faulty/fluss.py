"""The Fluss source, with the same points, and batches that are as small."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward_faulty.source import FaultyReader, FaultySource
from lakeward_source_fluss.source.options import FlussOptions
from lakeward_source_fluss.source.plugin import FlussSourcePlugin

if TYPE_CHECKING:
    from lakeward.model.tables import TableSpec
    from lakeward.ports import Clock


class FaultyFlussPlugin:
    """The source `fluss-faulty`."""

    options = FlussOptions

    def open(self, options: FlussOptions, clock: Clock) -> FaultySource:
        from lakeward_faulty.driver import watch_driver  # noqa: PLC0415 - workers need nothing of the driver

        watch_driver()
        return FaultySource(FlussSourcePlugin().open(options, clock))

    def reader(self, task: bytes, table: TableSpec) -> FaultyReader:
        return FaultyReader(FlussSourcePlugin().reader(task, table), table)
