"""A subtask is killed, or hangs: its splits are read again, what it left is deleted, the round goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward_e2e.tables import KeyTable, LogTable
from lakeward_testing.waiting import wait_until

if TYPE_CHECKING:
    from lakeward_e2e.world import World

pytestmark = [pytest.mark.spark, pytest.mark.crash]
FAULTS = {
    "killed in the middle of writing": ("writing", "kill-self"),
    "killed with closed files that it had not reported": ("after-close", "kill-self"),
    "failed in the middle of writing": ("writing", "raise the disk is on fire"),
    "hung in the middle of writing": ("writing", "stop-self"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_lost_subtask_costs_no_row_and_leaves_no_file(fault: str, shared_world: World) -> None:
    """In a round of KV snapshots, and in a round of changes; the service itself goes on all the time."""
    world = shared_world
    point, action = FAULTS[fault]
    name = "".join(word[0] for word in fault.split())
    names = (f"events_{name}", f"orders_{name}")
    for target in names:
        world.arm(f"{point}.{target}", action)
    log, keyed = LogTable(world.store, names[0]), KeyTable(world.store, names[1])
    log.load()
    keyed.load()
    keyed.snapshot()
    keyed.load()
    service = world.serve(world.configure(spark_keys={"subtask_timeout_s": 5}))
    _tiered_in_spite_of(point, world, log, keyed)
    for table in (log, keyed):
        world.arm(f"{point}.{table.path.table}", action)
        table.load()
    _tiered_in_spite_of(point, world, log, keyed)
    world.until_clean(log, keyed)
    assert service.alive
    assert len(world.processes) == 1
    for table in (log, keyed):
        world.store.drop_table(table.path)


def test_a_service_whose_java_process_is_killed_says_so_and_ends(world: World) -> None:
    """Its successor tiers what is left; nobody waits for a job that can no longer come back."""
    log = LogTable(world.store, "events")
    world.arm("writing.events", "sleep 2")
    log.load()
    config = world.configure()
    service = world.serve(config)
    world.wait_for("writing.events")
    for process in service.java():
        process.kill()
    assert service.ended() == 1
    assert "error[LW-" in service.words()
    assert "Spark's Java process has ended" in service.words().splitlines()[-1]
    assert "Traceback" not in service.words()
    world.serve(config)
    world.until_same(log)
    world.until_clean(log)


def test_a_split_that_fails_as_long_as_its_cause_lasts_rests_and_is_read_once_it_has_gone(world: World) -> None:
    """Another table is read meanwhile."""
    log, other = LogTable(world.store, "events"), LogTable(world.store, "other")
    for table in (log, other):
        table.load()
    world.arm("writing.events", "raise the disk is on fire", always=True)
    service = world.serve(world.configure())
    # What has failed twice rests.
    wait_until(lambda: service.words().count("subtask failed") > 1, f"a split to rest; {service.words()}")
    world.until_same(other)
    world.disarm("writing.events")
    world.until_same(log)
    world.until_clean(log, other)
    assert service.alive


def _tiered_in_spite_of(point: str, world: World, log: LogTable, keyed: KeyTable) -> None:
    for table in (log, keyed):
        world.wait_for(f"{point}.{table.path.table}")
    world.until_same(log, keyed)
