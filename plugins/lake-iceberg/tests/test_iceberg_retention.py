"""Which snapshots an expiry keeps: by count, by age, and by what the table, its branches and its tags say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from lakeward.errors import SchemaMismatchError
from lakeward_iceberg_kit.checks import orphans_of
from lakeward_iceberg_kit.keyed import Keys
from lakeward_lake_iceberg.plugin import IcebergLakePlugin
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import PATH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table import Table

    from lakeward_lake_iceberg.lake import IcebergLake
    from lakeward_lake_iceberg.options import IcebergOptions

_NOW_MS = 1_900_000_000_000
_MINUTE_MS = 60_000


@pytest.fixture
def clock() -> FakeClock:
    """A clock that moves a minute with each round."""
    return FakeClock(wall_ms=_NOW_MS)


@pytest.fixture
def lake(options: IcebergOptions, clock: FakeClock) -> Iterator[IcebergLake]:
    """A lake that keeps two snapshots."""
    lake: Any = IcebergLakePlugin().open(msgspec.structs.replace(options, keep_snapshots=2), clock)
    yield lake
    lake.close()


@pytest.fixture
def tiered(lake: IcebergLake, clock: FakeClock, catalog: SqlCatalog) -> Callable[[], Table]:
    """A table of nine snapshots, each a minute after the one before; as somebody else sees it."""
    keys = Keys(lake)
    for number in range(8):
        clock.advance(60)
        keys.tier({number % 3: f"r{number}"})
    table = catalog.load_table("shop.orders")
    assert len(table.metadata.snapshots) == 9
    return lambda: catalog.load_table("shop.orders")


def expired(lake: IcebergLake, table: Callable[[], Table]) -> int:
    """Expire; return how many snapshots are left."""
    lake.expire(PATH, frozenset())
    assert orphans_of(table()) == set()
    return len(table().metadata.snapshots)


def set_property(table: Table, **properties: str) -> None:
    """Set properties of Iceberg's, named without what they begin with."""
    with table.transaction() as change:
        change.set_properties({f"history.expire.{name.replace('_', '-')}": told for name, told in properties.items()})


def test_without_an_age_the_newest_are_kept(lake: IcebergLake, tiered: Callable[[], Table]) -> None:
    assert expired(lake, tiered) == 2


def test_snapshots_that_are_younger_than_the_age_are_kept_too(
    options: IcebergOptions, clock: FakeClock, tiered: Callable[[], Table]
) -> None:
    aged = msgspec.structs.replace(options, keep_snapshots=2, keep_snapshots_s=300)
    lake: Any = IcebergLakePlugin().open(aged, clock)
    assert expired(lake, tiered) == 5
    clock.advance(3600)
    assert expired(lake, tiered) == 2
    lake.close()


def test_the_tables_own_count_and_age_win(lake: IcebergLake, tiered: Callable[[], Table]) -> None:
    set_property(tiered(), max_snapshot_age_ms=str(6 * _MINUTE_MS), min_snapshots_to_keep="1")
    assert expired(lake, tiered) == 6
    set_property(tiered(), max_snapshot_age_ms="1")
    assert expired(lake, tiered) == 1


def test_what_main_says_of_itself_wins_over_the_table(lake: IcebergLake, tiered: Callable[[], Table]) -> None:
    set_property(tiered(), min_snapshots_to_keep="1")
    head = tiered().metadata.current_snapshot_id
    assert head is not None
    with tiered().manage_snapshots() as manage:
        manage.create_branch(head, "main", min_snapshots_to_keep=4)
    assert expired(lake, tiered) == 4


def test_a_property_that_is_no_number_is_named(lake: IcebergLake, tiered: Callable[[], Table]) -> None:
    set_property(tiered(), max_snapshot_age_ms="5 days")
    with pytest.raises(SchemaMismatchError, match=r"history\.expire\.max-snapshot-age-ms.*'5 days'"):
        lake.expire(PATH, frozenset())


def test_a_tag_keeps_its_snapshot_until_it_is_as_old_as_it_may_become(
    lake: IcebergLake, clock: FakeClock, tiered: Callable[[], Table]
) -> None:
    first, second = (one.snapshot_id for one in tiered().metadata.snapshots[:2])
    with tiered().manage_snapshots() as manage:
        manage.create_tag(first, "for ever").create_tag(second, "an hour", max_ref_age_ms=60 * _MINUTE_MS)
    assert expired(lake, tiered) == 4
    clock.advance(3600)
    Keys(lake).tier({0: "x"})
    assert expired(lake, tiered) == 3
    assert set(tiered().metadata.refs) == {"main", "for ever"}
    assert tiered().metadata.snapshot_by_id(first) is not None


def test_a_branch_keeps_what_it_descends_from_unless_it_says_how_much(
    lake: IcebergLake, tiered: Callable[[], Table]
) -> None:
    fourth = tiered().metadata.snapshots[3].snapshot_id
    with tiered().manage_snapshots() as manage:
        manage.create_branch(fourth, "audit")
    assert expired(lake, tiered) == 6
    with tiered().manage_snapshots() as manage:
        manage.create_branch(fourth, "audit", min_snapshots_to_keep=1)
    Keys(lake).tier({0: "x"})
    assert expired(lake, tiered) == 3


def test_a_branch_that_has_ended_goes_with_snapshots_of_its_own(
    lake: IcebergLake, clock: FakeClock, tiered: Callable[[], Table], roll_back: Callable[..., None]
) -> None:
    snapshots = [one.snapshot_id for one in tiered().metadata.snapshots]
    with tiered().manage_snapshots() as manage:
        manage.create_branch(snapshots[8], "audit", max_ref_age_ms=30 * _MINUTE_MS)
    roll_back(PATH, snapshots[5])
    assert expired(lake, tiered) == 9
    clock.advance(1860)
    assert expired(lake, tiered) == 2
    assert set(tiered().metadata.refs) == {"main"}


def test_a_snapshot_that_no_branch_leads_to_is_kept_for_days(
    lake: IcebergLake, clock: FakeClock, tiered: Callable[[], Table], roll_back: Callable[..., None]
) -> None:
    """Somebody has staged it, or rolled main back."""
    roll_back(PATH, tiered().metadata.snapshots[5].snapshot_id)
    assert expired(lake, tiered) == 5
    clock.advance(5 * 86_400)
    assert expired(lake, tiered) == 2
