"""The lag of a table after a commit, where the source's records have no write times."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lakeward.coordinator.effects.lag import LagAfterCommit
from lakeward.coordinator.tables.tables import Tables
from lakeward.model.tables import TableBucket
from lakeward.ports import has_write_times
from lakeward_source_embedded.source import EmbeddedSource
from lakeward_testing.clock import FakeClock
from lakeward_testing.waiting import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.model.tables import TableSpec
    from lakeward_service_kit.service_world import World

ROWS = 10


class Untimed(EmbeddedSource):
    has_write_times = False

    def pending_since_ms(self, table: TableSpec, offsets: Mapping[TableBucket, int]) -> int | None:
        return None


def lag_after_commit(world: World, source: EmbeddedSource, offset: int) -> tuple[float | None, int | None]:
    """Return the lag in seconds and up to when the lake is complete, after a commit up to an offset."""
    path = world.table("log", buckets=1)
    world.load(path, 0, ROWS)
    spec, clock, tables = source.table(path), FakeClock(), Tables()
    history = tables.known(spec.table_id, path).history
    history.note_lag(0.0, 1)  # an earlier commit left nothing
    asyncio.run(LagAfterCommit(source, clock, tables, LIMIT_S).ask(spec, {TableBucket(spec.table_id, None, 0): offset}))
    complete_ms = history.report.complete_ms
    return history.lag_s(ROWS - offset, clock.wall_ms()), None if complete_ms == 1 else complete_ms


def test_a_source_that_does_not_say_has_write_times(world: World) -> None:
    assert has_write_times(EmbeddedSource(world.store))
    assert not has_write_times(Untimed(world.store))


@pytest.mark.parametrize("offset", [0, ROWS - 1])
def test_the_lag_in_time_of_rows_without_write_times_is_unknown_and_not_nothing(world: World, offset: int) -> None:
    assert lag_after_commit(world, Untimed(world.store), offset) == (None, None)


def test_where_no_row_waits_the_lag_is_nothing_also_without_write_times(world: World) -> None:
    lag_s, complete_ms = lag_after_commit(world, Untimed(world.store), ROWS)
    assert (lag_s, complete_ms is None) == (0.0, False)
