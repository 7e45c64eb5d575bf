"""Kills at each step of an exchange's life, which a point names; the lake is compared row by row by DuckDB."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward_e2e.exchange import (
    PHASES,
    STEPS,
    assert_nothing_lost,
    configured,
    exchanging_tables,
    kill_in_order,
    kills_at,
)
from lakeward_e2e.kills import chosen

if TYPE_CHECKING:
    from lakeward_e2e.world import World

OF_THE_LOG = ["gathering", "received", "overtaken-kept", "files-closed"]
OF_THE_KEYED = ["connected", "aligning", "segment-written", "before-complete", *PHASES["restore"]]
"""Steps of each phase with one of the tables; all steps with both of them where all kills are made."""
pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(1200)]


def test_a_worker_that_is_killed_at_any_step_costs_no_row(world: World) -> None:
    """One service lives through all of it; a launch follows each kill."""
    log, keyed = exchanging_tables(world)
    config = configured(world, log, keyed)
    kills = kills_at(log, chosen(STEPS, OF_THE_LOG), "worker") | kills_at(keyed, chosen(STEPS, OF_THE_KEYED), "worker")
    services = kill_in_order(world, config, kills, log, keyed)
    assert_nothing_lost(world, config, log, keyed)
    assert services == world.processes
    assert services[0].alive
