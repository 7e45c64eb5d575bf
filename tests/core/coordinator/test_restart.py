"""What a restarted service does with what its killed predecessor left; the predecessor wakes up as a zombie."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from lakeward.coordinator.service.stop import drop_own_lease
from lakeward.model.settings import TableSettings
from lakeward.model.tiering import HeartbeatRequest
from lakeward_service_kit.service_world import LaterClock
from lakeward_testing.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.coordinator.service.service import Service
    from lakeward.model.results import CommitRequest
    from lakeward_service_kit.service_world import World


@dataclass
class Trap:
    """Holds the first commit between its fence check and its swap, until it is let go."""

    sprung: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    gone: threading.Event = field(default_factory=threading.Event)

    def __call__(self, request: CommitRequest) -> None:
        if not self.sprung.is_set():
            self.sprung.set()
            self.released.wait(60)
            self.gone.set()


async def _die_when(trap: Trap, service: Service) -> None:
    serving = asyncio.create_task(service.serve())
    await until(trap.sprung.is_set)
    serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving


@pytest.fixture
def trap(world: World) -> Trap:
    trap = Trap()
    world.lake.before_commit = trap
    return trap


def numbers(world: World, name: str) -> list[int]:
    path = next(spec.path for spec in world.store.tables() if spec.path.table == name)
    return sorted(row["id"] for row in world.lake.read(path, key="id"))


def test_a_restart_goes_on_at_once_under_the_old_epoch(world: World, trap: Trap) -> None:
    log = world.table("log")
    world.load(log, 0, 100)
    asyncio.run(_die_when(trap, world.service()))
    assert world.once().failed == ()
    assert numbers(world, "log") == list(range(100))
    assert "/1-1-" in str([report.round_name for report in world.rounds if report.outcome == "committed"])
    trap.released.set()


def test_a_zombie_that_wakes_up_after_its_successor_committed_changes_nothing(world: World, trap: Trap) -> None:
    log = world.table("log")
    world.load(log, 0, 100)
    asyncio.run(_die_when(trap, world.service()))
    world.once()
    before = world.lake.head(log)
    trap.released.set()
    assert trap.gone.wait(LIMIT_S)
    assert world.lake.head(log) == before
    assert sorted(row["id"] for row in world.lake.read(log)) == list(range(100))


def test_files_of_the_killed_round_are_deleted(world: World, trap: Trap) -> None:
    log = world.table("log")
    world.load(log, 0, 100)
    asyncio.run(_die_when(trap, world.service()))
    left = world.lake.files_on_disk(log)
    assert left
    world.once()
    assert not left & world.lake.files_on_disk(log)
    assert world.lake.files_on_disk(log) == world.lake.referenced(log, world.lake.files_on_disk(log))
    trap.released.set()


def test_snapshots_are_taken_over_under_a_new_id_and_the_old_id_is_dropped(world: World, trap: Trap) -> None:
    keyed = world.table("keyed", key=True)
    world.load(keyed, 0, 100)
    world.store.snapshot(keyed)
    asyncio.run(_die_when(trap, world.service()))
    (old,) = world.store.leases()
    world.backend.calls.clear()
    world.once()
    assert ("drop", old.lease_id) in world.backend.calls
    acquired = next(lease_id for hook, lease_id in world.backend.calls if hook == "acquire")
    assert acquired != old.lease_id
    assert world.backend.calls.index(("acquire", acquired)) < world.backend.calls.index(("drop", old.lease_id))
    assert list(world.store.leases()) == []
    assert numbers(world, "keyed") == list(range(100))
    trap.released.set()


def test_the_second_sweep_comes_at_a_start_even_if_there_is_nothing_to_tier(world: World, trap: Trap) -> None:
    log = world.table("log")
    world.load(log, 0, 100)
    asyncio.run(_die_when(trap, world.service()))
    world.once()
    assert list((world.directory / "state").rglob("journal"))
    world.once(clock=LaterClock())
    assert list((world.directory / "state").rglob("journal")) == []
    trap.released.set()


@pytest.mark.parametrize("included", [True, False])
def test_once_ends_well_where_the_killed_start_had_a_table_in_hand_that_is_at_its_target(
    world: World, trap: Trap, included: bool
) -> None:
    log = world.table("log")
    world.load(log, 0, 100)
    world.lake.before_commit, world.lake.after_commit = lambda _: None, trap
    asyncio.run(_die_when(trap, world.service()))
    if not included:
        world.rules = lambda _: TableSettings(include=False)
    assert world.once().failed == ()
    assert numbers(world, "log") == list(range(100))
    trap.released.set()


async def overtake(world: World, first: Service, then: Callable[[], None] = lambda: None) -> str:
    """Let another start run beside a service, do something, and return whom the service says it was overtaken by."""
    serving = asyncio.create_task(first.serve())
    await until(lambda: first.state == "serving")
    await asyncio.to_thread(world.once)
    then()
    async with asyncio.timeout(LIMIT_S):
        return (await serving).superseded_by


def test_an_overtaken_start_ends_though_it_can_do_nothing(world: World) -> None:
    """It hears of its successor by nobody: nothing is written, and no table asked for."""
    assert asyncio.run(overtake(world, world.service(fence_s=1.0, poll_s=600.0)))


@pytest.mark.parametrize("known", [True, False])
def test_an_overtaken_start_drops_its_lease_only_where_its_successor_does_not_know_of_it(
    world: World, known: bool
) -> None:
    first, second = world.service_container(), world.service_container()
    leases, components = first.leases(), first.components()
    lease_id = leases.held_leases.lease_id

    async def overtaken() -> None:
        await second.components().state.save((), b"taken over", 0.0, lease_ids=(lease_id,) if known else ())
        await drop_own_lease(leases, components.backend, components.state, 5.0)

    asyncio.run(overtaken())
    assert (("drop", lease_id) in world.backend.calls) is not known


def test_a_table_handed_to_an_overtaken_start_is_given_back(world: World) -> None:
    """The table is made once the other start has ended: so it is handed to the one that has not noticed yet."""
    assert asyncio.run(overtake(world, world.service(fence_s=600.0), lambda: world.load(world.table("log"), 0, 100)))
    handed = world.container.components().source.heartbeat(HeartbeatRequest(request=True)).assignment
    assert handed is not None, "whoever asks next has to wait for the tiering timeout"
    assert handed.epoch > 1, "nobody had the table in hand"
