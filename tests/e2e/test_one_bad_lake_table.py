"""One bad lake table never stops another: what `test_one_bad_table` of the core shows, on real lake tables."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest

from lakeward.clock import SystemClock
from lakeward.model.tables import TablePath
from lakeward_e2e.lakes import LAKES, AnyTables, lake_id
from lakeward_service_kit.service_world import World as Services
from lakeward_testing.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lakeward.ports import Lake


BAD, GOOD, FINE = (TablePath("t", name) for name in ("bad", "good", "fine"))


class Neighbours:
    """Three lake tables and the services that tier them, one after the other."""

    def __init__(self, directory: Path, kind: AnyTables, lake: Lake) -> None:
        """Create them."""
        self.kind = kind
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
        return dict(self.services.once(lake=self.lake, lake_type=self.kind.name).failed)

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


@pytest.fixture(params=LAKES, ids=lake_id)
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Neighbours]:
    kind: AnyTables = request.param(tmp_path)
    lake = kind.open(SystemClock())
    neighbours = Neighbours(tmp_path, kind, lake)
    assert neighbours.tier() == {}
    yield neighbours
    lake.close()


def test_a_table_whose_column_somebody_else_made_another_type_fails_alone_and_names_it(tables: Neighbours) -> None:
    tables.kind.drop(BAD, "name")
    tables.kind.add(BAD, "name", "BIGINT")
    for _ in range(2):
        failed = tables.tier()
        assert failed.keys() == {BAD}
        assert "ALTER TABLE t.bad RENAME COLUMN `name` TO `name_before`" in failed[BAD]
        assert (tables.tiered(GOOD), tables.tiered(FINE)) == (tables.rows, tables.rows)
    assert tables.tiered(BAD) == 10


@pytest.mark.parametrize(
    ("alter", "cause"),
    [
        (lambda kind: kind.rename(BAD, "name", "label"), r"field \d renamed to 'label'"),
        (lambda kind: kind.drop(BAD, "name"), r"field \d dropped"),
    ],
    ids=["renamed", "dropped"],
)
def test_a_running_service_suspends_a_table_whose_column_somebody_else_renamed_or_dropped_and_tiers_the_others(
    tables: Neighbours, alter: Callable[[AnyTables], object], cause: str
) -> None:
    async def run() -> None:
        service = tables.services.service(lake=tables.lake, lake_type=tables.kind.name)
        serving = asyncio.create_task(service.serve())
        try:
            tables.load()
            await until(lambda: all(tables.tiered(path) == tables.rows for path in (BAD, GOOD, FINE)))
            alter(tables.kind)
            tables.load()
            await until(lambda: tables.status(BAD)[0] == "suspended")
            words = f"t.bad: the lake table does not fit: expected column 'name', found {cause}"
            assert re.match(words, tables.status(BAD)[1])
            tables.load()
            await until(lambda: tables.tiered(GOOD) == tables.tiered(FINE) == tables.rows)
        finally:
            service.stop()
            await serving

    asyncio.run(run())
    assert tables.tiered(BAD) == 20
    # A round that had the table open when it was altered fails as well, and is tried again.
    assert 1 <= tables.services.outcomes(BAD).count("failed") <= 2


def test_a_table_whose_column_is_renamed_back_has_each_value_once(tables: Neighbours) -> None:
    tables.kind.rename(BAD, "name", "label")
    assert tables.tier().keys() == {BAD}
    assert tables.tiered(BAD) == 10
    tables.kind.rename(BAD, "label", "name")
    assert tables.tier() == {}
    assert tables.values(BAD, "name") == sorted(f"n{number}" for number in range(tables.rows))


def test_a_table_whose_disk_refuses_its_files_fails_alone_and_goes_on_once_it_does_not(tables: Neighbours) -> None:
    data = tables.kind.folder_of_data(BAD)
    hidden = data.rename(data.with_name("hidden"))
    data.write_text("in the way", encoding="utf-8")
    failed = tables.tier()
    assert failed.keys() == {BAD}
    assert str(data.relative_to(tables.kind.warehouse)) in failed[BAD]
    assert (tables.tiered(GOOD), tables.tiered(FINE)) == (tables.rows, tables.rows)
    data.unlink()
    hidden.rename(data)
    assert tables.tier() == {}
    assert tables.tiered(BAD) == tables.rows
