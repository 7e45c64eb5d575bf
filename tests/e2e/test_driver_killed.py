"""The driver is killed at each named step; the next start under the same name makes everything right.

The service that recovers is the one that the next test kills.
"""

from __future__ import annotations

import signal
from itertools import product
from typing import TYPE_CHECKING

import pytest

from lakeward_e2e.kills import chosen
from lakeward_e2e.tables import KeyTable, LogTable

if TYPE_CHECKING:
    from lakeward_e2e.tables import AnyTable
    from lakeward_e2e.world import World

pytestmark = [pytest.mark.spark, pytest.mark.crash]

STEPS = {
    "before prepare": "before-prepare.{table}",
    "after prepare": "after-prepare.{table}",
    "at the send of the lake commit": "send.{table}",
    "after the lake commit": "before-source-commit.{table}",
    "after the source commit": "after-source-commit.{table}",
    "in the middle of writing": "writing.{table}",
    "between creating a file and reporting it": "after-close.{table}",
    "during an acquire": "after-acquire",
    "before a release": "before-release",
    "after a release": "after-release",
}
SOME = ("at the send of the lake commit", "in the middle of writing")
LATER = chosen(
    product(
        (LogTable, KeyTable), ("at the send of the lake commit", "after the lake commit", "in the middle of writing")
    ),
    [(LogTable, "after the lake commit"), (KeyTable, "at the send of the lake commit")],
)


def recover(world: World, *tables: AnyTable) -> None:
    """Start the next one; all must be right, stay right with the next changes, and nothing may lie about."""
    service = world.start(world.configure())
    world.until_same(*tables)
    for table in tables:
        table.load()
    world.until_same(*tables)
    world.until_clean(*tables)
    assert service.alive, service.words()


def drop(world: World, *tables: AnyTable) -> None:
    """Leave the next test alone."""
    for table in tables:
        world.store.drop_table(table.path)


@pytest.mark.parametrize("step", chosen(STEPS, SOME))
def test_killed_in_a_round_that_reads_snapshots(step: str, shared_world: World) -> None:
    """A first round reads KV snapshots under a lease, and the changes after them."""
    world = shared_world
    name = "".join(word[0] for word in step.split())
    # The service of the step before may serve still: it has to find the snapshots as they are to be.
    stamped = f"after-stamp.orders_{name}"
    world.hold(stamped)
    log, keyed = LogTable(world.store, f"events_{name}"), KeyTable(world.store, f"orders_{name}")
    for table in (log, keyed):
        table.load()
    keyed.snapshot()
    keyed.load()
    world.arm(STEPS[step].format(table=keyed.path.table), "kill-driver")
    service = world.serve(world.configure())
    world.let_go(stamped)
    assert service.ended() == -signal.SIGKILL
    for table in (log, keyed):
        table.load()
    recover(world, log, keyed)
    drop(world, log, keyed)


@pytest.mark.parametrize(("kind", "step"), LATER, ids=[f"{kind.__name__}-{step}" for kind, step in LATER])
def test_killed_in_a_round_that_reads_changes(kind: type[LogTable | KeyTable], step: str, shared_world: World) -> None:
    """A later round builds on commits that landed; of a primary-key table it deletes rows of theirs."""
    world = shared_world
    table = kind(world.store, "_".join(("later", kind.__name__.lower(), *step.split())))
    table.load()
    service = world.serve(world.configure())
    world.until_same(table)
    world.arm(STEPS[step].format(table=table.path.table), "kill-driver")
    table.load()
    assert service.ended() == -signal.SIGKILL
    table.load()
    recover(world, table)
    drop(world, table)


def test_once_after_a_kill_ends_with_everything_right(world: World) -> None:
    """`--once` goes on where a killed service stopped, and a second one finds nothing to do and nothing to delete."""
    log, keyed = LogTable(world.store, "events"), KeyTable(world.store, "orders")
    for table in (log, keyed):
        table.load()
    keyed.snapshot()
    keyed.load()
    config = world.configure()
    world.arm("before-source-commit.orders", "kill-driver")
    assert world.start(config).ended() == -signal.SIGKILL
    log.load()
    world.run_once(config)
    assert world.same(log, keyed)
    world.run_once(config)
    world.assert_clean(log, keyed)
