"""Rounds on a standalone cluster, where executors and workers are lost: a master and workers, each a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward_cluster.cluster import OTHER_HOST
from lakeward_e2e.tables import KeyTable, LogTable
from lakeward_testing.waiting import wait_until

if TYPE_CHECKING:
    from lakeward_cluster.world import ClusterWorld

pytestmark = pytest.mark.spark_cluster

LOST = "subtasks lost"


@pytest.mark.parametrize("failures", ["4", "1"])
def test_an_executor_that_is_killed_in_the_middle_of_a_round_is_replaced_before_a_subtask_counts_as_hung(
    failures: str, shared_world: ClusterWorld
) -> None:
    """Spark tries its tasks again; where it allows no failure, the job is launched again."""
    world = shared_world
    world.end_services()
    log, keyed = LogTable(world.store, f"events_{failures}", buckets=6), KeyTable(world.store, f"orders_{failures}")
    for table in (log, keyed):
        table.load()
    service = world.start(world.configure_cluster(slots=5, conf={"spark.task.maxFailures": failures}))
    world.until_same(log, keyed)
    world.arm(f"writing.{log.path.table}", "kill-executor")
    log.load(3000)
    world.wait_for(f"writing.{log.path.table}")
    world.until_same(log)
    world.until_clean(log, keyed)
    assert "subtask silent" not in service.words()
    assert service.words().count(LOST) <= 1
    assert ("launching the job again" in service.words()) == (failures == "1")


SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.task.duration.threshold": "1s",
}


def test_tier_and_mirror_are_right_where_speculation_is_asked_for(shared_world: ClusterWorld) -> None:
    """A copy of a slow subtask would take its splits away: none is started."""
    world = shared_world
    world.end_services()
    tiered, mirrored = LogTable(world.store, "slow", buckets=4), LogTable(world.store, "mirrored", buckets=2)
    for table in (tiered, mirrored):
        world.arm(f"writing.{table.path.table}", "sleep 6")
        table.load()
    config = world.configure_cluster(slots=5, conf=SPECULATION)
    with config.open("a", encoding="utf-8") as file:
        file.write('[tables."shop.mirrored"]\nmode = "mirror"\n')
    service = world.start(config)
    world.until_same(tiered, mirrored)
    world.until_clean(tiered, mirrored)
    assert "speculation is switched off" in service.words()
    assert "launching the job again" not in service.words()
    assert LOST not in service.words()


def test_where_executors_decide_a_worker_that_joins_in_the_middle_of_a_round_counts_from_the_next_one_on(
    shared_world: ClusterWorld,
) -> None:
    world = shared_world
    world.end_services()
    world.cluster.remove(world.cluster.workers[1:])
    log = LogTable(world.store, "joined", buckets=6)
    world.hold("each-write.joined")
    log.load()
    service = world.start(world.configure_cluster(slots=0, spark_keys={"subtask_timeout_s": 300}))
    wait_until(lambda: world.slots(log) == (1, 1), "the first worker to read")
    (late,) = world.cluster.add_workers(OTHER_HOST, cores=2)
    wait_until(lambda: late.serves, "an executor of the second worker")
    world.let_go("each-write.joined")
    world.until_same(log)
    assert not {executor.pid for executor in late.executors()} & world.executors_of(log)
    world.hold("each-write.joined")
    log.load()
    wait_until(lambda: world.slots(log) == (3, 3), "both workers to have a part of the round")
    wait_until(
        lambda: {executor.pid for executor in late.executors()} <= world.executors_of(log), "the second one to read"
    )
    world.let_go("each-write.joined")
    world.until_same(log)
    world.until_clean(log)
    assert service.alive


def test_two_services_share_one_master(shared_world: ClusterWorld) -> None:
    world = shared_world
    world.end_services()
    tables = [LogTable(world.store, f"shared_{number}", buckets=3) for number in range(4)]
    for table in tables:
        table.load()
    conf = {"spark.cores.max": "2"}
    services = [world.start(world.configure_cluster(name, slots=2, conf=conf)) for name in ("one", "two")]
    world.until_same(*tables)
    for table in tables:
        table.load()
    world.until_same(*tables)
    world.until_clean(*tables)
    assert [service.words() for service in services if not service.alive] == []
