"""Expiry: what it frees is deleted whatever becomes of its answer, and what any retained snapshot names stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from lakeward.errors import LakewardError
from lakeward.model.tables import Change, TableBucket
from lakeward_iceberg_kit.checks import Shelf, orphans_of
from lakeward_iceberg_kit.gateway import Fate, Gateway, Request
from lakeward_lake_iceberg.lake import IcebergLake
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import COLUMNS, PATH, TieringRound, incarnation, key_table, log_split, source_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyiceberg.table import Table

    from lakeward_lake_iceberg.plugin import IcebergLakePlugin

pytestmark = pytest.mark.slow


@pytest.fixture
def lake(plugin: IcebergLakePlugin, gateway: Gateway) -> Iterator[IcebergLake]:
    """A lake that keeps two snapshots, behind the gateway."""
    lake = plugin.open(msgspec.structs.replace(gateway.options, keep_snapshots=2), FakeClock())
    assert isinstance(lake, IcebergLake)
    yield lake
    lake.close()


@pytest.fixture
def table(gateway: Gateway) -> Callable[[], Table]:
    """The table as pyiceberg loads it."""
    return lambda: gateway.catalog.load_table("shop.orders")


def _update(plugin: IcebergLakePlugin, lake: IcebergLake, numbers: range, started_ms: int = 1000) -> None:
    """Update one key of many in each round: each fifth delete file replaces four."""
    for number in numbers:
        tiering = TieringRound(plugin, lake, key_table(), incarnation(started_ms), number)
        keys = range(30) if number == 1 else (number % 30,)
        rows = [{"id": key, "name": f"r{number}"} for key in keys]
        change = Change.INSERT if number == 1 else Change.UPDATE_AFTER
        tiering.write(log_split(tiering.table), [source_batch(COLUMNS, rows, changes=[change] * len(rows))])
        lake.commit(tiering.request({TableBucket(7, None, 0): number}))


def _is_expiry(request: Request) -> bool:
    return request.is_commit and any(update["action"] == "remove-snapshots" for update in request.body["updates"])


@pytest.mark.parametrize(
    "fate",
    [
        Fate.ANSWER_LOST,
        Fate.REPEATED,
        Fate.LANDED_403,
        Fate.LANDED_404,
        Fate.LANDED_409,
        Fate.LANDED_500,
        Fate.LANDED_503,
    ],
)
def test_what_an_expiry_freed_is_deleted_though_its_answer_said_little(
    plugin: IcebergLakePlugin, lake: IcebergLake, gateway: Gateway, table: Callable[[], Table], fate: Fate
) -> None:
    _update(plugin, lake, range(1, 15))
    gateway.fate = lambda request: fate if _is_expiry(request) else Fate.PASSED
    assert lake.expire(PATH, frozenset()) > 0
    assert orphans_of(table()) == set()


@pytest.mark.parametrize("by", ["expiry", "start"])
def test_what_an_expiry_freed_is_deleted_later_where_nobody_could_look(
    plugin: IcebergLakePlugin, lake: IcebergLake, gateway: Gateway, table: Callable[[], Table], by: str
) -> None:
    _update(plugin, lake, range(1, 15))
    sent: list[Request] = []

    def fate(request: Request) -> Fate:
        if _is_expiry(request):
            sent.append(request)
            return Fate.ANSWER_LOST
        return Fate.UNAVAILABLE if sent else Fate.PASSED

    gateway.fate = fate
    with pytest.raises(LakewardError):
        lake.expire(PATH, frozenset())
    gateway.fate = lambda _: Fate.PASSED
    left = orphans_of(table())
    assert left
    # So many commits that no metadata file is left that had the snapshots in it.
    _update(plugin, lake, range(15, 28))
    if by == "start":
        lake.stamp(PATH, incarnation(2000))
    else:
        lake.expire(PATH, frozenset())
    assert not left & orphans_of(table())


def test_an_expiry_that_lands_late_is_finished_by_the_next_one(
    plugin: IcebergLakePlugin, lake: IcebergLake, gateway: Gateway, table: Callable[[], Table]
) -> None:
    _update(plugin, lake, range(1, 15))
    gateway.fate = lambda request: Fate.LATE if _is_expiry(request) else Fate.PASSED
    assert lake.expire(PATH, frozenset()) == 0
    gateway.deliver()
    gateway.fate = lambda _: Fate.PASSED
    lake.expire(PATH, frozenset())
    assert orphans_of(table()) == set()


def test_a_lost_expiry_leaves_no_plan_behind(
    plugin: IcebergLakePlugin, lake: IcebergLake, gateway: Gateway, table: Callable[[], Table]
) -> None:
    _update(plugin, lake, range(1, 15))
    gateway.fate = lambda request: Fate.REQUEST_LOST if _is_expiry(request) else Fate.PASSED
    assert lake.expire(PATH, frozenset()) == 0
    _update(plugin, lake, range(15, 17))
    gateway.fate = lambda _: Fate.PASSED
    assert lake.expire(PATH, frozenset()) > 0
    assert orphans_of(table()) == set()


def test_every_file_that_a_retained_snapshot_names_is_there_beside_a_foreign_expiry(
    plugin: IcebergLakePlugin, lake: IcebergLake, gateway: Gateway, table: Callable[[], Table]
) -> None:
    """Also a delete file that it names as removed: who looks into its manifests finds the name."""
    later = plugin.open(msgspec.structs.replace(gateway.options, keep_snapshots=8), FakeClock())
    for turn in range(8):
        of, started_ms = (lake, 1000) if turn < 3 else (later, 2000)
        assert isinstance(of, IcebergLake)
        _update(plugin, of, range(1 + 7 * turn, 8 + 7 * turn), started_ms)
        oldest = [one.snapshot_id for one in table().metadata.snapshots[:3]]
        table().maintenance.expire_snapshots().by_ids(oldest).commit()
        _check_retained(table())
        of.expire(PATH, frozenset())
        _check_retained(table())
    later.close()


def test_a_replaced_delete_file_goes_once_no_retained_snapshot_names_it(
    plugin: IcebergLakePlugin, lake: IcebergLake, gateway: Gateway, table: Callable[[], Table]
) -> None:
    for turn in range(8):
        _update(plugin, lake, range(1 + 7 * turn, 8 + 7 * turn))
        lake.expire(PATH, frozenset())
        assert orphans_of(table()) == set()


def _check_retained(table: Table) -> None:
    shelf = Shelf()
    for snapshot in table.metadata.snapshots:
        shelf.entries(table, snapshot)
