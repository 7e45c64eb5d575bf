"""Gangs on a cluster of two machines: executors and machines are lost in the midst of an exchange."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING

import pytest

from lakeward_cluster.cluster import HOST
from lakeward_e2e.exchange import (
    DAEMON,
    assert_nothing_lost,
    exchange_sections,
    exchanging_tables,
    kill_at_each,
    kills_at,
    reached_all,
)
from lakeward_e2e.kills import ALL, chosen
from lakeward_testing.waiting import wait_until

if TYPE_CHECKING:
    from lakeward_cluster.world import ClusterWorld

pytestmark = [pytest.mark.spark_cluster, pytest.mark.timeout(900)]
SLOTS = 4
"""Of the two machines together."""
WRITE_S = 0.2
"""Each subtask writes so slowly that batches wait for credit at each checkpoint, and are overtaken."""
ROWS = 1800
"""So many that they are read for seconds, in which checkpoints begin."""
POINTS = ("sending", "overtaken-kept", "completed-unaligned", "read-back")
"""The last one is reached in the restore that follows the kill at the one before it."""
OF_LOG, OF_KEYED = (POINTS, POINTS) if ALL else (POINTS[:2], POINTS[2:])
LOST = chosen(product(("sending", "overtaken-kept", "read-back"), (0, 1)), [("sending", 0), ("read-back", 1)])
"""When a machine is lost, and in a round of which table."""


def test_executors_that_are_killed_while_they_send_in_an_unaligned_checkpoint_and_in_the_restore_cost_no_row(
    shared_world: ClusterWorld,
) -> None:
    """At some of these moments of an append-only and of a keyed table, which names the executor that is at it."""
    world = shared_world
    log, keyed = exchanging_tables(world, "clicks", "carts", write_s=WRITE_S)
    config = world.configure_cluster(slots=SLOTS, conf=DAEMON, **exchange_sections(log, keyed, aligned_timeout_s=0.0))
    kills = kills_at(log, OF_LOG, "executor") | kills_at(keyed, OF_KEYED, "executor")
    services = kill_at_each(world, config, kills, log, keyed, rows=ROWS)
    assert_nothing_lost(world, config, log, keyed)
    assert len(services) == 1


def test_machines_that_are_lost_at_these_moments_cost_no_row_and_the_round_goes_on_with_the_other_one(
    shared_world: ClusterWorld,
) -> None:
    """A process stands still at the moment until its own machine, or the other one, is gone."""
    world = shared_world
    world.end_services()
    log, keyed = exchanging_tables(world, "visits", "stock", write_s=WRITE_S)
    config = world.configure_cluster(slots=SLOTS, conf=DAEMON, **exchange_sections(log, keyed, aligned_timeout_s=0.0))
    service = world.start(config)
    for moment, number in LOST:
        table = (log, keyed)[number]
        point = f"{moment}.{table.path.table}"
        if moment == "read-back":
            world.arm(f"completed-unaligned.{table.path.table}", "kill-worker")
        world.arm(point, "wait")
        table.load(ROWS)
        wait_until(partial(reached_all, world, [point], table, rows=ROWS), f"{point}; {service.words()}")
        world.cluster.remove(world.cluster.workers[:1])
        world.let_go(point)
        world.until_same(table)
        world.cluster.add_workers(HOST, cores=2)
    assert_nothing_lost(world, config, log, keyed)
    assert service.alive


def test_two_rounds_that_ask_for_more_slots_than_there_are_both_end(shared_world: ClusterWorld) -> None:
    world = shared_world
    world.end_services()
    log, keyed = exchanging_tables(world, "pages", "prices")
    log.load()
    keyed.load()
    config = world.configure_cluster(slots=2 * SLOTS, conf=DAEMON, **exchange_sections(log, keyed, rounds=2))
    service = world.start(config)
    world.until_same(log, keyed)
    world.until_clean(log, keyed)
    assert service.alive
    assert "launching the job again" in service.words()
