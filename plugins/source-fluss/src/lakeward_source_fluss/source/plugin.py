"""What the core finds under the entry point `fluss` of group `lakeward.source`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward_source_fluss.source.options import FlussOptions

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from lakeward.hooks.demo import DemoCluster, DemoStore
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

    def demo_cluster(
        self, directory: Path, catalog: str, warehouse: str, report: Callable[[str], None]
    ) -> AbstractContextManager[DemoCluster]:
        """See `lakeward.hooks.demo.DemonstratedSource`."""
        from lakeward_source_fluss.cluster.demo import demo_cluster  # noqa: PLC0415 - nobody else needs servers and pyfluss

        return demo_cluster(directory, catalog, warehouse, report)

    def demo_store(self, address: str) -> DemoStore:
        """See `lakeward.hooks.demo.DemonstratedSource`."""
        from lakeward_source_fluss.cluster.demo import FlussDemoStore  # noqa: PLC0415 - as above

        return FlussDemoStore(address)
