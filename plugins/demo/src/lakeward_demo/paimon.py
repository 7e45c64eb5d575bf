"""The demo's Paimon lake, read by the code of `lakeward verify`, which the writers do not use.

pypaimon needs an older pyarrow than Lakeward, so it cannot be in this environment: the last lines say how it reads.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward.clock import SystemClock
from lakeward.errors import MissingPluginError
from lakeward.ports import ReadableLake
from lakeward_demo.feed import FLIGHTS
from lakeward_demo.lakes import PAIMON, SharedLake
from lakeward_demo.shell_lines import python_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from lakeward.model.tables import TablePath
    from lakeward_demo.place import Place

_COLUMNS = ["flight_id", "dest", "status", "arr_delay"]


class PaimonDemoLake:
    """See `lakeward_demo.lakes.DemoLake`."""

    title = "Paimon; the folders are its catalog"

    def __init__(self, place: Place) -> None:
        """Read in a demo's directory."""
        self._place = place

    def read_table(self, table: TablePath) -> tuple[pa.Table, str]:
        """See Protocol."""
        try:
            from lakeward_lake_paimon.options import PaimonOptions  # noqa: PLC0415 - the lake's plugin
            from lakeward_lake_paimon.plugin import PaimonLakePlugin  # noqa: PLC0415 - as above
        except ImportError as error:
            key = "lake.type"
            raise MissingPluginError(key, "an installed lake", PAIMON, "pip install lakeward-lake-paimon") from error
        lake = PaimonLakePlugin().open(PaimonOptions(warehouse=str(self._place.warehouse.absolute())), SystemClock())
        if not isinstance(lake, ReadableLake):
            raise TypeError(type(lake))
        try:
            rows = pa.Table.from_batches(lake.read_rows(table, self._newest(table)))
        finally:
            lake.close()
        return rows, "the reader of `lakeward verify`"

    def metadata_file(self, table: TablePath) -> Path:
        """See Protocol: the newest snapshot's file."""
        return self._snapshots(table) / f"snapshot-{self._newest(table)}"

    def query_lines(self) -> Mapping[str, str | None]:
        """See Protocol."""
        made = f"CatalogFactory.create({{'warehouse': {str(self._place.warehouse)!r}}})"
        code = (
            f"from pypaimon import CatalogFactory; b = {made}.get_table('{FLIGHTS}').new_read_builder(); "
            f"b.with_filter(b.new_predicate_builder().greater_than('arr_delay', 600)).with_projection({_COLUMNS}); "
            "print(b.new_read().to_pandas(b.new_scan().plan().splits()))"
        )
        return {"pypaimon": python_line(code, "python")}

    @contextmanager
    def shared(self) -> Iterator[SharedLake]:
        """See Protocol: the folder of the warehouse is all that there is."""
        warehouse = str(self._place.warehouse.absolute())
        cluster = {
            "datalake.format": PAIMON,
            "datalake.paimon.metastore": "filesystem",
            "datalake.paimon.warehouse": warehouse,
        }
        yield SharedLake(f"Paimon warehouse {warehouse}", cluster, {"warehouse": warehouse})

    def _newest(self, table: TablePath) -> int:
        names = (one.name.partition("-") for one in self._snapshots(table).glob("snapshot-*"))
        return max(int(number) for _, _, number in names)

    def _snapshots(self, table: TablePath) -> Path:
        return self._place.warehouse / f"{table.database}.db" / table.table / "snapshot"
