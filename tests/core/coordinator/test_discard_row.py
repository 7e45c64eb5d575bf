"""Rows with a value in a column that the contract does not let in are bad rows, and all others are tiered."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakeward.errors import RowError
from lakeward.model.dead_letters import path_of
from lakeward.model.settings import TableSettings
from lakeward.model.tables import TablePath
from lakeward_service_kit.replaying import replay
from lakeward_source_embedded.source import EmbeddedSource
from lakeward_source_embedded.store import EmbeddedStore

if TYPE_CHECKING:
    from lakeward_service_kit.service_world import World

LAYOUTS = pytest.mark.parametrize(
    "layout",
    [{}, *({"lake_partition": ("truncate(10, id)",), "exchange": route} for route in ("none", "hash"))],
    ids=["split writer", "fan-out", "exchange"],
)
PATH = TablePath("t", "rows")


def under(world: World, contract: str, layout: dict[str, object], on_bad_row: str = "dead_letter") -> None:
    """Tier under a contract of columns."""
    keys: dict[str, Any] = {"mode": "mirror", "on_bad_row": on_bad_row, "schema": {"columns": contract}, **layout}
    world.rules = partial(_same, TableSettings(**keys))


def _same(rules: TableSettings, _path: TablePath) -> TableSettings:
    return rules


def once(world: World) -> None:
    source = EmbeddedSource(EmbeddedStore.open(world.store.root))
    assert world.once(source=source, mirrors=True).failed == ()


def add_notes(world: World) -> None:
    """Add a column to a table with the rows 0 and 1, and load rows of which each second one has a value there."""
    world.store.load(PATH, pa.Table.from_pylist([{"id": 0, "name": "a"}, {"id": 1, "name": "b"}]))
    once(world)
    world.store.add_column(PATH, pa.field("note", pa.string()))
    rows = [{"id": one, "name": "c", "note": "n" if one % 2 else None} for one in range(2, 8)]
    world.store.load(PATH, pa.Table.from_pylist(rows))
    once(world)


def ids(world: World) -> list[int]:
    return sorted(row["id"] for row in world.lake.read(PATH))


@LAYOUTS
@pytest.mark.parametrize("key", [False, True], ids=["append", "keyed"])
def test_rows_with_a_value_in_a_new_column_are_dead_letters_and_go_in_once_the_contract_lets_it_in(
    world: World, layout: dict[str, object], *, key: bool
) -> None:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
    world.store.create_table(PATH, columns, ("id",) if key else (), buckets=1, freshness_s=0.2)
    under(world, "discard_row", layout)
    add_notes(world)
    assert ids(world) == [0, 1, 2, 4, 6]
    assert all("note" not in row for row in world.lake.read(PATH))
    letters = sorted(world.lake.read(path_of(PATH)), key=lambda row: int(row["offset"]))
    assert [(row["offset"], row["column_name"], row["code"]) for row in letters] == [
        (one, "note", RowError.code) for one in (3, 5, 7)
    ]
    assert "column 'note': expected null, as the table's contract lets no new column in" in letters[0]["cause"]
    assert pa.ipc.open_stream(letters[0]["row"]).read_all().column("note").to_pylist() == ["n"]
    under(world, "evolve", layout)
    replay(world, PATH, lambda: not world.lake.read(path_of(PATH)))
    assert sorted((row["id"], row.get("note")) for row in world.lake.read(PATH)) == [
        (one, "n" if one in {3, 5, 7} else None) for one in range(8)
    ]


@LAYOUTS
def test_they_are_dropped_where_bad_rows_are(world: World, layout: dict[str, object]) -> None:
    columns = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string())])
    world.store.create_table(PATH, columns, buckets=1, freshness_s=0.2)
    under(world, "discard_row", layout, "drop")
    add_notes(world)
    assert ids(world) == [0, 1, 2, 4, 6]
    assert world.rounds[-1].dropped == 3


def test_a_row_of_a_snapshot_with_a_value_in_a_new_column_is_a_dead_letter_too(world: World) -> None:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
    world.store.create_table(PATH, columns, ("id",), buckets=2, freshness_s=0.2)
    under(world, "discard_row", {})
    once(world)
    world.lake.open_table(world.store.table(PATH), world.container.incarnation())
    world.store.add_column(PATH, pa.field("note", pa.string()))
    world.store.load(
        PATH, pa.Table.from_pylist([{"id": 1, "name": "a", "note": None}, {"id": 2, "name": "a", "note": "n"}])
    )
    world.store.snapshot(PATH)
    once(world)
    assert ids(world) == [1]
    (letter,) = world.lake.read(path_of(PATH))
    assert (letter["offset"], letter["column_name"]) == (-1, "note")
