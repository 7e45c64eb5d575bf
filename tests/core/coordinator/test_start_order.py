"""A start whose clock was ahead locks nobody out, whichever of its traces is left."""

from __future__ import annotations

import asyncio
import secrets
import shutil
from typing import TYPE_CHECKING

import pytest

from lakeward.coordinator.service.start_order import started_ms
from lakeward.coordinator.state.state_writer import ServiceStateWriter
from lakeward.errors import SourceError
from lakeward.model.identity import Incarnation
from lakeward.model.settings import TableMode, TableSettings
from lakeward.storage.service_state import ServiceStateStore
from lakeward.storage.small_files import SmallFiles
from lakeward_source_embedded.source import EmbeddedSource
from lakeward_testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.model.tables import TablePath, TableSpec
    from lakeward.ports import Clock, Source
    from lakeward_service_kit.service_world import World

DAY_MS = 86_400_000


def starts_at(world: World, clock: Clock, source: Source | None = None) -> int:
    states = ServiceStateStore(SmallFiles(str(world.directory / "state")))
    source = source or EmbeddedSource(world.store)
    return started_ms("svc", clock, states, world.lake, lambda: [table.path for table in source.tables()])


def run(world: World, at_ms: int, *, mirrors: bool = False) -> str:
    """Run a start until everything is tiered; return whom it says it was overtaken by."""
    start = Incarnation("svc", at_ms, secrets.token_hex(8))
    states = ServiceStateStore(SmallFiles(str(world.directory / "state")))
    state = ServiceStateWriter(states, start, "plain", world.clock)
    below = EmbeddedSource(world.store)
    service = world.service(incarnation=start, state=state, source=below, mirrors=mirrors, once=True)
    return asyncio.run(service.serve()).superseded_by


@pytest.mark.parametrize("mode", ["tier", "mirror"])
@pytest.mark.parametrize("lost", [False, True])
def test_a_start_stamped_by_a_clock_a_day_ahead_locks_nobody_out(world: World, mode: TableMode, lost: bool) -> None:
    log: TablePath = world.table("log")
    world.load(log, 0, 10)
    world.rules = lambda _: TableSettings(mode=mode)
    mirrors = mode == "mirror"
    assert not run(world, world.clock.wall_ms() + DAY_MS, mirrors=mirrors)
    if lost:
        shutil.rmtree(world.directory / "state")
    world.load(log, 10, 10)
    assert not run(world, starts_at(world, world.clock), mirrors=mirrors)
    assert sorted(row["id"] for row in world.lake.read(log)) == list(range(20))


def test_a_clock_that_is_right_is_taken_as_it_is(world: World) -> None:
    clock = FakeClock()
    world.lake.open_table(world.store.table(world.table("log")), Incarnation("svc", 5, "0" * 16))
    assert starts_at(world, clock) == clock.wall_ms()


def test_stamps_of_other_services_do_not_count(world: World) -> None:
    clock = FakeClock()
    log = world.table("log")
    other = Incarnation("other", clock.wall_ms() + DAY_MS, "0" * 16)
    world.lake.open_table(world.store.table(log), other)
    world.lake.stamp(log, other)
    assert starts_at(world, clock) == clock.wall_ms()


def test_a_source_that_is_away_keeps_no_start_from_starting(world: World) -> None:
    class Away(EmbeddedSource):
        def tables(self) -> Sequence[TableSpec]:
            message = "away"
            raise SourceError(message)

    clock = FakeClock()
    assert starts_at(world, clock, Away(world.store)) == clock.wall_ms()
