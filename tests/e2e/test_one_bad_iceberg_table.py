"""One bad Iceberg table never stops another: what `test_one_bad_table` of the core shows, on real lake tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import LongType

from lakeward.clock import SystemClock
from lakeward.model.tables import TablePath
from lakeward_lake_iceberg.options import IcebergOptions
from lakeward_lake_iceberg.plugin import IcebergLakePlugin
from lakeward_service_kit.service_world import World as Services

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakeward.ports import Lake

BAD, GOOD, FINE = (TablePath("t", name) for name in ("bad", "good", "fine"))


class Neighbours:
    """Three Iceberg tables and the services that tier them, one after the other."""

    def __init__(self, directory: Path, lake: Lake) -> None:
        """Create them."""
        self.warehouse = directory / "warehouse"
        self.lake = lake
        self.services = Services.create(directory)
        self.rows = 0
        for path in (BAD, GOOD, FINE):
            self.services.table(path.table, buckets=1)

    def tier(self) -> dict[TablePath, str]:
        """Add ten rows to each table and tier them; return why tables failed."""
        for path in (BAD, GOOD, FINE):
            self.services.load(path, self.rows, 10)
        self.rows += 10
        return dict(self.services.once(lake=self.lake, lake_type="iceberg").failed)

    def tiered(self, path: TablePath) -> int:
        """Return up to which offset the lake has a table."""
        head = self.lake.head(path)
        assert head is not None
        assert head.commit is not None
        return sum((head.commit.offsets or {}).values())


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[Neighbours]:

    lake = IcebergLakePlugin().open(IcebergOptions(warehouse=str(tmp_path / "warehouse")), SystemClock())
    neighbours = Neighbours(tmp_path, lake)
    assert neighbours.tier() == {}
    yield neighbours
    lake.close()


def test_a_table_whose_column_somebody_else_made_another_type_fails_alone_and_names_it(tables: Neighbours) -> None:
    catalog = SqlCatalog("lakeward", uri=f"sqlite:///{tables.warehouse}/catalog.db", warehouse=str(tables.warehouse))
    with catalog.load_table("t.bad").update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("name")
    with catalog.load_table("t.bad").update_schema() as change:
        change.add_column("name", LongType())
    catalog.close()
    for _ in range(2):
        failed = tables.tier()
        assert failed.keys() == {BAD}
        assert "name" in failed[BAD]
        assert (tables.tiered(GOOD), tables.tiered(FINE)) == (tables.rows, tables.rows)
    assert tables.tiered(BAD) == 10


def test_a_table_whose_disk_refuses_its_files_fails_alone_and_goes_on_once_it_does_not(tables: Neighbours) -> None:
    data = tables.warehouse / "t" / "bad" / "data"
    hidden = data.rename(data.with_name("hidden"))
    data.write_text("in the way", encoding="utf-8")
    failed = tables.tier()
    assert failed.keys() == {BAD}
    assert "t/bad/data" in failed[BAD]
    assert (tables.tiered(GOOD), tables.tiered(FINE)) == (tables.rows, tables.rows)
    data.unlink()
    hidden.rename(data)
    assert tables.tier() == {}
    assert tables.tiered(BAD) == tables.rows
