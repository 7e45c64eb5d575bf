"""Services that replay dead letters because somebody asks them to."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from lakeward.model.dead_letters import ReplayRequest
from lakeward_source_embedded.source import EmbeddedSource
from lakeward_source_embedded.store import EmbeddedStore
from lakeward_testing.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakeward.model.tables import TablePath
    from lakeward_service_kit.service_world import World


def asked(path: TablePath, **wanted: str) -> Callable[[], Mapping[str, ReplayRequest]]:
    """Return what asks for a replay once the service has looked for requests of before its start."""
    looks = iter([dict[str, ReplayRequest]()])
    return lambda: next(looks, {str(path): ReplayRequest(1, **wanted)})


def replay(
    world: World, path: TablePath, done: Callable[[], bool], options: Mapping[str, Any] | None = None, **wanted: str
) -> None:
    """Run a service that replays dead letters, until something is so."""

    async def run() -> None:
        source = EmbeddedSource(EmbeddedStore.open(world.store.root))
        service = world.service(mirrors=True, source=source, replay=asked(path, **wanted), **(options or {}))
        serving = asyncio.create_task(service.serve())
        await until(done)
        service.stop()
        await serving

    asyncio.run(run())
