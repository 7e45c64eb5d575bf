"""State, checkpoints and warehouse in an S3 store: the service is killed in mid-round, and its next start goes on."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from lakeward.clock import SystemClock
from lakeward.errors import CorruptFileError
from lakeward.model.object_store import address_of
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.storage.small_files import SmallFiles
from lakeward_e2e.kills import NOT_IN_GATE
from lakeward_e2e.tables import LogTable, Row
from lakeward_service_kit.s3_server import S3Server
from lakeward_testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakeward.model.checkpoints import Checkpoint
    from lakeward_e2e.process import ServiceProcess
    from lakeward_e2e.world import World

pytestmark = [pytest.mark.spark, pytest.mark.crash]

LOADS, ROWS = 4, 500
SPLIT_ROWS = 200
_TABLES = f"""
[tables."shop.*"]
max_split_rows = {SPLIT_ROWS}
"""


class StoreWorld:
    """A world whose services keep everything but the source and the catalog in a store."""

    def __init__(self, world: World, server: S3Server) -> None:
        self.world = world
        self._server = server
        self._state = f"s3://{server.new_bucket()}/state"
        self._warehouse = f"s3://{server.new_bucket()}/warehouse"
        self._catalog = f"sqlite:///{world.root}/catalog.db"
        self._properties = {
            "s3.endpoint": f"http://{server.endpoint}",
            "s3.access-key-id": server.options["access_key"],
            "s3.secret-access-key": server.options["secret_key"],
            "s3.region": server.options["region"],
        }
        self.files = SmallFiles(address_of(self._state, server.options))
        self.checkpoints = CheckpointFiles(self.files, SystemClock())
        self._noted = world.faults / "noted"
        self._noted.mkdir()

    def start(self, *arguments: str) -> ServiceProcess:
        config = self.world.configure(checkpoint_keys={"interval_s": 0.5, "pause_s": 0.1})
        self._add_tables(config)
        keys = {"checkpoint.root": self._state, "lake.warehouse": self._warehouse, "lake.uri": self._catalog}
        keys |= {f"lake.properties.{name}": value for name, value in self._properties.items()}
        flags = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
        storage = {f"LAKEWARD_CHECKPOINT__STORAGE__{name.upper()}": text for name, text in self._server.options.items()}
        return self.world.start(config, *flags, *arguments, **storage)

    def newest(self, table: LogTable) -> Checkpoint | None:
        """Return the newest checkpoint of a table; None as well where it was deleted while it was read."""
        info = self.checkpoints.newest("tier", self.world.store.table(table.path).table_id)
        try:
            return None if info is None else self.checkpoints.load(info.ref)
        except CorruptFileError:
            return None

    def rows(self, table: LogTable) -> list[Row]:
        """Return the lake table's rows, sorted."""
        catalog = SqlCatalog("lakeward", uri=self._catalog, warehouse=self._warehouse, **self._properties)
        found = catalog.load_table((table.path.database, table.path.table)).scan().to_arrow()
        catalog.engine.dispose()
        return sorted(zip(*(found.column(name).to_pylist() for name in table.columns), strict=True), key=str)

    def rows_read(self, table: LogTable) -> int:
        """Return how many rows subtasks have read since the last call."""
        file = self._noted / f"rows-read.{table.path.table}"
        read = sum(map(int, file.read_text(encoding="utf-8").split()))
        file.unlink()
        return read

    @staticmethod
    def _add_tables(config: Path) -> None:
        config.write_text(config.read_text(encoding="utf-8") + _TABLES, encoding="utf-8")


@pytest.fixture
def store_world(world: World) -> Iterator[StoreWorld]:
    server = S3Server()
    yield StoreWorld(world, server)
    for process in world.processes:
        process.destroy()
    server.close()


def done_rows(checkpoint: Checkpoint) -> int:
    """Return how many rows the closed files of a checkpoint hold."""
    held = [one.result for part in checkpoint.subtasks for one in part.blocked]
    progress = [one for part in checkpoint.subtasks for one in part.progress]
    round_ = checkpoint.coordinator
    results = sum(one.rows for one in (*round_.finished, *held))
    return results + sum(one.rows for one in (*progress, *round_.progress))


@NOT_IN_GATE
def test_a_killed_service_goes_on_from_its_checkpoint_in_the_store(store_world: StoreWorld) -> None:
    world = store_world.world
    table = LogTable(world.store, "events")
    for _ in range(LOADS):
        table.load(ROWS)
    world.arm("each-write.events", "sleep 0.2", always=True)
    world.hold("before-lake-commit.events")  # however late a checkpoint is seen, it is of a round to go on with
    service = store_world.start()

    def halfway() -> bool:
        newest = store_world.newest(table)
        assert service.alive, service.words()
        return newest is not None and done_rows(newest) >= 2 * SPLIT_ROWS

    wait_until(halfway, "a checkpoint that holds finished splits")
    service.send(signal.SIGKILL)
    assert service.ended() == -signal.SIGKILL
    service.destroy()
    world.disarm("each-write.events")
    world.disarm("before-lake-commit.events")
    checkpoint = store_world.newest(table)
    assert checkpoint is not None
    done, all_rows = done_rows(checkpoint), LOADS * ROWS
    store_world.rows_read(table)

    assert store_world.start("--once").ended() == 0, world.processes[-1].words()

    assert store_world.rows(table) == table.rows()
    assert 2 * SPLIT_ROWS <= done < all_rows
    assert store_world.rows_read(table) == all_rows - done
    assert store_world.checkpoints.list("tier") == ()

    def no_journal() -> bool:
        """The killed start's files are looked for once more after the fence time, at the next start."""
        assert store_world.start("--once").ended() == 0, world.processes[-1].words()
        return store_world.files.names("tier", "journal") == ()

    wait_until(no_journal, "a start after the fence time")
    assert store_world.rows(table) == table.rows()
    assert not (world.root / "state").exists()
