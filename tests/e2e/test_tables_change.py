"""Tables are dropped, made anew, trimmed and widened while the service runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakeward.observe.control import pause, resume
from lakeward_e2e.tables import KeyTable, LogTable
from lakeward_testing.waiting import wait_until

if TYPE_CHECKING:
    from lakeward_e2e.world import World

pytestmark = [pytest.mark.spark]
both = pytest.mark.parametrize("shared_world", ["iceberg", "paimon"], indirect=True)


@both
def test_a_table_dropped_in_the_middle_of_a_round_disturbs_no_other(shared_world: World) -> None:
    """Its round ends, its lease is released, its files are deleted."""
    world = shared_world
    gone, other = KeyTable(world.store, "gone"), LogTable(world.store, "other")
    gone.load()
    gone.snapshot()
    gone.load()
    world.arm("writing.gone", "wait")
    service = world.serve(world.configure())
    world.wait_for("writing.gone")
    world.store.drop_table(gone.path)
    world.let_go("writing.gone")
    other.load()
    world.until_same(other)
    world.until_clean(gone, other)
    assert world.warehouse.commits(gone.path) == 0
    assert service.alive
    world.store.drop_table(other.path)


@both
def test_a_table_that_is_made_anew_starts_with_an_empty_lake_table(shared_world: World) -> None:
    """The earlier one's rows stay, under a name that says whose they are."""
    world = shared_world
    old = LogTable(world.store, "again")
    old.load(300)
    world.serve(world.configure())
    world.until_same(old)
    old_id = world.store.table(old.path).table_id
    world.store.drop_table(old.path)
    new = LogTable(world.store, "again")
    new.load(200)
    world.until_same(new)
    world.until_clean(new)
    aside = type(old.path)("shop", f"again__dropped_{old_id}")
    assert world.warehouse.select(aside, "id, note") == old.rows()
    world.store.drop_table(new.path)


@both
@pytest.mark.filterwarnings("ignore:Merge on read is not yet supported:UserWarning")
@pytest.mark.parametrize("point", ["writing", "before-lake-commit", "send"])
def test_a_table_that_somebody_compacts_in_the_middle_of_a_round_is_right_afterwards(
    shared_world: World, point: str
) -> None:
    """The round's deletes name files that are gone then, so it is done again; nobody is asked to do anything."""
    world = shared_world
    table = KeyTable(world.store, f"compacted_{point.replace('-', '_')}")
    point = f"{point}.{table.path.table}"
    service = world.serve(world.configure())
    for _ in range(2):
        table.load()
        world.until_same(table)
    world.arm(point, "wait")
    table.load()
    world.wait_for(point)
    world.warehouse.rewrite(table.path)
    world.let_go(point)
    world.until_same(table)
    table.load()
    world.until_same(table)
    assert service.alive
    world.store.drop_table(table.path)


@pytest.mark.parametrize("shared_world", ["iceberg"], indirect=True)  # no lake has a part in it
def test_a_log_that_was_trimmed_too_early_is_that_tables_error_alone_and_is_told(shared_world: World) -> None:
    """The records between the lake's offset and the log's start are lost: a person has to decide."""
    world = shared_world
    told = world.root / "told.jsonl"
    trimmed, other = LogTable(world.store, "trimmed", buckets=1), LogTable(world.store, "untouched")
    trimmed.load(300)
    program = f'sh -c "cat >> {told}; echo >> {told}"'
    config = world.configure(observe_keys={"on_status": f"'{program}'"})
    world.serve(config)
    world.until_same(trimmed)
    root = str(world.root / "state")
    pause(root, "tier", trimmed.path)
    wait_until(lambda: world.table_status(trimmed).get("status") == "paused", "the table to be paused")
    trimmed.load(300)
    world.store.trim_log(trimmed.path, 0, 400)
    resume(root, "tier", trimmed.path)
    wait_until(lambda: world.table_status(trimmed).get("status") == "suspended", "the table to be suspended")
    message = world.table_status(trimmed)["message"]
    assert "expected offset 300, the log starts at 400" in message
    wait_until(lambda: told.exists() and "suspended" in told.read_text(encoding="utf-8"), "the change to be told")
    other.load()
    world.until_same(other)
    world.serve(config).end()
    changes = [json.loads(line) for line in told.read_text(encoding="utf-8").splitlines()]
    (change,) = [one for one in changes if one["status"] == "suspended"]
    assert (change["table"], change["service"], change["message"]) == ("shop.trimmed", "tier", message)
    other.load()
    service = world.run_once(config, expected=1)
    assert "shop.trimmed did not reach its target" in service.words()
    assert world.same(other)
    for table in (trimmed, other):
        world.store.drop_table(table.path)


@both
def test_a_nullable_column_appears_in_the_lake_without_a_restart(shared_world: World) -> None:
    """Rows from before have null there."""
    world = shared_world
    log = LogTable(world.store, "widened", buckets=1)
    log.load(100)
    service = world.serve(world.configure())
    world.until_same(log)
    world.store.add_column(log.path, pa.field("extra", pa.int32()))
    world.store.load(log.path, pa.table({"id": [1000], "note": ["new"], "extra": pa.array([7], pa.int32())}))
    wait_until(lambda: len(world.warehouse.select(log.path, "id")) == 101, "the row of the new schema")
    found = world.warehouse.select(log.path, "extra, id")
    assert (7, 1000) in found
    assert {extra for extra, _ in found} == {7, None}
    assert service.alive
    world.store.drop_table(log.path)
