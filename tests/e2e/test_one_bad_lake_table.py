"""One bad Iceberg table never stops another: what `test_one_bad_table` of the core shows, on real lake tables."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import LongType

from lakeward.clock import SystemClock
from lakeward.model.tables import TablePath
from lakeward_lake_iceberg.options import IcebergOptions
from lakeward_lake_iceberg.plugin import IcebergLakePlugin
from lakeward_service_kit.service_world import World as Services
from lakeward_testing.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyiceberg.table.update.schema import UpdateSchema

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

    def load(self) -> None:
        """Add ten rows to each table."""
        for path in (BAD, GOOD, FINE):
            self.services.load(path, self.rows, 10)
        self.rows += 10

    def tier(self) -> dict[TablePath, str]:
        """Add ten rows to each table and tier them; return why tables failed."""
        self.load()
        return dict(self.services.once(lake=self.lake, lake_type="iceberg").failed)

    def alter(self, change: Callable[[UpdateSchema], object]) -> None:
        """Change the bad lake table's schema as somebody else does."""
        uri = f"sqlite:///{self.warehouse}/catalog.db"
        with (
            closing(SqlCatalog("lakeward", uri=uri, warehouse=str(self.warehouse))) as catalog,
            catalog.load_table("t.bad").update_schema(allow_incompatible_changes=True) as update,
        ):
            change(update)

    def values(self, path: TablePath, column: str) -> list[str]:
        """Return a column of all rows that the lake has of a table, sorted."""
        head = self.lake.head(path)
        assert head is not None
        assert head.snapshot_id is not None
        batches = self.lake.read_rows(path, head.snapshot_id)  # type: ignore[attr-defined]  # a `ReadableLake`
        return sorted(str(value) for batch in batches for value in batch.column(column).to_pylist())

    def status(self, path: TablePath) -> tuple[str, str]:
        """Return a table's status and cause in the newest report."""
        reports = self.services.reports
        lines = (
            [(line.status, line.message) for line in reports[-1].tables if line.path == str(path)] if reports else []
        )
        return lines[0] if lines else ("", "")

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


@pytest.mark.parametrize(
    ("alter", "cause"),
    [
        (
            lambda update: update.rename_column("name", "label"),
            "expected column 'name', found field 2 renamed to 'label'",
        ),
        (lambda update: update.delete_column("name"), "expected column 'name', found field 2 dropped"),
    ],
    ids=["renamed", "dropped"],
)
def test_a_running_service_suspends_a_table_whose_column_somebody_else_renamed_or_dropped_and_tiers_the_others(
    tables: Neighbours, alter: Callable[[UpdateSchema], object], cause: str
) -> None:
    async def run() -> None:
        service = tables.services.service(lake=tables.lake, lake_type="iceberg")
        serving = asyncio.create_task(service.serve())
        try:
            tables.load()
            await until(lambda: all(tables.tiered(path) == tables.rows for path in (BAD, GOOD, FINE)))
            tables.alter(alter)
            tables.load()
            await until(lambda: tables.status(BAD)[0] == "suspended")
            assert tables.status(BAD)[1].startswith(f"t.bad: the lake table does not fit: {cause}")
            tables.load()
            await until(lambda: tables.tiered(GOOD) == tables.tiered(FINE) == tables.rows)
        finally:
            service.stop()
            await serving

    asyncio.run(run())
    assert tables.tiered(BAD) == 20
    assert tables.services.outcomes(BAD).count("failed") == 1


def test_a_table_whose_column_is_renamed_back_has_each_value_once(tables: Neighbours) -> None:
    tables.alter(lambda update: update.rename_column("name", "label"))
    assert tables.tier().keys() == {BAD}
    assert tables.tiered(BAD) == 10
    tables.alter(lambda update: update.rename_column("label", "name"))
    assert tables.tier() == {}
    assert tables.values(BAD, "name") == sorted(f"n{number}" for number in range(tables.rows))


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
