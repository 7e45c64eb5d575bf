"""The driver of leases: answers that come after the question was given up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lakeward.coordinator.leases.driver import LeaseDriver
from lakeward.errors import StorageError
from lakeward.machines.leases import (
    Leases,
    LeasesPolicy,
    NotProtected,
    Protect,
    Protected,
    ProtectionLost,
    Unprotect,
)
from lakeward.model.settings import LeaseSettings
from lakeward.model.tables import KvSnapshot, TableBucket
from lakeward_testing.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.machines.leases import LeasesCommand
    from lakeward_service_kit.service_world import World


class Owner:
    """Notes which tables it was told of."""

    def __init__(self) -> None:
        self.protected: list[int] = []
        self.refused: list[str] = []
        self.open_when_told: list[bool] = []
        self.is_open: Callable[[int], bool] = lambda _: False

    def tell(self, command: LeasesCommand) -> None:
        if isinstance(command, Protected):
            self.protected.append(command.table_id)
            self.open_when_told.append(self.is_open(command.table_id))
        elif isinstance(command, NotProtected | ProtectionLost):
            self.refused.append(command.reason)


def test_a_round_is_not_told_what_the_round_before_had_asked_for(world: World) -> None:
    keyed = world.table("keyed", key=True)
    world.load(keyed, 0, 10)
    world.store.snapshot(keyed)
    components, owner = world.service_container().components(), Owner()
    writing = asyncio.Event()

    async def persist() -> None:
        await writing.wait()

    async def run() -> None:
        machine = Leases(LeasesPolicy(duration_s=600.0), "svc-1-aa")
        owner.is_open = machine.is_waiting
        source, clock = components.source, components.clock
        leases = LeaseDriver(
            machine, components.backend, source, clock, settings=LeaseSettings(call_timeout_s=LIMIT_S), duration_s=600.0
        )
        running = asyncio.create_task(leases.run(owner.tell, persist))
        snapshot = KvSnapshot(TableBucket(1, None, 0), 0, 10)

        def ask() -> None:
            leases.step(Protect(now=clock.now(), table_id=1, snapshots=(snapshot,)))

        writing.set()
        ask()
        await until(lambda: owner.protected)
        writing.clear()
        ask()  # answered at once; that is told once the state is on disk
        leases.step(Unprotect(now=clock.now(), buckets=frozenset({snapshot.bucket})))
        ask()
        writing.set()
        await until(lambda: len(owner.protected) > 1)
        held = [lease.held for lease in world.store.leases()]
        running.cancel()
        assert owner.open_when_told == [False, False]
        assert held == [{snapshot.bucket: 0}]

    asyncio.run(run())
    assert world.backend.calls[-1][0] == "acquire"


def test_nothing_is_acquired_that_no_later_start_could_know(world: World) -> None:
    """The id of the lease could not be written: the backend is not called, and the table hears why."""
    components, owner = world.service_container().components(), Owner()

    async def persist() -> None:
        message = "state: cannot be written: No space left on device"
        raise StorageError(message)

    async def run() -> None:
        leases = LeaseDriver(
            Leases(LeasesPolicy(duration_s=600.0), "svc-1-aa"),
            components.backend,
            components.source,
            components.clock,
            settings=LeaseSettings(),
            duration_s=600.0,
        )
        running = asyncio.create_task(leases.run(owner.tell, persist))
        snapshot = KvSnapshot(TableBucket(1, None, 0), 0, 10)
        leases.step(Protect(now=components.clock.now(), table_id=1, snapshots=(snapshot,)))
        await until(lambda: owner.refused or owner.protected)
        running.cancel()

    asyncio.run(run())
    assert ["No space left" in reason for reason in owner.refused] == [True]
    assert "acquire" not in dict(world.backend.calls)


def test_another_coordinator_of_the_source_is_asked_for_what_is_leased(world: World) -> None:
    """It may have lost the leases of the one before."""
    keyed = world.table("keyed", key=True)
    world.load(keyed, 0, 10)
    world.store.snapshot(keyed)
    container = world.service_container()

    def asked() -> int:
        return [hook for hook, _ in world.backend.calls].count("acquire")

    async def run() -> None:
        leases, protection = container.leases(), container.protection()

        async def persist() -> None:
            pass

        running = asyncio.create_task(leases.run(Owner().tell, persist))
        snapshot = KvSnapshot(TableBucket(world.store.table(keyed).table_id, None, 0), 0, 10)
        leases.step(Protect(now=world.clock.now(), table_id=snapshot.bucket.table_id, snapshots=(snapshot,)))
        await until(lambda: asked() == 1)
        for epoch in (1, 1, 2):
            protection.note_coordinator(epoch)
        await until(lambda: asked() > 1)
        running.cancel()

    asyncio.run(run())
    assert asked() == 2
