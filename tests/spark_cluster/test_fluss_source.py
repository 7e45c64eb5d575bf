"""Tables of a Fluss cluster, tiered and mirrored by one service, whose executors and workers are killed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from lakeward_cluster.cluster import HOST, OTHER_HOST
from lakeward_e2e.tables import KeyTable, LogTable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward_cluster.fluss import FlussWorld
    from lakeward_e2e.process import ServiceProcess

pytestmark = [pytest.mark.spark_cluster, pytest.mark.fluss]
MIRRORED = """
[tables."shop.mirror_*"]
mode = "mirror"
freshness_s = 1
"""


class Tables(NamedTuple):
    """Two tables of one mode."""

    log: LogTable
    keyed: KeyTable


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlussWorld]:
    """A Fluss cluster, and a Spark cluster with two workers of two slots each; where it cannot be had one reads why."""
    pytest.importorskip("fluss", reason="pyfluss writes the test data")
    from lakeward.errors import JavaError  # noqa: PLC0415 - where nothing is started nothing is loaded
    from lakeward_cluster.fluss import FlussWorld  # noqa: PLC0415
    from lakeward_demo.fluss.jars import JarsMissingError  # noqa: PLC0415

    try:
        world = FlussWorld(tmp_path_factory.mktemp("world"))
    except (JarsMissingError, JavaError) as missing:
        pytest.skip(f"no Fluss cluster here: {missing}")
    world.cluster.add_workers(HOST, OTHER_HOST, cores=2)
    yield world
    world.destroy()


@pytest.fixture(scope="module")
def modes(world: FlussWorld) -> dict[str, Tables]:
    """The tables, by the mode in which they get into the lake."""
    stores = {"tier": world.tiered, "mirror": world.mirrored}
    return {
        mode: Tables(LogTable(store, f"{mode}_log", buckets=4), KeyTable(store, f"{mode}_keyed", buckets=2))
        for mode, store in stores.items()
    }


@pytest.fixture
def service(world: FlussWorld, modes: dict[str, Tables]) -> ServiceProcess:
    """One service for all of these tests: it has all tables' first rows in the lake."""
    living = [process for process in world.processes if process.alive]
    if living:
        return living[-1]
    for tables in modes.values():
        for table in tables:
            table.load()
    config = world.configure_cluster(slots=5)
    with config.open("a", encoding="utf-8") as file:
        file.write(MIRRORED)
    return world.start(config)


def of_both_modes(modes: dict[str, Tables], name: str) -> list[LogTable | KeyTable]:
    return [getattr(tables, name) for tables in modes.values()]


def until_writing(world: FlussWorld, tables: list[LogTable | KeyTable], action: str, rows: int) -> None:
    """Load many rows, and come into the middle of a round of each table."""
    for table in tables:
        world.arm(f"writing.{table.path.table}", action)
        table.load(rows)
    for table in tables:
        world.wait_for(f"writing.{table.path.table}")


def until_right(world: FlussWorld, modes: dict[str, Tables], service: ServiceProcess) -> None:
    """Wait until all tables are right and nothing is left over."""
    tables = [table for mode in modes.values() for table in mode]
    world.until_same(*tables)
    world.until_clean(*tables)
    assert service.alive
    assert "subtask silent" not in service.words()


def test_tables_are_tiered_and_mirrored_side_by_side(
    world: FlussWorld, modes: dict[str, Tables], service: ServiceProcess
) -> None:
    until_right(world, modes, service)
    assert all(world.is_registered(table) for table in modes["tier"])
    assert not any(world.is_registered(table) for table in modes["mirror"])


def test_executors_that_are_killed_in_the_middle_of_a_round_of_either_mode_cost_no_row(
    world: FlussWorld, modes: dict[str, Tables], service: ServiceProcess
) -> None:
    for keyed in of_both_modes(modes, "keyed"):
        keyed.load()
    until_writing(world, of_both_modes(modes, "log"), "kill-executor", 3000)
    until_right(world, modes, service)


def test_workers_that_are_killed_in_the_middle_of_a_round_of_either_mode_and_come_back_cost_no_row(
    world: FlussWorld, modes: dict[str, Tables], service: ServiceProcess
) -> None:
    for log in of_both_modes(modes, "log"):
        log.load()
    until_writing(world, of_both_modes(modes, "keyed"), "wait", 3000)
    world.cluster.remove(world.cluster.workers)
    world.cluster.add_workers(HOST, OTHER_HOST, cores=2)
    until_right(world, modes, service)
