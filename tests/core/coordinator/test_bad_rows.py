"""Rows that do not fit the lake table are dropped if their table says so, and counted; too many suspend it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakeward.model.settings import TableSettings
from lakeward.observe.condition import ConditionTracker
from lakeward_service_kit.service_world import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Collection

    from lakeward.model.tables import TablePath
    from lakeward_service_kit.service_world import World

ROWS = 40
LAYOUTS = pytest.mark.parametrize(
    "layout",
    [{}, *({"lake_partition": ("truncate(10, id)",), "exchange": route} for route in ("none", "hash"))],
    ids=["split writer", "fan-out", "exchange"],
)


def load(world: World, path: TablePath, start: int, bad: Collection[int]) -> None:
    """Load rows; the text of those in `bad` is none."""
    ids = range(start, start + ROWS)
    names = pa.array([b"\xff" if number in bad else b"n%d" % number for number in ids], pa.binary()).view(pa.string())
    world.store.load(path, pa.table([pa.array(ids, pa.int64()), names], schema=SCHEMA))


def rules(world: World, **keys: object) -> None:
    """Give all tables these rules."""
    mode = "mirror" if "lake_partition" in keys else "tier"
    world.rules = lambda _path: TableSettings(mode=mode, **keys)  # type: ignore[arg-type] # by name


def once(world: World) -> None:
    """Run a service until every table is tiered or suspended."""
    world.once(mirrors=True)


def ids(world: World, path: TablePath) -> list[int]:
    return sorted(row["id"] for row in world.lake.read(path))


def status(world: World, path: TablePath) -> tuple[str, str]:
    described = ConditionTracker(None).describe(world.reports[-1], ())
    (found,) = [one.shown for one in described.tables if one.path == str(path)]
    return found.status, found.message


@LAYOUTS
def test_rows_that_do_not_fit_are_dropped_and_counted_and_all_others_are_in_the_lake(
    world: World, layout: dict[str, object]
) -> None:
    rules(world, on_bad_row="drop", **layout)
    path, bad = world.table("bad"), {0, 3, 17, 39}
    load(world, path, 0, bad)
    once(world)
    assert ids(world, path) == [number for number in range(ROWS) if number not in bad]
    assert [(one.outcome, one.rows, one.dropped) for one in world.rounds if one.rows] == [("committed", ROWS, 4)]
    assert world.reports[-1].tables[0].dropped == 4
    assert (world.rounds[-1].exchange is not None) == (layout.get("exchange") == "hash")
    assert world.rounds[-1].lag_rows in {0, None}


@LAYOUTS
def test_one_row_that_does_not_fit_suspends_its_table_where_nothing_else_is_said(
    world: World, layout: dict[str, object]
) -> None:
    rules(world, **layout)
    path = world.table("bad", buckets=1)
    load(world, path, 0, {17})
    once(world)
    assert ids(world, path) == []
    found, message = status(world, path)
    assert found == "suspended"
    assert "offset 17, column 'name': expected a value of type string, found b'\\xff'" in message


@LAYOUTS
@pytest.mark.parametrize(("most", "allowed"), [(4.0, "4 rows"), (0.1, "a share of 0.1")])
def test_more_of_them_than_a_round_may_have_suspend_the_table_and_nothing_is_committed(
    world: World, layout: dict[str, object], most: float, allowed: str
) -> None:
    rules(world, on_bad_row="drop", bad_rows_most=most, **layout)
    path = world.table("bad", buckets=1)
    load(world, path, 0, {2, 4, 6, 8, 10})
    once(world)
    assert ids(world, path) == []
    found, message = status(world, path)
    assert found == "suspended"
    assert f"5 of {ROWS} records do not fit the lake table, and bad_rows_most allows {allowed} of a round" in message
    assert "the first of them: table t.bad, bucket 1/0, offset 2, column 'name': expected" in message


@LAYOUTS
def test_as_many_of_them_as_a_round_may_have_are_dropped_in_each_round(world: World, layout: dict[str, object]) -> None:
    rules(world, on_bad_row="drop", bad_rows_most=2.0, **layout)
    path = world.table("bad", buckets=1)
    for start in (0, ROWS):
        load(world, path, start, {start, start + 1})
        once(world)
    assert ids(world, path) == [number for number in range(2 * ROWS) if number % ROWS > 1]
