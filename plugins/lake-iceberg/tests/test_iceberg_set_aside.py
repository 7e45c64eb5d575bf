"""Setting the table of an earlier table id aside: whoever is late, repeated or paused takes no live table away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.errors import LakewardError
from lakeward.model.tables import TableBucket
from lakeward_iceberg_kit.checks import Shelf
from lakeward_iceberg_kit.gateway import Fate, Gateway, Request
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import COLUMNS, PATH, TieringRound, incarnation, log_split, log_table, source_batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyiceberg.table import Table

    from lakeward.ports import Lake
    from lakeward_lake_iceberg.plugin import IcebergLakePlugin


@pytest.fixture
def lake(plugin: IcebergLakePlugin, gateway: Gateway) -> Lake:
    """A lake behind the gateway."""
    return plugin.open(gateway.options, FakeClock())


@pytest.fixture
def commit(plugin: IcebergLakePlugin, lake: Lake) -> Callable[[int, int], None]:
    """Tier one row, whose id is the table's: `commit(table id, start)`."""

    def tier(table_id: int, started_ms: int) -> None:
        tiering = TieringRound(plugin, lake, log_table(table_id=table_id), incarnation(started_ms))
        tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": table_id}])])
        lake.commit(tiering.request({TableBucket(table_id, None, 0): 1}))

    return tier


def _ids(gateway: Gateway) -> dict[str, list[int]]:
    """Return the ids in each table that has rows."""
    tables = [gateway.catalog.load_table(identifier) for identifier in gateway.catalog.list_tables("shop")]
    found = {table.name()[-1]: _rows(table) for table in tables}
    return {name: rows for name, rows in found.items() if rows}


def _rows(table: Table) -> list[int]:
    head = table.metadata.current_snapshot()
    return [] if head is None else [key for key, _ in Shelf().rows(table, head)]


def test_a_start_that_is_paused_in_a_rename_takes_no_live_table_away(
    lake: Lake, commit: Callable[[int, int], None], gateway: Gateway
) -> None:
    commit(7, 1000)

    def meanwhile(request: Request) -> None:
        if request.is_rename:
            gateway.before = lambda _: None
            commit(8, 3000)

    gateway.before = meanwhile
    with pytest.raises(LakewardError):
        lake.open_table(log_table(table_id=8), incarnation(2000))
    assert _ids(gateway) == {"orders": [8], "orders__dropped_7": [7]}


def test_a_start_that_was_overtaken_between_its_look_and_its_rename_renames_nothing(
    lake: Lake, commit: Callable[[int, int], None], gateway: Gateway
) -> None:
    commit(7, 1000)
    marks: list[Request] = []

    def meanwhile(request: Request) -> None:
        if request.is_commit and not marks:
            marks.append(request)
            lake.stamp(PATH, incarnation(3000))

    gateway.before = meanwhile
    with pytest.raises(LakewardError, match="later start"):
        lake.open_table(log_table(table_id=8), incarnation(2000))
    assert _ids(gateway) == {"orders": [7]}


@pytest.mark.parametrize("fate", [Fate.REPEATED, Fate.ANSWER_LOST, Fate.LANDED_409, Fate.LANDED_404, Fate.LATE])
def test_a_rename_that_is_repeated_or_late_takes_the_old_table_alone(
    lake: Lake, commit: Callable[[int, int], None], gateway: Gateway, fate: Fate
) -> None:
    commit(7, 1000)
    fates = iter([fate])
    gateway.fate = lambda request: next(fates, Fate.PASSED) if request.is_rename else Fate.PASSED
    for _ in range(2):
        try:
            lake.open_table(log_table(table_id=8), incarnation(2000))
        except LakewardError:
            continue
    commit(8, 2000)
    gateway.deliver()
    assert _ids(gateway) == {"orders": [8], "orders__dropped_7": [7]}


def test_an_old_table_that_a_paused_start_creates_once_more_is_set_aside_beside_the_first(
    lake: Lake, commit: Callable[[int, int], None], gateway: Gateway
) -> None:
    """The two share no directory: what is cleaned away in one would be missing in the other."""
    commit(7, 1000)
    commit(8, 2000)
    gateway.catalog.rename_table("shop.orders", "shop.orders__dropped_8")
    lake.open_table(log_table(table_id=8), incarnation(2000))
    lake.stamp(PATH, incarnation(2000))
    commit(9, 2000)
    assert _ids(gateway) == {"orders": [9], "orders__dropped_7": [7], "orders__dropped_8": [8]}
    tables = [gateway.catalog.load_table(identifier) for identifier in gateway.catalog.list_tables("shop")]
    assert len({table.location() for table in tables}) == len(tables) == 4
