"""A lake table that held commits and is gone is an error, in both modes, until a person accepts the loss."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from lakeward.errors import CorruptFileError
from lakeward.model.settings import TableMode, TableSettings
from lakeward.model.tables import TablePath
from lakeward.storage.commit_records import CommitRecord, CommitRecords
from lakeward.storage.small_files import SmallFiles
from lakeward_source_embedded.source import EmbeddedSource
from lakeward_source_embedded.store import EmbeddedStore

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward.coordinator.service.service import ServiceEnd
    from lakeward_service_kit.service_world import World

PATH = TablePath("t", "log")


def serve(world: World, mode: TableMode, name: str = "svc") -> ServiceEnd:
    world.rules = lambda _path: TableSettings(mode=mode)
    below = EmbeddedSource(EmbeddedStore.open(world.store.root))
    return world.once(name=name, source=below, mirrors=mode == "mirror")


def tier_and_lose(world: World, mode: TableMode) -> None:
    world.table("log")
    world.load(PATH, 0, 100)
    assert serve(world, mode).failed == ()
    shutil.rmtree(world.lake.root)
    world.load(PATH, 100, 10)


def records(world: World, name: str = "svc") -> CommitRecords:
    return CommitRecords(SmallFiles(str(world.directory / "state")), name)


@pytest.mark.parametrize("mode", ["tier", "mirror"])
def test_a_lake_table_that_held_our_commits_and_is_gone_is_an_error_and_nothing_is_created(
    world: World, mode: TableMode
) -> None:
    tier_and_lose(world, mode)
    ((path, reason),) = serve(world, mode).failed
    assert path == PATH
    assert "the lake has no table of that name" in reason
    assert "lakeward tables accept t.log" in reason
    assert not world.lake.root.exists()


@pytest.mark.parametrize("mode", ["tier", "mirror"])
def test_an_empty_lake_table_in_its_place_is_an_error(world: World, mode: TableMode) -> None:
    tier_and_lose(world, mode)
    world.lake.open_table(world.store.table(PATH), world.service_container().components().incarnation)
    ((_, reason),) = serve(world, mode).failed
    assert "has no commit" in reason


@pytest.mark.parametrize("mode", ["tier", "mirror"])
def test_a_lake_table_that_is_brought_back_is_gone_on_with(world: World, mode: TableMode, tmp_path: Path) -> None:
    world.table("log")
    world.load(PATH, 0, 100)
    serve(world, mode)
    shutil.move(world.lake.root, tmp_path / "away")
    world.load(PATH, 100, 10)
    assert serve(world, mode).failed
    shutil.move(tmp_path / "away", world.lake.root)
    assert serve(world, mode).failed == ()
    assert sorted(row["id"] for row in world.lake.read(PATH)) == list(range(110))


def test_what_the_source_has_on_record_counts_where_the_services_own_state_is_lost(world: World) -> None:
    tier_and_lose(world, "tier")
    ((_, reason),) = serve(world, "tier", "another").failed
    assert "the source has lake snapshot" in reason


def test_a_record_that_a_crash_kept_from_being_written_is_written_at_the_next_opening(world: World) -> None:
    tier = world.table("log")
    world.load(tier, 0, 100)
    serve(world, "mirror")
    table_id = world.store.table(PATH).table_id
    was = records(world).read(table_id)
    records(world).delete(table_id)
    serve(world, "mirror")
    world.load(tier, 100, 1)
    records(world).delete(table_id)
    world.load(tier, 101, 1)
    serve(world, "mirror")
    now = records(world).read(table_id)
    assert was is not None
    assert now is not None
    assert (sum(was.offsets.values()), sum(now.offsets.values())) == (100, 102)


def test_the_record_of_a_table_that_was_dropped_is_deleted_at_the_next_start(world: World) -> None:
    world.table("log")
    world.load(PATH, 0, 10)
    serve(world, "tier")
    (record,) = records(world).list()
    world.store.drop_table(PATH)
    serve(world, "tier")
    assert record.path == PATH
    assert records(world).list() == ()


def test_a_damaged_record_names_its_file(tmp_path: Path) -> None:
    store = CommitRecords(SmallFiles(str(tmp_path)), "svc")
    record = CommitRecord(PATH, 7, 5, ((None, 0, 3), (4, 1, 2)), 1, disregarded=9)
    store.write(record)
    assert store.read(7) == record
    assert store.list() == (record,)
    file = tmp_path / "svc" / "committed" / "7"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CorruptFileError, match="committed/7"):
        store.read(7)


@pytest.mark.parametrize("mode", ["tier", "mirror"])
def test_a_table_whose_loss_was_accepted_is_tiered_anew(world: World, mode: TableMode) -> None:
    tier_and_lose(world, mode)
    assert serve(world, mode).failed
    spec, at_source = world.store.table(PATH), EmbeddedSource(world.store).lake_record(world.store.table(PATH))
    disregarded = None if at_source is None else at_source.snapshot_id
    records(world).write(CommitRecord(PATH, spec.table_id, None, (), 0, disregarded))
    assert serve(world, mode).failed == ()
    assert sorted(row["id"] for row in world.lake.read(PATH)) == list(range(110))
    record = records(world).read(spec.table_id)
    assert record is not None
    assert sum(record.offsets.values()) == 110
