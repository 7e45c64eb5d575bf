"""Tables with a lake partitioning of their own: through Spark into Iceberg, read by DuckDB and by pyiceberg."""

from __future__ import annotations

import signal
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakeward.model.tables import TablePath
from lakeward_e2e.kills import NOT_IN_GATE
from lakeward_e2e.tables import KeyTable, LogTable
from lakeward_testing.waiting import wait_until

if TYPE_CHECKING:
    from lakeward_e2e.tables import AnyTable, Row
    from lakeward_e2e.world import World
    from lakeward_source_embedded.store import EmbeddedStore

pytestmark = [pytest.mark.spark]
PATIENT: dict[str, Any] = {"heartbeat_timeout_s": 30, "commit_timeout_s": 10}
"""Nothing is killed: a slow machine may take its time for a commit."""
_FIRST = datetime(2026, 3, 1)  # noqa: DTZ001 - a timestamp without a time zone


class DatedTable(LogTable):
    """An append-only table of unique ids, six hours apart."""

    columns = ("id", "seen")

    def __init__(self, store: EmbeddedStore, name: str) -> None:
        """Create it in the store, in the database `shop`."""
        self.path = TablePath("shop", name)
        self.store = store
        self._next = 0
        seen = pa.field("seen", pa.timestamp("us"))
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False), seen])
        store.create_table(self.path, schema, buckets=2, freshness_s=0.5)

    def load(self, rows: int = 16) -> None:
        """Append rows."""
        ids = range(self._next, self._next + rows)
        self._next += rows
        self.store.load(self.path, pa.table({"id": list(ids), "seen": [_at(number) for number in ids]}))

    def rows(self) -> list[Row]:
        """Return what the lake must hold, sorted."""
        return sorted(((number, _at(number)) for number in range(self._next)), key=str)


def _at(number: int) -> datetime:
    return _FIRST + timedelta(hours=6 * number)


def layout(*fields: str, **keys: str) -> str:
    """Return the keys of a table's section."""
    names = ", ".join(f'"{field}"' for field in fields)
    return "\n".join([f"lake_partition = [{names}]", *(f"{key} = {text}" for key, text in keys.items())])


def assert_same_for_pyiceberg(world: World, table: AnyTable) -> None:
    """Compare by pyiceberg what `World.same` compares by DuckDB."""
    found = world.warehouse.table(table.path)
    assert found is not None
    rows = found.scan(selected_fields=table.columns).to_arrow().select(list(table.columns)).to_pylist()
    assert sorted((tuple(row.values()) for row in rows), key=str) == table.rows()


def test_partitioned_tables_hold_what_the_source_holds_and_can_be_partitioned_anew(world: World) -> None:
    """Append-only; keyed by the key; and keyed by a column that updates change: the row leaves its old partition."""
    dated, by_key = DatedTable(world.store, "dated"), KeyTable(world.store, "by_key")
    moving = KeyTable(world.store, "moving")
    tables: tuple[AnyTable, ...] = (dated, by_key, moving)
    for table in tables:
        table.load()
    moving.snapshot()
    layouts = {
        "dated": layout("day(seen)", "bucket(4, id)"),
        "by_key": layout("bucket(4, id)"),
        "moving": layout("truncate(6, note)"),
    }
    service = world.start(world.configure(tables=layouts, **PATIENT))
    world.until_same(*tables)
    for table in tables:
        table.load()
    world.until_same(*tables)
    service.end()

    for table in tables:
        assert_same_for_pyiceberg(world, table)
        # No commit has a key twice: the old partition's row goes when the new one comes.
        assert all(len(ids) == len(set(ids)) for ids in world.warehouse.ids_by_snapshot(table.path))
    (days,) = world.warehouse.partitions(dated.path).values()
    assert {bucket for _, bucket in days} == {0, 1, 2, 3}
    assert len({day for day, _ in days}) == 8
    assert len(next(iter(world.warehouse.partitions(moving.path).values()))) > 5

    for table in tables:
        table.load()
    layouts = {
        "dated": layout("month(seen)"),
        "by_key": layout("note"),
        "moving": layout("bucket(3, id)", "truncate(5, note)"),
    }
    world.run_once(world.configure(tables=layouts, **PATIENT))
    for table in tables:
        assert world.same(table)
        assert_same_for_pyiceberg(world, table)
        assert len(world.warehouse.partitions(table.path)) == 2
    # Both buckets have few rows: each new partition has one file.
    found = world.warehouse.table(dated.path)
    assert found is not None
    files = [one["partition"]["seen_month"] for one in found.inspect.files().to_pylist() if one["spec_id"]]
    assert len(files) == len(set(files)) > 0
    world.assert_clean(*tables)


@NOT_IN_GATE
@pytest.mark.crash
def test_a_killed_round_of_a_partitioned_table_is_resumed_from_its_checkpoint(world: World) -> None:
    """Without an exchange: each split goes on from its position and the files of its partitions."""
    log, keyed = DatedTable(world.store, "dated"), KeyTable(world.store, "moving")
    for _ in range(4):
        log.load(70_000)
        keyed.load()
    tables = {
        "dated": layout("day(seen)", "bucket(2, id)", exchange='"none"').replace("day", "year"),
        "moving": layout("truncate(6, note)"),
    }
    checkpoints = {"interval_s": 0.3, "pause_s": 0.1, "open_rows": 0}
    config = world.configure(tables=tables, checkpoint_keys=checkpoints)
    world.arm("after-roll.dated", "sleep 1")
    world.arm("each-write.dated", "sleep 0.1", always=True)
    # However late the checkpoint is seen, the round has not committed when its service is killed.
    world.hold("before-lake-commit.dated")
    service = world.start(config)
    # Of the slow table: the other one's round may have ended by now.
    wait_until(partial(world.completed_checkpoints, log), "a completed checkpoint")
    service.send(signal.SIGKILL)
    assert service.ended() == -signal.SIGKILL
    world.disarm("each-write.dated")
    world.disarm("before-lake-commit.dated")

    again = world.start(config)
    world.until_same(log, keyed)
    world.until_clean(log, keyed)
    assert "goes on from a checkpoint" in again.words()
    assert_same_for_pyiceberg(world, log)
    assert_same_for_pyiceberg(world, keyed)
