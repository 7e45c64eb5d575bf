"""Rounds on a standalone cluster, where executors and workers are lost: a master and workers, each a process."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from lakeward_e2e.tables import KeyTable, LogTable

if TYPE_CHECKING:
    from lakeward_cluster.world import ClusterWorld

pytestmark = pytest.mark.spark_cluster

LOST = "subtasks lost"
SECONDS = 45
"""Enough for another executor on a busy machine, and less than the time after which a silent subtask is given up."""


@pytest.mark.parametrize("failures", ["4", "1"])
def test_an_executor_that_is_killed_in_the_middle_of_a_round_costs_seconds(
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
    killed_at = time.monotonic()
    world.until_same(log)
    assert time.monotonic() - killed_at < SECONDS
    world.until_clean(log, keyed)
    assert "subtask silent" not in service.words()
    assert service.words().count(LOST) <= 1
    assert ("launching the job again" in service.words()) == (failures == "1")
