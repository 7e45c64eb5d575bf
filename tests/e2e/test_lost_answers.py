"""The lake's answer to a commit is lost: whether it landed, did not, or lands later, each row is there once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward_e2e.tables import KeyTable, LogTable
from lakeward_testing.waiting import wait_until

if TYPE_CHECKING:
    from lakeward_e2e.tables import AnyTable
    from lakeward_e2e.world import World

pytestmark = [pytest.mark.spark, pytest.mark.parametrize("shared_world", ["iceberg", "paimon"], indirect=True)]


@pytest.mark.parametrize("what", ["lose-request", "lose-answer", "deliver-late"])
def test_an_answer_that_is_lost_doubles_no_row(what: str, shared_world: World) -> None:
    """In a first round and in a later one, of a log table and of a primary-key table."""
    world = shared_world
    name = what.replace("-", "_")
    log, keyed = LogTable(world.store, f"events_{name}"), KeyTable(world.store, f"orders_{name}")
    service = world.serve(world.configure())
    for _ in range(2):
        for table in (log, keyed):
            world.arm(f"send.{table.path.table}", what)
            world.hold(f"late.{table.path.table}")
            world.arm(f"late-refused.{table.path.table}", "told")
            table.load()
        for table in (log, keyed):
            world.wait_for(f"send.{table.path.table}")
        world.until_same(log, keyed)
        if what == "deliver-late":
            for table in (log, keyed):
                world.let_go(f"late.{table.path.table}")
                world.wait_for(f"late-refused.{table.path.table}")
            world.until_same(log, keyed)
    assert "outcome of a lake commit unknown" in service.words()
    for table in (log, keyed):
        table.load()
    world.until_same(log, keyed)
    world.until_clean(log, keyed)
    for table in (log, keyed):
        world.store.drop_table(table.path)


def waits_for_a_commit(world: World, table: AnyTable) -> bool:
    """Say whether the status file shows a table that is tried again later, as its commit may still land."""
    line = world.table_status(table)
    return line.get("status") == "backoff" and "may still land" in line["message"]


def test_a_catalog_that_never_answers_holds_up_its_table_alone(shared_world: World) -> None:
    """Each request is lost: the round fails, is tried again, and is right once the catalog answers."""
    world = shared_world
    sick, well = LogTable(world.store, "sick"), LogTable(world.store, "well")
    world.arm("send.sick", "lose-request", always=True)
    for table in (sick, well):
        table.load()
    world.serve(world.configure())
    world.until_same(well)
    wait_until(lambda: waits_for_a_commit(world, sick), "the table to wait, and to say for what")
    well.load()
    world.until_same(well)
    world.disarm("send.sick")
    world.until_same(sick)
    world.until_clean(sick, well)
    for table in (sick, well):
        world.store.drop_table(table.path)
