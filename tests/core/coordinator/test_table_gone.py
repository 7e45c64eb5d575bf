"""A table that is gone in the middle of a round: in the source it leaves the hand, in the lake it is tried again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from lakeward.coordinator.scheduling import scheduled
from lakeward.embedded.source import EmbeddedSource
from lakeward.embedded.store import EmbeddedStore
from lakeward.errors import TableGoneError
from lakeward.model.settings import TableSettings
from lakeward.testing.folder_lake import FolderLake
from lakeward.testing.service_world import POLICY_ONCE

if TYPE_CHECKING:
    from lakeward.model.results import CommitOutcome, CommitRequest
    from lakeward.testing.service_world import World


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
def test_a_lake_table_that_vanishes_in_the_middle_of_a_round_is_tried_again(world: World, mode: str) -> None:
    log = world.table("log")
    world.load(log, 0, 20)
    world.rules = lambda _: TableSettings(mode=mode)
    world.lake = Hiding(world.directory / "lake")
    below = EmbeddedSource(EmbeddedStore.open(world.store.root))
    service = world.service(source=scheduled(below, {mode}, world.rules, world.clock), once=True, rounds=POLICY_ONCE)

    async def soon() -> None:
        async with asyncio.timeout(15):  # a table that left the hand would come back after a minute or two
            assert (await service.serve()).failed == ()

    asyncio.run(soon())
    assert world.outcomes(log) == ["failed", "committed"]
    assert sorted(row["id"] for row in world.lake.read(log)) == list(range(20))
