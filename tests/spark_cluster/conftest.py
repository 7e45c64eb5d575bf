"""A world with a Spark cluster for each test, and one that the tests of a module share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).with_name("kit")))
sys.path.insert(0, str(Path(__file__).parents[1] / "e2e" / "kit"))
sys.path.insert(0, str(Path(__file__).parents[2] / "plugins" / "source-fluss" / "tests" / "kit"))

from lakeward_cluster.cluster import HOST, OTHER_HOST
from lakeward_cluster.world import ClusterWorld

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ClusterWorld]:
    """A world with a master and without workers."""
    world = ClusterWorld(tmp_path)
    yield world
    world.destroy()


@pytest.fixture(scope="module")
def shared_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterWorld]:
    """A world with two workers of two slots each, on two machines."""
    world = ClusterWorld(tmp_path_factory.mktemp("world"))
    world.cluster.add_workers(HOST, OTHER_HOST, cores=2)
    yield world
    world.destroy()
