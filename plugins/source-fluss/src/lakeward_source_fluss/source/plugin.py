"""What the core finds under the entry point `fluss` of group `lakeward.source`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward_source_fluss.source.options import FlussOptions

if TYPE_CHECKING:
    from lakeward.model.tables import TableSpec
    from lakeward.ports import Clock, Source, SourceReader


class FlussSourcePlugin:
    """See `lakeward.hooks.plugins.SourcePlugin`."""

    conformance_level = "chaos"
    options = FlussOptions

    def open(self, options: FlussOptions, clock: Clock) -> Source:
        """See Protocol."""
        from lakeward_source_fluss.formats.storage import Storage  # noqa: PLC0415
        from lakeward_source_fluss.source.connect import connect  # noqa: PLC0415 - the driver alone needs all of it
        from lakeward_source_fluss.source.source import FlussSource  # noqa: PLC0415

        return FlussSource(connect(options), Storage(options.storage), options, clock)

    def reader(self, task: bytes, table: TableSpec) -> SourceReader:
        """See Protocol."""
        from lakeward_source_fluss.source.reader import FlussReader  # noqa: PLC0415 - the subtask imports this alone

        return FlussReader.of_task(task, table)
