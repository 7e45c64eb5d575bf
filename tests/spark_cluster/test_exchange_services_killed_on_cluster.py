"""Processes killed at steps of an exchange's life on a cluster of two machines; the lake is compared by DuckDB.

The gate kills JVMs at some points; drivers on one machine. With `LAKEWARD_KILLS=all`, as `tox run -e
kills-all-cluster` has it, drivers, JVMs, executors and Python workers are killed at each point of both tables.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from lakeward_e2e.exchange import (
    DAEMON,
    PHASES,
    STEPS,
    VICTIMS,
    assert_nothing_lost,
    exchange_sections,
    exchanging_tables,
    kill_in_order,
    kills_at,
)
from lakeward_e2e.kills import ALL, NOT_IN_GATE

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward_cluster.world import ClusterWorld
    from lakeward_e2e.tables import AnyTable

SLOTS = 4
"""Of the two machines together."""
ENDED = {"driver": -signal.SIGKILL, "jvm": 1}
"""What a service ends with, by what of it was killed; it outlives the loss of an executor or a Python worker."""
SOME = ("files-closed",), ("overtaken-kept",)
"""Points of one table, and of the other one."""
pytestmark = [pytest.mark.spark_cluster, pytest.mark.timeout(3600)]


def configured(world: ClusterWorld, *tables: AnyTable) -> Path:
    """Write a configuration for both machines."""
    return world.configure_cluster(slots=SLOTS, conf=DAEMON, **exchange_sections(*tables))


@pytest.mark.skipif(ALL, reason="each point is a case of its own")
def test_a_service_whose_jvm_is_killed_at_some_steps_costs_no_row(shared_world: ClusterWorld) -> None:
    shared_world.end_services()
    tables = exchanging_tables(shared_world, "log_some", "keyed_some")
    config = configured(shared_world, *tables)
    kills = {**kills_at(tables[0], SOME[0], "jvm"), **kills_at(tables[1], SOME[1], "jvm")}
    before = len(shared_world.processes)
    killed = kill_in_order(shared_world, config, kills, *tables)
    assert len(killed) == len(kills)
    assert {service.ended() for service in killed} == {ENDED["jvm"]}
    assert_nothing_lost(shared_world, config, *tables)
    assert len(shared_world.processes) == before + len(killed) + 1


@NOT_IN_GATE
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("kind", ["log", "keyed"])
@pytest.mark.parametrize("victim", VICTIMS)
def test_whatever_is_killed_at_each_step_costs_no_row(
    shared_world: ClusterWorld, victim: str, kind: str, phase: str
) -> None:
    shared_world.end_services()
    name = f"{victim}_{kind}_{phase}"
    log, keyed = exchanging_tables(shared_world, f"log_{name}", f"keyed_{name}")
    table: AnyTable = log if kind == "log" else keyed
    config = configured(shared_world, table)
    points = [point for point in STEPS if point in PHASES[phase]]
    kills = kills_at(table, points, victim)
    before = len(shared_world.processes)
    killed = kill_in_order(shared_world, config, kills, table)
    assert len(killed) == (len(kills) if victim in ENDED else 1)
    if victim in ENDED:
        assert {service.ended() for service in killed} == {ENDED[victim]}
    assert_nothing_lost(shared_world, config, table)
    assert len(shared_world.processes) == before + len(killed) + (victim in ENDED)
