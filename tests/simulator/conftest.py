"""A world without chance faults."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "core" / "machines" / "kit"))

from lakeward_simulator.case import Case
from lakeward_simulator.faults import Faults
from lakeward_simulator.world import World

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
