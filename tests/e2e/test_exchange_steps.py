"""Kills at each step of an exchange's life, which a point names; the lake is compared row by row by DuckDB."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward_e2e.exchange import (
    STEPS,
    assert_nothing_lost,
    configured,
    exchanging_tables,
    kill_in_order,
    kills_at,
)
from lakeward_e2e.kills import NOT_IN_GATE

if TYPE_CHECKING:
    from lakeward_e2e.world import World

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(1200)]


@NOT_IN_GATE
def test_a_worker_that_is_killed_at_any_step_costs_no_row(world: World) -> None:
    """One service lives through all of it; a launch follows each kill."""
    log, keyed = exchanging_tables(world)
    config = configured(world, log, keyed)
    kills = kills_at(log, STEPS, "worker") | kills_at(keyed, STEPS, "worker")
    services = kill_in_order(world, config, kills, log, keyed)
    assert_nothing_lost(world, config, log, keyed)
    assert services == world.processes
    assert services[0].alive
