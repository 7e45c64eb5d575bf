"""A world without chance faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.testing.sim.case import Case
from lakeward.testing.sim.faults import Faults
from lakeward.testing.sim.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def case() -> Iterator[Case]:
    world = World(1, Faults([]), story=True)
    with world.alive():
        yield Case(world)
        for one in world.coordinators:
            one.loop.kill()
            one.loop.dispose()
