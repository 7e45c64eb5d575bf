"""A service, or a task of it, is killed at each step of a compaction: rows stay, and a later start compacts again."""

from __future__ import annotations

import signal
from functools import partial
from typing import TYPE_CHECKING

import pytest

from lakeward_e2e.kills import chosen
from lakeward_e2e.paimon_warehouse import PaimonWarehouse
from lakeward_e2e.tables import KeyTable
from lakeward_testing.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward_e2e.tables import AnyTable
    from lakeward_e2e.world import World

pytestmark = [pytest.mark.spark, pytest.mark.crash]

STEPS = {
    "planned": ("after-upkeep-plan.orders", "kill-driver"),
    "in a task": ("upkeep-task-begun", "kill-self"),
    "in a task, with the driver": ("upkeep-task-done", "kill-driver"),
    "before the commit": ("before-upkeep-commit.orders", "kill-driver"),
    "after the commit": ("after-upkeep-commit.orders", "kill-driver"),
}


def iceberg(world: World) -> Path:
    """Configure a service that merges files as soon as there are two of a bucket."""
    keys = {"compaction_files": 2, "compaction_quiet_s": 0, "expire_every": 1}
    return world.configure(lake_type="iceberg-upkept", lake_keys=keys)


def paimon(world: World) -> Path:
    """Configure a service that merges sorted runs as soon as there are two of a bucket."""
    world.warehouse = PaimonWarehouse(world.root / "warehouse")
    runs = {"orders": 'lake_properties = { "num-sorted-run.compaction-trigger" = "2" }'}
    return world.configure(lake_type="paimon-upkept", lake_keys={"keep_snapshots": 2, "expire_every": 1}, tables=runs)


LAKES = {"iceberg": iceberg, "paimon": paimon}
CASES = [(lake, step) for lake in LAKES for step in STEPS]
IN_GATE = [(lake, step) for lake in LAKES for step in ("in a task", "after the commit")]


def compacted(world: World, table: AnyTable) -> bool:
    """Say whether a compaction of a table has committed."""
    return (world.table_status(table).get("upkeep") or {}).get("state") == "committed"


@pytest.mark.parametrize(("lake", "step"), chosen(CASES, IN_GATE))
def test_killed_in_a_compaction(lake: str, step: str, world: World) -> None:
    table = KeyTable(world.store, "orders")
    point, action = STEPS[step]
    config = LAKES[lake](world)
    world.arm(point, action)
    service = world.start(config)
    table.load()
    world.until_same(table)
    table.load()
    world.wait_for(point)
    if action == "kill-driver":
        assert service.ended() == -signal.SIGKILL
        service = world.start(config)
    table.load()
    world.until_same(table)
    wait_until(partial(compacted, world, table), "a compaction to be committed")
    table.load()
    world.until_same(table)
    world.until_clean(table)
    assert service.alive, service.words()
