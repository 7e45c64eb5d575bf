"""Mirror mode: any table reaches a lake table of our own, and the source is told nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from structlog.testing import capture_logs

from lakeward.model.settings import TableSettings
from lakeward_source_embedded.source import EmbeddedSource
from lakeward_source_embedded.store import EmbeddedStore

if TYPE_CHECKING:
    from lakeward.coordinator.service.service import ServiceEnd
    from lakeward.model.tables import TablePath
    from lakeward_service_kit.service_world import World

OFF = {"table.datalake.enabled": "false"}


def mirror_once(world: World, *mirrored: TablePath) -> ServiceEnd:
    world.rules = lambda path: TableSettings(mode="mirror" if path in mirrored else "tier")
    below = EmbeddedSource(EmbeddedStore.open(world.store.root))
    return world.once(source=below, mirrors=True)


def test_a_table_without_a_lake_is_mirrored_and_the_source_hears_nothing(world: World) -> None:
    log = world.table("log", properties=OFF)
    world.load(log, 0, 100)
    assert mirror_once(world, log).failed == ()
    assert sorted(row["id"] for row in world.lake.read(log)) == list(range(100))
    source = EmbeddedSource(world.store)
    assert source.lake_record(source.table(log)) is None
    assert not (world.store.root / "lake").exists() or not list((world.store.root / "lake").rglob("*.offsets"))


def test_a_second_run_goes_on_from_the_offsets_in_the_lake(world: World) -> None:
    log = world.table("log", properties=OFF)
    world.load(log, 0, 100)
    mirror_once(world, log)
    world.load(log, 100, 50)
    mirror_once(world, log)
    assert sorted(row["id"] for row in world.lake.read(log)) == list(range(150))


def test_a_mirrored_table_has_no_record_in_the_source_that_could_be_repaired(world: World) -> None:
    log = world.table("log", properties=OFF)
    world.load(log, 0, 100)
    mirror_once(world, log)
    world.load(log, 100, 50)
    with capture_logs() as lines:
        mirror_once(world, log)
    assert [line["event"] for line in lines if "lake record" in line["event"]] == []


def test_leases_protect_a_mirrored_tables_snapshots(world: World) -> None:
    keyed = world.table("keyed", key=True, properties=OFF)
    world.load(keyed, 0, 100)
    world.store.snapshot(keyed)
    seen: list[int] = []
    world.lake.before_commit = lambda _: seen.append(sum(len(lease.held) for lease in world.store.leases()))
    mirror_once(world, keyed)
    assert seen == [2]
    assert len(world.lake.read(keyed, key="id")) == 100


def test_both_modes_go_side_by_side(world: World) -> None:
    mirrored, tiered = world.table("mirrored", properties=OFF), world.table("tiered")
    world.load(mirrored, 0, 10)
    world.load(tiered, 0, 20)
    assert mirror_once(world, mirrored).failed == ()
    source = EmbeddedSource(world.store)
    assert len(world.lake.read(mirrored)) == 10
    assert len(world.lake.read(tiered)) == 20
    assert source.lake_record(source.table(tiered)) is not None


def test_a_commit_of_a_mirrored_table_names_no_offsets_file_of_the_source(world: World) -> None:
    log = world.table("log", properties=OFF)
    world.load(log, 0, 10)
    paths: list[str | None] = []
    world.lake.before_commit = lambda request: paths.append(request.source_path)
    mirror_once(world, log)
    assert paths == [None]


def test_a_run_to_the_end_of_no_table_says_that_they_can_be_mirrored(world: World) -> None:
    world.table("log", properties=OFF)
    with capture_logs() as lines:
        world.once()
    (said,) = [line["reason"] for line in lines if line["event"] == "there is nothing to do"]
    assert 'set mode = "mirror" in [tables."t.*"]' in said
