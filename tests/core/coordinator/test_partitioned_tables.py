"""Tables with a lake partitioning, without an exchange: from the embedded source to the folder lake."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward.model.settings import TableSettings
from lakeward_source_embedded.source import EmbeddedSource
from lakeward_source_embedded.store import EmbeddedStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.coordinator.service.service import ServiceEnd
    from lakeward.model.tables import TablePath
    from lakeward_service_kit.service_world import World


def tier_once(world: World, *fields: str, **options: object) -> ServiceEnd:
    rules = TableSettings(mode="mirror", lake_partition=fields, exchange="none")
    world.rules = lambda _: rules
    below = EmbeddedSource(EmbeddedStore.open(world.store.root))
    return world.once(source=below, mirrors=True, **options)


def upsert(world: World, path: TablePath, *rows: tuple[int, str]) -> None:
    ids, names = zip(*rows, strict=True)
    world.store.load(path, pa.table({"id": ids, "name": names}, schema=world.store.table(path).schema))


def partitions(world: World, path: TablePath) -> dict[str, list[object]]:
    """The partitions of the files that were committed, as `layout` names them."""
    state = json.loads((world.lake.root / f"{path}.json").read_text(encoding="utf-8"))
    details = [detail for entry in state["log"] for detail in entry.get("details", {}).values()]
    found: dict[str, list[object]] = {}
    for detail in details:
        layout, values = json.loads(detail)
        found.setdefault(", ".join(layout), []).append(values)
    return found


def ids(rows: Sequence[dict[str, object]]) -> list[int]:
    return sorted(int(str(row["id"])) for row in rows)


def test_rows_of_an_append_only_table_lie_in_their_partitions(world: World) -> None:
    log = world.table("log")
    upsert(world, log, *((number, "abc"[number % 3]) for number in range(30)))

    assert tier_once(world, "name", "bucket(2, id)").failed == ()

    assert ids(world.lake.read(log)) == list(range(30))
    assert {values[0] for values in partitions(world, log)["name, bucket(2, id)"]} == {"a", "b", "c"}  # type: ignore[index]


def test_an_update_moves_a_row_to_another_partition_in_one_commit(world: World) -> None:
    keyed = world.table("keyed", key=True)
    upsert(world, keyed, (1, "a"), (2, "a"), (3, "b"))
    tier_once(world, "name")
    upsert(world, keyed, (1, "b"), (3, "b"))

    assert tier_once(world, "name").failed == ()

    assert sorted((row["id"], row["name"]) for row in world.lake.read(keyed, "id")) == [(1, "b"), (2, "a"), (3, "b")]


def test_rows_of_a_snapshot_and_of_the_log_after_it_lie_in_their_partitions(world: World) -> None:
    keyed = world.table("keyed", key=True)
    upsert(world, keyed, (1, "a"), (2, "a"), (3, "b"))
    world.store.snapshot(keyed)
    upsert(world, keyed, (1, "c"), (2, "b"))

    assert tier_once(world, "name").failed == ()

    assert sorted((row["id"], row["name"]) for row in world.lake.read(keyed, "id")) == [(1, "c"), (2, "b"), (3, "b")]


def test_a_table_with_data_can_get_another_layout(world: World) -> None:
    log = world.table("log")
    upsert(world, log, (1, "a"), (2, "b"))
    tier_once(world, "name")
    upsert(world, log, (3, "c"))

    assert tier_once(world, "bucket(2, id)").failed == ()

    assert ids(world.lake.read(log)) == [1, 2, 3]
    assert set(partitions(world, log)) == {"name", "bucket(2, id)"}


def test_a_layout_that_the_columns_do_not_allow_fails_the_table_with_the_keys_name(world: World) -> None:
    log = world.table("log")
    upsert(world, log, (1, "a"))

    ((path, reason),) = tier_once(world, "day(name)").failed

    assert path == log
    assert 'tables."t.log".lake_partition: expected for day a date or timestamp' in reason
    assert world.lake.head(log) is None
