"""A world for each test, and one that the tests of a module share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# The kit is two packages: one that the tests import, and one that the services under test load as a plugin.
sys.path.insert(0, str(Path(__file__).with_name("kit")))
sys.path.insert(0, str(Path(__file__).parents[2] / "plugins" / "source-fluss" / "tests" / "kit"))
sys.path.insert(0, str(Path(__file__).parents[2] / "plugins" / "lake-iceberg" / "tests" / "kit"))
sys.path.insert(0, str(Path(__file__).parents[2] / "plugins" / "lake-paimon" / "tests" / "kit"))
sys.path.insert(0, str(Path(__file__).parents[1] / "core" / "kit"))

from lakeward_e2e.world import World
from lakeward_service_kit.command_line import configured, flights, lakeward

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["configured", "flights", "lakeward", "pytest_collection_modifyitems", "shared_world", "world"]

_LONG = (
    "test_exchange_services_killed",
    "test_chaos",
    "test_killed_with_object_store",
    "test_driver_killed",
    "test_killed_with_paimon_in_store",
)
"""Modules that run for minutes: where several processes share the tests, these begin with them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put long modules first; the others stay in their order."""
    items.sort(key=lambda item: _LONG.index(item.path.stem) if item.path.stem in _LONG else len(_LONG))


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    """A world of one test. A parameter names its lake, else it is Iceberg's."""
    world = World(tmp_path, getattr(request, "param", "iceberg"))
    yield world
    world.destroy()


@pytest.fixture(scope="module")
def shared_world(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[World]:
    """A world that the tests of a module share: a service that goes on costs no start of Spark.

    A parameter names its lake, as above.
    """
    world = World(tmp_path_factory.mktemp("world"), getattr(request, "param", "iceberg"))
    yield world
    world.destroy()
