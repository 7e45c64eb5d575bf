"""The Fluss source with readers that stop in the middle, for services that are ended there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward_service_kit.held_source import Hold
from lakeward_source_fluss.formats.storage import Storage
from lakeward_source_fluss.source.connect import connect
from lakeward_source_fluss.source.plugin import FlussSourcePlugin
from lakeward_source_fluss.source.source import FlussSource

if TYPE_CHECKING:
    from lakeward.model.tables import TableSpec
    from lakeward.ports import Clock, SourceReader
    from lakeward_source_fluss.source.options import FlussOptions


class HeldFluss(FlussSource):
    """See `FlussSource`; `hold` says where readers stop."""

    def __init__(self, options: FlussOptions, clock: Clock, hold: Hold) -> None:
        """Connect; `close` closes the connections."""
        super().__init__(connect(options), Storage(options.storage), options, clock)
        self.hold = hold

    def reader_task(self, table: TableSpec) -> bytes:
        """See Protocol."""
        return self.hold.task(super().reader_task(table))


class HeldFlussPlugin(FlussSourcePlugin):
    """See `lakeward.hooks.plugins.SourcePlugin`."""

    def reader(self, task: bytes, table: TableSpec) -> SourceReader:
        """See Protocol."""
        return Hold.reader(task, lambda own: super(HeldFlussPlugin, self).reader(own, table))
