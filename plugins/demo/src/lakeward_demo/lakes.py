"""The lakes that the demo can go to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    import pyarrow as pa

    from lakeward.model.tables import TablePath
    from lakeward_demo.place import Place

ICEBERG, PAIMON = "iceberg", "paimon"
"""The lakes that there are, as `lake.type` names them."""
_MERGES = """\
expire_every = 1           # so often, and of so few files, so that it can be seen
compaction_files = 2
compaction_quiet_s = 0
"""
UPKEEP = {ICEBERG: _MERGES}
"""Keys of `[lake]` with which a demo has something to merge, however short it is."""


@dataclass(frozen=True, slots=True)
class SharedLake:
    """A lake that a Fluss cluster shares with us. `cluster` are settings of its server, `options` keys of `[lake]`."""

    where: str
    cluster: Mapping[str, str]
    options: Mapping[str, str]


class DemoLake(Protocol):
    """Reads the demo's lake, with other code than what wrote it."""

    title: str

    def read_table(self, table: TablePath) -> tuple[pa.Table, str]:
        """Read all live rows of a table; return the reader's name too.

        Raises:
            MissingPluginError: the lake's plugin is not installed.
        """
        ...

    def metadata_file(self, table: TablePath) -> Path:
        """Return the file that says what a table has now. Raises as `read_table`."""
        ...

    def query_lines(self) -> Mapping[str, str | None]:
        """Return a line for the shell by the name of each reader; None where that reader is not installed."""
        ...

    def shared(self) -> AbstractContextManager[SharedLake]:
        """Serve the lake's catalog to a cluster, if it has to be served, for the length of a `with` block."""
        ...


def open_lake(lake: str, place: Place) -> DemoLake:
    """Return the demo's lake by its name."""
    if lake == PAIMON:
        from lakeward_demo.paimon import PaimonDemoLake  # noqa: PLC0415 - each lake needs readers of its own

        return PaimonDemoLake(place)
    from lakeward_demo.iceberg import IcebergDemoLake  # noqa: PLC0415 - as above

    return IcebergDemoLake(place)
