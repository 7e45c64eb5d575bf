"""Partitioned mirrors of Paimon and all state in an S3 store: killed in mid-round, the next start goes on."""

from __future__ import annotations

import signal
from functools import partial
from typing import TYPE_CHECKING

import pytest

from lakeward.clock import SystemClock
from lakeward.model.object_store import address_of
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.storage.small_files import SmallFiles
from lakeward_e2e.kills import NOT_IN_GATE
from lakeward_e2e.tables import KeyTable, LogTable
from lakeward_lake_paimon.lake import PaimonLake
from lakeward_lake_paimon.options import PaimonOptions
from lakeward_service_kit.s3_server import S3Server
from lakeward_testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward_e2e.process import ServiceProcess
    from lakeward_e2e.tables import AnyTable, Row
    from lakeward_e2e.world import World

pytestmark = [pytest.mark.spark, pytest.mark.crash]
LOADS, ROWS = 4, 500
LAYOUTS = {
    "events": 'lake_partition = ["bucket(2, id)"]\nexchange = "none"\nmax_split_rows = 200',
    "moving": 'lake_partition = ["truncate(6, note)"]',
}


class StoreWorld:
    """A world whose services keep everything but the source in a store."""

    def __init__(self, world: World, server: S3Server) -> None:
        """Make two buckets."""
        self.world = world
        self._server = server
        self._state = f"s3://{server.new_bucket()}/state"
        properties = {
            "s3.endpoint": f"http://{server.endpoint}",
            "s3.access-key": server.options["access_key"],
            "s3.secret-key": server.options["secret_key"],
        }
        self.options = PaimonOptions(warehouse=f"s3://{server.new_bucket()}/warehouse", properties=properties)
        self._files = SmallFiles(address_of(self._state, server.options))

    def start(self, *arguments: str) -> ServiceProcess:
        """Start a service."""
        config = self.world.configure(tables=LAYOUTS, checkpoint_keys={"interval_s": 0.5, "pause_s": 0.1})
        keys = {"lake.type": "paimon-faulty", "lake.warehouse": self.options.warehouse, "checkpoint.root": self._state}
        keys |= {f"lake.properties.{name}": value for name, value in self.options.properties.items()}
        flags = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
        storage = {f"LAKEWARD_CHECKPOINT__STORAGE__{name.upper()}": text for name, text in self._server.options.items()}
        return self.world.start(config, *flags, *arguments, **storage)

    def has_checkpoint(self, table: AnyTable) -> bool:
        """Say whether a checkpoint of a table has completed."""
        table_id = self.world.store.table(table.path).table_id
        return CheckpointFiles(self._files, SystemClock()).newest("tier", table_id) is not None

    def rows(self, table: AnyTable) -> list[Row]:
        """Return the lake table's rows, sorted; nothing is wrong of its files."""
        lake = PaimonLake(self.options, SystemClock())
        head = lake.head(table.path)
        assert head is not None
        assert list(lake.check_files(table.path, head.snapshot_id or 0, None)) == []
        batches = lake.read_rows(table.path, head.snapshot_id or 0)
        rows = [tuple(row[name] for name in table.columns) for batch in batches for row in batch.to_pylist()]
        return sorted(rows, key=str)


@pytest.fixture
def store_world(world: World) -> Iterator[StoreWorld]:
    server = S3Server()
    yield StoreWorld(world, server)
    for process in world.processes:
        process.destroy()
    server.close()


@NOT_IN_GATE
def test_a_killed_service_goes_on_from_its_checkpoint_and_each_row_is_there_once(store_world: StoreWorld) -> None:
    world = store_world.world
    log, keyed = LogTable(world.store, "events"), KeyTable(world.store, "moving")
    for _ in range(LOADS):
        log.load(ROWS)
        keyed.load()
    world.arm("each-write.events", "sleep 0.2", always=True)
    world.hold("before-lake-commit.events")  # however late a checkpoint is seen, it is of a round to go on with
    service = store_world.start()
    wait_until(partial(store_world.has_checkpoint, log), "a completed checkpoint")
    service.send(signal.SIGKILL)
    assert service.ended() == -signal.SIGKILL
    service.destroy()
    world.disarm("each-write.events")
    world.disarm("before-lake-commit.events")

    again = store_world.start("--once")
    assert again.ended() == 0, again.words()
    assert "goes on from a checkpoint" in again.words()
    assert store_world.rows(log) == log.rows()
    assert store_world.rows(keyed) == keyed.rows()
    assert not (world.root / "state").exists()
