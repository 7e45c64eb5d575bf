"""A service asks for 8 slots while its cluster has none, then 2, and loses them in the middle of a round."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward_cluster.cluster import HOST, OTHER_HOST
from lakeward_cluster.world import ClusterWorld
from lakeward_e2e.tables import KeyTable, LogTable
from lakeward_testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakeward_e2e.process import ServiceProcess

pytestmark = pytest.mark.spark_cluster

WAITING = "waiting for Spark: 0 of 8 slots"
SLOTS = 9
"""One of them is kept free for another round."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterWorld]:
    """A world whose cluster has no workers at first."""
    world = ClusterWorld(tmp_path_factory.mktemp("world"))
    yield world
    world.destroy()


def serve(world: ClusterWorld) -> ServiceProcess:
    living = [process for process in world.processes if process.alive]
    return living[-1] if living else world.start(world.configure_cluster(slots=SLOTS), "--progress")


def metrics(root: Path) -> str:
    return (root / "state" / "tier" / "metrics.prom").read_text(encoding="utf-8")


def test_a_round_waits_for_a_cluster_without_workers_and_says_so_until_a_late_one_comes(world: ClusterWorld) -> None:
    log = LogTable(world.store, "events", buckets=10)
    log.load()
    service = serve(world)
    wait_until(lambda: world.table_status(log).get("message") == WAITING, WAITING)
    wait_until(lambda: f"{WAITING} [lakeward.job]" in service.words(), "the warning")
    assert 'lakeward_slots{table="shop.events"} 0.0' in metrics(world.root)
    assert 'lakeward_slots_asked{table="shop.events"} 8.0' in metrics(world.root)
    assert world.warehouse.rows(log) == []
    world.cluster.add_workers(HOST, cores=2)
    world.until_same(log)
    world.until_clean(log)
    lines = [line for line in service.words().splitlines() if WAITING in line]
    # On the terminal at once, and again where a slow cluster has the job launched anew; in the log once.
    assert sum("[lakeward.job]" in line for line in lines) == 1
    assert lines[0].endswith(f" {log.path}: {WAITING}")


def test_a_worker_that_is_killed_in_the_middle_of_a_round_and_comes_back_costs_no_row(world: ClusterWorld) -> None:
    if not world.cluster.workers:
        world.cluster.add_workers(HOST, cores=2)
    log, keyed = LogTable(world.store, "clicks", buckets=10), KeyTable(world.store, "orders", buckets=3)
    service = serve(world)
    keyed.load()
    world.arm("writing.clicks", "wait")
    log.load(3000)
    world.wait_for("writing.clicks")
    world.cluster.remove(world.cluster.workers)
    world.cluster.add_workers(HOST, cores=2)
    world.until_same(log, keyed)
    world.until_clean(log, keyed)
    assert service.alive
    assert "subtask silent" not in service.words()


def test_a_second_worker_that_joins_in_the_middle_of_a_round_takes_part_in_it(world: ClusterWorld) -> None:
    """The round has asked for more slots than there were."""
    if not world.cluster.workers:
        world.cluster.add_workers(HOST, cores=2)
    log = LogTable(world.store, "joining", buckets=10)
    service = serve(world)
    world.hold("each-write.joining")
    log.load(1000)
    wait_until(lambda: world.slots(log) == (2, 8), "the first worker to read")
    (late,) = world.cluster.add_workers(OTHER_HOST, cores=2)
    wait_until(lambda: world.slots(log) == (4, 8), "both workers to have a part of the round")
    wait_until(
        lambda: {executor.pid for executor in late.executors()} < world.executors_of(log), "the second one to read"
    )
    world.let_go("each-write.joining")
    world.until_same(log)
    world.until_clean(log)
    assert service.alive
