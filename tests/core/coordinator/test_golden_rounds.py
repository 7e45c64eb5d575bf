"""Rounds that a service of commit 7e3f9db began, and was killed in, go on in a service of this release."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from msgspec import structs
from structlog.testing import capture_logs

from lakeward.clock import SystemClock
from lakeward.coordinator.state.state_writer import ServiceStateWriter
from lakeward.hooks.backend import LeaseBackend
from lakeward.model.identity import Incarnation
from lakeward.model.settings import TableSettings
from lakeward.model.tables import TablePath
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.storage.round_journal import JournalStore
from lakeward.storage.service_state import ServiceStateStore
from lakeward.storage.small_files import SmallFiles
from lakeward.subtask.run import run_subtask
from lakeward_service_kit.golden import unpack_world
from lakeward_service_kit.jobs import ThreadJobs
from lakeward_service_kit.service_world import LaterClock, PlainBackend, World, told
from lakeward_source_embedded.source import EmbeddedSource
from lakeward_source_embedded.store import EmbeddedStore
from lakeward_testing.folder_lake import FolderLake

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from lakeward.model.checkpoints import Checkpoint, SubtaskSnapshot
    from lakeward_lake_iceberg.options import IcebergOptions
    from lakeward_lake_iceberg.plugin import IcebergLakePlugin
    from lakeward_lease_fluss.backend import FlussLeases
    from lakeward_lease_noop.backend import NoLeases
else:
    WHY = "the rounds were begun with these plugins; the environment `all` has them"
    IcebergOptions = pytest.importorskip("lakeward_lake_iceberg.options", reason=WHY).IcebergOptions
    IcebergLakePlugin = pytest.importorskip("lakeward_lake_iceberg.plugin", reason=WHY).IcebergLakePlugin
    FlussLeases = pytest.importorskip("lakeward_lease_fluss.backend", reason=WHY).FlussLeases
    NoLeases = pytest.importorskip("lakeward_lease_noop.backend", reason=WHY).NoLeases

LOG, KEYED = TablePath("t", "log"), TablePath("t", "keyed")
PARTITIONED = ("bucket(3, id)",)


class OldWorld:
    """What a killed service left, and a service of this release that takes it over."""

    def __init__(self, name: str, rules: TableSettings, backend: LeaseBackend) -> None:
        unpack_world(name, Path())
        self.world = World(Path(), EmbeddedStore.open("store"), FolderLake(Path("lake")), PlainBackend())
        self.world.rules = lambda _: rules
        self.files = SmallFiles("state")
        self.backend = backend
        self.logs: list[MutableMapping[str, Any]] = []
        self.checkpoints = CheckpointFiles(self.files, self.world.clock)

    def newest(self) -> Checkpoint:
        info = self.checkpoints.newest("svc", 1)
        assert info is not None
        return self.checkpoints.load(info.ref)

    def take_over(self, **options: Any) -> None:  # noqa: ANN401 - fields of any type
        """Run a service of the same name until its table is in the lake."""
        clock, start = self.world.clock, Incarnation("svc", self.world.clock.wall_ms(), "f" * 16)
        source = EmbeddedSource(EmbeddedStore.open("store"))
        state = ServiceStateWriter(ServiceStateStore(self.files), start, self.backend.name, clock)
        service = self.world.service(
            incarnation=start,
            source=source,
            mirrors=True,
            state=state,
            backend=self.backend,
            jobs=ThreadJobs(run_subtask, slots=3),
            once=True,
            **options,
        )
        with capture_logs() as self.logs:
            assert asyncio.run(service.serve()).failed == ()

    def went_on_from(self) -> list[str]:
        """Return the checkpoints that rounds went on from, as records and log lines say."""
        said = [line["checkpoint"] for line in self.logs if line["event"] == "the round goes on from a checkpoint"]
        assert [one.resumed_from for one in self.world.rounds if one.resumed_from] == said
        return said

    def check(self, path: TablePath, rows: int) -> None:
        """Each row is there once, later ones too, and nothing is left over of a round."""
        assert told(self.logs, "warning", "error") == []
        assert sorted(row["id"] for row in self.world.lake.read(path)) == list(range(rows))
        on_disk = self.world.lake.files_on_disk(path)
        assert on_disk == set(self.world.lake.referenced(path, on_disk))
        assert self.checkpoints.list("svc") == ()
        for clock in (
            SystemClock(),
            LaterClock(),
        ):  # a killed service might write for so long after its files are swept
            self.world.clock = clock
            self.world.load(path, rows, 20)
            rows += 20
            self.take_over()
        assert sorted(row["id"] for row in self.world.lake.read(path)) == list(range(rows))
        assert JournalStore(self.files, "svc").list() == ()


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., OldWorld]:
    """Make the world of a golden folder. The paths that the killed service stored are relative to where it ran."""
    monkeypatch.chdir(tmp_path)

    def make(name: str, *, backend: LeaseBackend | None = None, **rules: Any) -> OldWorld:  # noqa: ANN401 - as above
        return OldWorld(name, TableSettings(**rules), backend or LeaseBackend("noop", NoLeases()))

    return make


def kept_files(checkpoint: Checkpoint, count: int) -> set[str]:
    """Return the files that hold what a round had done: a round that began anew would commit others."""
    found = {file.path for part in checkpoint.subtasks for one in part.progress for file in one.files}
    assert len(found) == count
    return found


def test_a_round_of_a_log_table_goes_on(old: Callable[..., OldWorld]) -> None:
    world = old("log")
    checkpoint = world.newest()
    world.take_over()
    assert world.went_on_from() == [str(checkpoint.ref)]
    world.check(LOG, 120)
    assert kept_files(checkpoint, 2) <= world.world.lake.files_on_disk(LOG)


def test_a_round_of_kv_snapshots_goes_on_under_its_lease(old: Callable[..., OldWorld]) -> None:
    world = old("keyed", backend=LeaseBackend("fluss", FlussLeases()))
    checkpoint = world.newest()
    world.take_over()
    assert world.went_on_from() == [str(checkpoint.ref)]
    world.check(KEYED, 120)
    assert kept_files(checkpoint, 2) <= world.world.lake.files_on_disk(KEYED)
    assert [lease for lease in world.world.store.leases() if lease.held] == []


def test_a_round_of_a_partitioned_table_goes_on(old: Callable[..., OldWorld]) -> None:
    world = old("partitioned", mode="mirror", lake_partition=PARTITIONED, exchange="none")
    checkpoint = world.newest()
    world.take_over(open_rows=0)
    assert world.went_on_from() == [str(checkpoint.ref)]
    world.check(LOG, 120)
    assert kept_files(checkpoint, 6) <= world.world.lake.files_on_disk(LOG)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["exchange", "recovering"])
def test_a_round_with_an_exchange_goes_on(old: Callable[..., OldWorld], name: str) -> None:
    """Its readers had come to the end of two of three splits: their rows are in channels and open files alone."""
    world = old(name, mode="mirror", lake_partition=PARTITIONED)
    checkpoint = world.newest()
    world.take_over()
    assert world.went_on_from() == [str(checkpoint.ref)]
    world.check(LOG, 180)


def test_a_commit_that_was_not_sent_is_made_anew(old: Callable[..., OldWorld]) -> None:
    world = old("unsent")
    world.take_over()
    world.check(LOG, 120)


def test_a_commit_that_landed_unheard_is_not_made_twice(old: Callable[..., OldWorld]) -> None:
    world = old("landed")
    before = world.world.lake.files_on_disk(LOG)
    world.take_over()
    assert world.world.lake.files_on_disk(LOG) == before
    world.check(LOG, 120)


MADE_IN = "/golden/iceberg"
"""Iceberg's paths are absolute: this is where the killed service ran."""


