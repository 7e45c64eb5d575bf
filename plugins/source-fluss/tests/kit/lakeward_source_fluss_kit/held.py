"""The Fluss source with readers that stop in the middle, for services that are ended there."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakeward.hooks import discovery
from lakeward_service_kit.held_source import Hold
from lakeward_source_fluss.formats.storage import Storage
from lakeward_source_fluss.source.connect import connect
from lakeward_source_fluss.source.plugin import FlussSourcePlugin
from lakeward_source_fluss.source.source import FlussSource

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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


_ENTRIES = """\
[lakeward.lake]
folder = lakeward_testing.folder_lake:FolderLakePlugin
[lakeward.source]
held-fluss = lakeward_source_fluss_kit.held:HeldFlussPlugin
"""


@contextmanager
def published(place: Path) -> Iterator[None]:
    """Publish the source, and a lake of folders, under their entry points, as an installed package would.

    `place` is an empty directory.
    """
    info = place / "held_fluss-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: held-fluss\nVersion: 0.1\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(_ENTRIES, encoding="utf-8")
    sys.path.insert(0, str(place))
    discovery.forget()
    yield
    sys.path.remove(str(place))
    discovery.forget()
