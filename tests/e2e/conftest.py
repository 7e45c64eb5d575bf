"""A world for each test, and one that the tests of a module share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# The kit is two packages: one that the tests import, and one that the services under test load as a plugin.
sys.path.insert(0, str(Path(__file__).with_name("kit")))
sys.path.insert(0, str(Path(__file__).parents[2] / "plugins" / "source-fluss" / "tests" / "kit"))
sys.path.insert(0, str(Path(__file__).parents[1] / "core" / "kit"))

from lakeward_e2e.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A world of one test."""
    world = World(tmp_path)
    yield world
    world.destroy()


@pytest.fixture(scope="module")
def shared_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A world that the tests of a module share: a service that goes on costs no start of Spark."""
    world = World(tmp_path_factory.mktemp("world"))
    yield world
    world.destroy()
