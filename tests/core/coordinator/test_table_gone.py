"""A table that is gone in the middle of a round: in the source it leaves the hand, in the lake it is tried again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from lakeward.coordinator.tables import tables
from lakeward.errors import TableGoneError
from lakeward.model.settings import TableMode, TableSettings
from lakeward.model.tables import KvSnapshot, TableBucket
from lakeward_source_embedded.source import EmbeddedSource
from lakeward_source_embedded.store import EmbeddedStore
from lakeward_testing.folder_lake import FolderLake
from lakeward_testing.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.container import ServiceContainer
    from lakeward.model.results import CommitOutcome, CommitRequest
    from lakeward_service_kit.service_world import World


@dataclass
class Hiding(FolderLake):
    """Says once, in the middle of a round, that it has no such table."""

    hidden: list[str] = field(default_factory=list)

    def commit(self, request: CommitRequest) -> CommitOutcome:
        if not self.hidden:
            self.hidden.append(request.round_id.name)
            message = f"{request.path}: the lake has no such table"
            raise TableGoneError(message)
        return super().commit(request)


@pytest.mark.parametrize("mode", ["tier", "mirror"])
def test_a_lake_table_that_vanishes_in_the_middle_of_a_round_is_tried_again(world: World, mode: TableMode) -> None:
    log = world.table("log")
    world.load(log, 0, 20)
    world.rules = lambda _: TableSettings(mode=mode)
    world.lake = Hiding(world.directory / "lake")
    below = EmbeddedSource(EmbeddedStore.open(world.store.root))
    service = world.service(source=below, mirrors=mode == "mirror", once=True)

    async def soon() -> None:
        async with asyncio.timeout(LIMIT_S):  # a table that left the hand would come back after a minute or two
            assert (await service.serve()).failed == ()

    asyncio.run(soon())
    assert world.outcomes(log) == ["failed", "committed"]
    assert sorted(row["id"] for row in world.lake.read(log)) == list(range(20))


def entries(container: ServiceContainer, table_ids: set[int]) -> Iterator[str]:
    """Give the name of each collection that has an entry of one of these tables, once for each entry."""
    owners = (
        container.service(),
        container.executor(),
        container.tables(),
        container.restorer(),
        container.checkpoints(),
        container.upkeep(),
        container.protection(),
        container.persistence(),
        container.housekeeping(),
        container.components().state,
    )
    for owner in owners:
        for name, kept in vars(owner).items():
            for key in kept if isinstance(kept, (dict, set)) else ():
                first = key[0] if isinstance(key, tuple) else key
                if (first.table_id if isinstance(first, TableBucket) else first) in table_ids:
                    yield f"{type(owner).__name__}.{name}"


def test_nothing_is_kept_in_memory_of_tables_that_were_dropped_and_counts_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "DROPPED_KEPT", 2)
    paths = [world.table(f"t{number}") for number in range(5)]
    for path in paths[:3]:  # the others never have a commit
        world.load(path, 0, 20)
    ids = {world.store.table(path).table_id for path in paths}
    service = world.service(forget_every_s=0.1)

    async def live() -> None:
        serving = asyncio.create_task(service.serve())
        await until(lambda: {table.table_id for report in world.reports[-1:] for table in report.tables} == ids)
        for table_id in ids:
            gone = [KvSnapshot(TableBucket(table_id, None, 0), 1, 0)]
            world.container.protection().snapshots_gone(table_id, gone, "cleaned up")
        assert len(list(entries(world.container, ids))) > 10
        for path in paths:
            world.store.drop_table(path)
        await until(lambda: not list(entries(world.container, ids)))
        service.stop()
        await serving

    asyncio.run(live())
    assert world.container.protection().snapshots_lost == 5
    assert len(world.reports[-1].tables) == 2