def move_here(old: OldWorld) -> None:
    """Let all that names a path of the warehouse name the one below the working directory."""

    def moved(text: str) -> str:
        return text.replace(MADE_IN, str(Path.cwd()))

    for metadata in Path("warehouse").rglob("*.metadata.json"):
        metadata.write_text(moved(metadata.read_text(encoding="utf-8")), encoding="utf-8")
    with closing(sqlite3.connect("warehouse/catalog.db")) as sql, sql:
        ((location,),) = sql.execute("SELECT metadata_location FROM iceberg_tables").fetchall()
        sql.execute("UPDATE iceberg_tables SET metadata_location = ?", (moved(location),))
    journals = JournalStore(old.files, "svc")
    for journal in journals.list():
        journals.write(structs.replace(journal, file_prefix=moved(journal.file_prefix)))

    def moved_part(part: SubtaskSnapshot) -> SubtaskSnapshot:
        progress = tuple(
            structs.replace(one, files=tuple(structs.replace(file, path=moved(file.path)) for file in one.files))
            for one in part.progress
        )
        return structs.replace(part, progress=progress)

    found = old.newest()
    parts = [old.checkpoints.write_part(found.ref, moved_part(part)) for part in found.subtasks]
    old.checkpoints.complete(found.ref, found.coordinator, parts, found.lease)


def test_a_round_of_an_iceberg_table_goes_on(old: Callable[..., OldWorld]) -> None:
    """What the files' writers had said of them is in the checkpoint alone."""
    world = old("iceberg")
    move_here(world)
    checkpoint = world.newest()
    options = IcebergOptions(warehouse=str(Path("warehouse").absolute()), target_file_size_bytes=1)
    lake = IcebergLakePlugin().open(options, world.world.clock)
    world.take_over(lake=lake, lake_type="iceberg")
    assert world.went_on_from() == [str(checkpoint.ref)]
    files = [str(file) for file in Path("warehouse").absolute().rglob("*.parquet")]
    named = {name.removeprefix("file://") for name in lake.referenced(LOG, [f"file://{file}" for file in files])}
    assert named == {*files}
    assert {path.removeprefix("file://") for path in kept_files(checkpoint, 2)} < named
    assert sorted(number for file in files for number in pq.read_table(file)["id"].to_pylist()) == list(range(120))
    lake.close()
