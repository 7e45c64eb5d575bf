"""Rounds whose rows are exchanged between subtasks, on a real Spark: kills at any time, compared row by row."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from lakeward_e2e.kills import chosen
from lakeward_e2e.tables import KeyTable, LogTable
from lakeward_testing.waiting import wait_until

if TYPE_CHECKING:
    from lakeward_e2e.process import ServiceProcess
    from lakeward_e2e.tables import AnyTable
    from lakeward_e2e.world import World

pytestmark = [pytest.mark.spark, pytest.mark.crash]
LAYOUT = 'lake_partition = ["bucket(4, id)"]'
OFTEN = {"interval_s": 0.3, "pause_s": 0.1}


def tables_of(world: World) -> tuple[LogTable, KeyTable]:
    """Return an append-only table, and one that is partitioned by its key; both are filled."""
    log, keyed = LogTable(world.store, "events"), KeyTable(world.store, "orders")
    for _ in range(3):
        log.load(3000)
        keyed.load()
    return log, keyed


def slowed(world: World, *tables: AnyTable) -> None:
    """Let each write take its time, so that checkpoints are taken meanwhile."""
    for table in tables:
        world.arm(f"each-write.{table.path.table}", "sleep 0.5", always=True)


def freed(world: World, *tables: AnyTable) -> None:
    """Let writes be quick again."""
    for table in tables:
        world.disarm(f"each-write.{table.path.table}")


def lost_a_gang(service: ServiceProcess) -> bool:
    """Return whether all subtasks of a round were lost together, and launched together again."""
    return "launching the job again" in service.words()


def test_killed_workers_cost_no_row_and_the_round_goes_on_as_a_whole(world: World) -> None:
    log, keyed = tables_of(world)
    for table in (log, keyed):
        world.arm(f"each-write.{table.path.table}", "kill-self")
    layouts = {"events": LAYOUT, "orders": LAYOUT}
    service = world.start(world.configure(tables=layouts, master="local[4]", checkpoint_keys=OFTEN))
    for table in (log, keyed):
        world.wait_for(f"each-write.{table.path.table}")
    world.until_same(log, keyed)
    world.until_clean(log, keyed)
    assert lost_a_gang(service)
    assert service.alive


def has_checkpoint(world: World, log: LogTable, keyed: KeyTable) -> bool:
    """Say whether a checkpoint is complete. Load more once all rounds have ended without one."""
    if world.completed_checkpoints():
        return True
    if world.same(log, keyed):
        log.load(6000)
        keyed.load()
    return False


@pytest.mark.parametrize("killed", chosen(["driver", "java"], ["java"]))
def test_a_killed_service_goes_on_from_its_checkpoint(world: World, killed: str) -> None:
    log, keyed = tables_of(world)
    slowed(world, log, keyed)
    layouts = {"events": LAYOUT, "orders": f'{LAYOUT}\ncommit_every = "1s"'}
    config = world.configure(tables=layouts, master="local[4]", checkpoint_keys=OFTEN)
    service = world.start(config)
    wait_until(lambda: has_checkpoint(world, log, keyed), "a completed checkpoint")
    if killed == "driver":
        service.send(signal.SIGKILL)
    else:
        for process in service.java():
            process.kill()
    service.ended()
    freed(world, log, keyed)
    again = world.start(config)
    world.until_same(log, keyed)
    world.until_clean(log, keyed)
    assert again.alive
