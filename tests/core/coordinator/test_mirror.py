"""Mirror mode: any table reaches a lake table of our own, and the source is told nothing."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from lakeward.coordinator.rounds.mirroring import lake_tables
from lakeward.model.settings import TableSettings
from lakeward.model.tables import TablePath
from lakeward_source_embedded.source import EmbeddedSource
from lakeward_source_embedded.store import EmbeddedStore

if TYPE_CHECKING:
    from lakeward.coordinator.service.service import ServiceEnd
    from lakeward.model.settings import SchemaChange
    from lakeward_service_kit.service_world import World

OFF = {"table.datalake.enabled": "false"}


def _same_rules(rules: TableSettings, _: TablePath) -> TableSettings:
    return rules


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


@pytest.mark.parametrize("fields", [(), ("bucket(2, id)",)], ids=["layout of the source", "partitioned"])
def test_columns_that_are_left_out_are_in_no_file_and_come_with_later_rows_once_they_are_wanted(
    world: World, fields: tuple[str, ...]
) -> None:
    path = TablePath("t", "log")
    columns = [("id", pa.int64()), ("name", pa.string()), ("card", pa.string())]
    spec = world.store.create_table(path, pa.schema(columns), buckets=1, properties=OFF)
    assert spec.path == path
    found: list[list[dict[str, Any]]] = []
    choices: list[tuple[str, ...]] = [("!card",), ()]
    for number, wanted in enumerate(choices):
        rules = TableSettings(mode="mirror", columns=wanted, lake_partition=fields)
        world.store.load(path, pa.Table.from_pylist([{"id": number, "name": "n", "card": "4711"}]))
        world.rules = partial(_same_rules, rules)
        assert world.once(source=EmbeddedSource(EmbeddedStore.open(world.store.root)), mirrors=True).failed == ()
        found.append(sorted(world.lake.read(path), key=lambda row: row["id"]))
    first, second = found
    assert [row.get("card") for row in first] == [None]
    assert "card" not in first[0]
    assert [row.get("card") for row in second] == [None, "4711"]


def test_a_new_column_is_let_in_left_out_or_suspends_its_table_as_the_contract_says(world: World) -> None:
    path = TablePath("t", "log")
    world.store.create_table(path, pa.schema([("id", pa.int64())]), buckets=1, properties=OFF)

    def round_under(contract: SchemaChange, **row: object) -> ServiceEnd:
        world.store.load(path, pa.Table.from_pylist([row]))
        rules = TableSettings(mode="mirror", schema={"columns": contract})
        world.rules = partial(_same_rules, rules)
        return world.once(source=EmbeddedSource(EmbeddedStore.open(world.store.root)), mirrors=True)

    assert round_under("freeze", id=1).failed == ()
    world.store.add_column(path, pa.field("note", pa.string()))
    suspended = round_under("freeze", id=2, note="b")
    ((failed, why),) = suspended.failed
    assert failed == path
    assert """tables."t.log".schema.columns = 'freeze', found note""" in why
    assert round_under("discard_value", id=3, note="c").failed == ()
    assert sorted((row["id"], row.get("note")) for row in world.lake.read(path)) == [(1, None), (2, None), (3, None)]
    assert round_under("evolve", id=4, note="d").failed == ()
    assert sorted((row["id"], row.get("note")) for row in world.lake.read(path))[3:] == [(4, "d")]


def test_a_key_tables_snapshot_and_its_log_have_the_wanted_columns_alone(world: World) -> None:
    keyed = world.table("keyed", key=True, properties=OFF)
    names = set(world.store.table(keyed).schema.names)
    world.load(keyed, 0, 10)
    world.store.snapshot(keyed)
    for start in (10, 20):
        world.load(keyed, start, 5)
        world.rules = lambda _: TableSettings(mode="mirror", columns=("id",))
        assert world.once(source=EmbeddedSource(EmbeddedStore.open(world.store.root)), mirrors=True).failed == ()
    rows = world.lake.read(keyed, key="id")
    assert len(rows) == 20
    assert all(not (names - {"id"}) & row.keys() for row in rows)


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


def test_a_start_that_serves_no_table_says_that_they_can_be_mirrored(world: World) -> None:
    world.table("log", properties=OFF)
    with capture_logs() as lines:
        assert lake_tables(EmbeddedSource(world.store), lambda _: TableSettings(), mirrors=False) == []
    (said,) = [line["reason"] for line in lines if line["event"] == "there is nothing to do"]
    assert 'set mode = "mirror" in [tables."t.*"]' in said
