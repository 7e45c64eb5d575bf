"""Rows that neither Iceberg nor Paimon can hold are dead letters in the same lake, and can be read back."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakeward.cli.main import run
from lakeward.coordinator.rounds.mirroring import as_configured
from lakeward.model.column_ids import lake_columns
from lakeward.model.dead_letters import SCHEMA, path_of, table_of
from lakeward.model.identity import REPLAY, Incarnation
from lakeward.model.results import RewriteRequest
from lakeward.model.settings import TableSettings
from lakeward.model.tables import TablePath
from lakeward_e2e.lakes import IcebergTables, PaimonTables
from lakeward_ops.verify.comparison import KINDS
from lakeward_ops.verify.verification import Sides, Verification, VerifyOptions, verify_table
from lakeward_service_kit.replaying import asked, replay
from lakeward_service_kit.service_world import World, let_writes_end
from lakeward_source_embedded.reader import EmbeddedReader
from lakeward_source_embedded.source import EmbeddedSource
from lakeward_source_embedded.store import EmbeddedStore
from lakeward_testing.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from lakeward.model.results import CommitOutcome, CommitRequest

ROWS = 50
BAD = [4, 30]
COLUMNS = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string()), pa.field("at", pa.timestamp("ms"))]
)


def load(world: World, path: TablePath, start: int, *, at: int | None) -> None:
    """Load rows of which some have a text that is none, and one a time beyond the lake's microseconds."""
    ids = range(start, start + ROWS)
    names = pa.array([b"\xff" if number - start == BAD[0] else b"a" for number in ids], pa.binary()).view(pa.string())
    times = pa.array([at if at and number - start == BAD[1] else 0 for number in ids], pa.timestamp("ms"))
    world.store.load(path, pa.table([pa.array(ids, pa.int64()), names, times], schema=COLUMNS))


def rows(lake: Any, path: TablePath) -> list[dict[str, Any]]:  # noqa: ANN401 - a lake that can be read
    head = lake.head(path)
    return [row for batch in lake.read_rows(path, head.snapshot_id) for row in batch.to_pylist()]


@pytest.mark.parametrize(("tables", "at"), [(IcebergTables, 2**60), (PaimonTables, None)], ids=["iceberg", "paimon"])
@pytest.mark.parametrize("key", [False, True], ids=["append", "keyed"])
@pytest.mark.parametrize("layout", [(), ("bucket(4, id)",)], ids=["as in the source", "partitioned"])
def test_rows_that_a_lake_cannot_hold_are_in_the_table_of_its_dead_letters(
    tmp_path: Path, tables: type[IcebergTables | PaimonTables], at: int | None, layout: tuple[str, ...], *, key: bool
) -> None:
    """Paimon's timestamps are those of the source: there every one fits."""
    world, path = World.create(tmp_path), TablePath("t", "bad")
    keys = ("id",) if key else ()
    world.store.create_table(path, COLUMNS, keys, buckets=1, freshness_s=0.2)
    rules = TableSettings(mode="mirror", lake_partition=layout, on_bad_row="dead_letter")
    world.rules = lambda _path: rules
    made = tables(tmp_path)
    lake = made.open(world.clock)
    for start in (0, ROWS):
        load(world, path, start, at=at)
        assert world.once(mirrors=True, lake=lake, lake_type=made.name).failed == ()
    places = BAD if at else BAD[:1]
    bad = [start + row for start in (0, ROWS) for row in places]
    assert sorted(row["id"] for row in rows(lake, path)) == [row for row in range(2 * ROWS) if row not in bad]
    letters = sorted(rows(lake, path_of(path)), key=lambda row: int(row["offset"]))
    assert [row["offset"] for row in letters] == bad
    assert [row["column_name"] for row in letters] == ["name", "at"][: len(places)] * 2
    assert set(letters[0]) == set(SCHEMA.names)
    last = pa.ipc.open_stream(letters[len(places) - 1]["row"]).read_all()
    assert last.column("at").cast(pa.int64()).to_pylist() == [at or 0]
    assert last.column("name").cast(pa.binary()).to_pylist() == [b"a" if at else b"\xff"]
    found = verified(world, lake, path)
    assert (found.comparison.counts, found.dead_letters) == (dict.fromkeys(KINDS, 0), len(bad))
    assert found.comparison.lake_rows == 2 * ROWS - len(bad)
    lake.close()


def verified(world: World, lake: Any, path: TablePath) -> Verification:  # noqa: ANN401 - a lake that can be read
    source = EmbeddedSource(EmbeddedStore.open(world.store.root))
    table, head, letters = (
        as_configured(source.table(path), world.rules(path)),
        lake.head(path),
        lake.head(path_of(path)),
    )
    table = replace(table, lake_columns=lake_columns(table.schema, head.by_id))
    reader = EmbeddedReader(world.store.root, table)
    sides = Sides(source, reader, lake, table, head, head.commit.offsets, letters.snapshot_id)
    folder = world.directory / "verify"
    folder.mkdir()
    return verify_table(sides, VerifyOptions(folder, available=False, most=10, memory_bytes=1 << 20))


@pytest.mark.parametrize("tables", [IcebergTables, PaimonTables], ids=["iceberg", "paimon"])
@pytest.mark.parametrize("key", [False, True], ids=["append", "keyed"])
@pytest.mark.parametrize("layout", [(), ("bucket(4, id)",)], ids=["as in the source", "partitioned"])
def test_rows_are_put_into_a_lake_once_they_fit_and_never_before_a_newer_version_of_their_key(
    tmp_path: Path, tables: type[IcebergTables | PaimonTables], layout: tuple[str, ...], *, key: bool
) -> None:
    world, path = World.create(tmp_path), TablePath("t", "bad")
    world.store.create_table(path, COLUMNS, ("id",) if key else (), buckets=2, freshness_s=0.2)
    world.rules = partial(mirrored, layout, ())
    made = tables(tmp_path)
    lake = made.open(world.clock)
    load(world, path, 0, at=None)
    load(world, path, ROWS, at=None)
    assert world.once(mirrors=True, lake=lake, lake_type=made.name).failed == ()
    if key:
        values = [pa.array([BAD[0]], pa.int64()), pa.array(["b"]), pa.array([0], pa.timestamp("ms"))]
        world.store.load(path, pa.table(values, schema=COLUMNS))
        assert world.once(mirrors=True, lake=lake, lake_type=made.name).failed == ()
    before = len(rows(lake, path_of(path)))
    world.rules = partial(mirrored, layout, ("!name",))
    options: dict[str, Any] = {"lake": lake, "lake_type": made.name}
    replay(world, path, lambda: len(rows(lake, path_of(path))) < before, options)
    found = {row["id"]: row["name"] for row in rows(lake, path)}
    assert sorted(row["id"] for row in rows(lake, path)) == list(range(2 * ROWS))
    assert found[BAD[0]] == ("b" if key else None)
    assert found[ROWS + BAD[0]] is None
    left = rows(lake, path_of(path))
    assert {row["code"] for row in left} == ({"LW-414"} if key else set())
    checked = verified(world, lake, path)
    assert (checked.comparison.counts, checked.dead_letters) == (dict.fromkeys(KINDS, 0), len(left))
    load(world, path, 2 * ROWS, at=None)
    assert world.once(mirrors=True, **options).failed == ()
    assert len(rows(lake, path)) == 3 * ROWS
    lake.close()


def mirrored(layout: tuple[str, ...], columns: tuple[str, ...], _path: TablePath) -> TableSettings:
    """Return the rules of a table whose lake has these columns."""
    return TableSettings(mode="mirror", lake_partition=layout, on_bad_row="dead_letter", columns=columns)


@pytest.mark.parametrize("tables", [IcebergTables, PaimonTables], ids=["iceberg", "paimon"])
def test_dead_letters_are_deleted_by_column_code_and_time_once_somebody_says_yes(
    tmp_path: Path,
    tables: type[IcebergTables | PaimonTables],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    world, path = World.create(tmp_path), TablePath("t", "bad")
    world.store.create_table(path, COLUMNS, (), buckets=1, freshness_s=0.2)
    world.rules = partial(mirrored, (), ())
    made = tables(tmp_path)
    lake = made.open(world.clock)
    for start in (0, ROWS):
        load(world, path, start, at=None)
        assert world.once(mirrors=True, lake=lake, lake_type=made.name).failed == ()
    config = tmp_path / "lakeward.toml"
    source = f'[source]\ntype = "embedded"\npath = "{world.store.root}"\n'
    config.write_text(f'{source}[lake]\ntype = "{made.name}"\nwarehouse = "{made.warehouse}"\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    def delete(*words: str) -> tuple[int, int]:
        _ = capsys.readouterr()
        code = run(["deadletters", "delete", "t.bad", *words, "-o", "json"])
        return code, json.loads(capsys.readouterr().out)["deleted"]

    assert delete("--yes", "--column", "at") == (0, 0)
    assert delete("--yes", "--code", "LW-999") == (0, 0)
    assert delete("--yes", "--before", "2001-01-01") == (0, 0)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert delete("--column", "name") == (1, 0)
    assert len(rows(lake, path_of(path))) == 2
    assert delete("--yes", "--column", "name", "--code", "LW-406", "--before", "2999-01-01") == (0, 2)
    assert rows(lake, path_of(path)) == []
    load(world, path, 2 * ROWS, at=None)
    assert world.once(mirrors=True, lake=lake, lake_type=made.name).failed == ()
    assert [row["offset"] for row in rows(lake, path_of(path))] == [2 * ROWS + BAD[0]]
    lake.close()


@pytest.mark.parametrize("tables", [IcebergTables, PaimonTables], ids=["iceberg", "paimon"])
@pytest.mark.parametrize("key", [False, True], ids=["append", "keyed"])
@pytest.mark.parametrize(
    ("old", "new", "fits", "large"),
    [
        (pa.int32(), pa.int64(), 2**31 - 1, 2**31),
        (pa.float32(), pa.float64(), 0.5, 0.1),
        (pa.decimal128(5, 2), pa.decimal128(9, 2), Decimal("999.99"), Decimal("1000.00")),
    ],
    ids=["int", "float", "decimal"],
)
def test_values_that_the_old_type_cannot_hold_are_dead_letters_until_the_lake_table_may_follow(  # noqa: PLR0917 - a case each
    tmp_path: Path,
    tables: type[IcebergTables | PaimonTables],
    old: pa.DataType,
    new: pa.DataType,
    fits: object,
    large: object,
    *,
    key: bool,
) -> None:
    world, path = World.create(tmp_path), TablePath("t", "wide")
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("much", old)])
    world.store.create_table(path, schema, ("id",) if key else (), buckets=1, freshness_s=0.2)
    kept = TableSettings(mode="mirror", on_bad_row="dead_letter", schema={"types": "discard_row"})
    world.rules = lambda _path: kept
    made = tables(tmp_path)
    lake = made.open(world.clock)
    options: dict[str, Any] = {"lake": lake, "lake_type": made.name, "mirrors": True}
    world.store.load(path, pa.table({"id": [0], "much": pa.array([fits], old)}, schema=schema))
    assert world.once(**options).failed == ()
    world.store.widen_column(path, "much", new)
    values = pa.array([fits, large, None], new)
    rows_read = pa.table({"id": pa.array([1, 2, 3]), "much": values}, schema=world.store.table(path).schema)
    world.store.load(path, rows_read)
    source = EmbeddedSource(EmbeddedStore.open(world.store.root))
    assert world.once(source=source, **options).failed == ()
    found = {row["id"]: row["much"] for row in rows(lake, path)}
    assert found == {0: fits, 1: fits, 3: None}
    (letter,) = rows(lake, path_of(path))
    assert (letter["offset"], letter["column_name"], letter["code"]) == (2, "much", "LW-406")
    checked = verified(world, lake, path)
    assert (checked.comparison.counts, checked.dead_letters) == (dict.fromkeys(KINDS, 0), 1)
    # Once the lake table may follow, the letter fits.
    world.rules = lambda _path: TableSettings(mode="mirror", on_bad_row="dead_letter")
    replay(world, path, lambda: not rows(lake, path_of(path)), {"lake": lake, "lake_type": made.name})
    assert {row["id"]: row["much"] for row in rows(lake, path)} == {0: fits, 1: fits, 2: large, 3: None}
    lake.close()


def tier_row(world: World, path: TablePath, options: Mapping[str, Any], **row: object) -> None:
    """Load one row in the table's columns of now, and tier it."""
    world.store.load(path, pa.Table.from_pylist([row], schema=world.store.table(path).schema))
    source = EmbeddedSource(EmbeddedStore.open(world.store.root))
    assert world.once(source=source, mirrors=True, **options).failed == ()


@pytest.mark.parametrize("tables", [IcebergTables, PaimonTables], ids=["iceberg", "paimon"])
@pytest.mark.parametrize("key", [False, True], ids=["append", "keyed"])
def test_a_replayed_row_goes_to_the_lake_table_of_another_name_and_to_columns_that_somebody_has_renamed_there(
    tmp_path: Path, tables: type[IcebergTables | PaimonTables], *, key: bool
) -> None:
    """Letters from before the rename have the source's names in them, later ones those of the lake."""
    world, path, there = World.create(tmp_path), TablePath("t", "grown"), TablePath("t", "other")
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
    world.store.create_table(path, schema, ("id",) if key else (), buckets=1, freshness_s=0.2)
    kept = TableSettings(mode="mirror", on_bad_row="dead_letter", lake_name="other", schema={"columns": "discard_row"})
    world.rules = lambda _path: kept
    made = tables(tmp_path)
    lake = made.open(world.clock)
    options: dict[str, Any] = {"lake": lake, "lake_type": made.name}

    tier = partial(tier_row, world, path, options)
    tier(id=0, name="a")
    world.store.add_column(path, pa.field("more", pa.int64()))
    tier(id=1, name="b", more=1)
    made.rename(there, "name", "label")
    tier(id=2, name="c", more=2)
    tier(id=3, name="d", more=None)
    assert {row["id"]: row["label"] for row in rows(lake, there)} == {0: "a", 3: "d"}
    assert sorted(row["offset"] for row in rows(lake, path_of(there))) == [1, 2]
    let_in = TableSettings(mode="mirror", on_bad_row="dead_letter", lake_name="other")
    world.rules = lambda _path: let_in
    replay(world, path, lambda: not rows(lake, path_of(there)), options)
    found = {row["id"]: (row["label"], row["more"]) for row in rows(lake, there)}
    assert found == {0: ("a", None), 1: ("b", 1), 2: ("c", 2), 3: ("d", None)}
    lake.close()


def test_a_replayed_row_takes_the_place_of_the_older_one_by_a_deletion_vector(tmp_path: Path) -> None:
    world, path = World.create(tmp_path), TablePath("t", "grown")
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
    world.store.create_table(path, schema, ("id",), buckets=1, freshness_s=0.2)
    keys: dict[str, Any] = {"mode": "mirror", "on_bad_row": "dead_letter", "lake_properties": {"format-version": "3"}}
    world.rules = lambda _path: TableSettings(**keys, schema={"columns": "discard_row"})
    made = IcebergTables(tmp_path)
    lake = made.open(world.clock)
    options: dict[str, Any] = {"lake": lake, "lake_type": made.name}

    tier = partial(tier_row, world, path, options)
    tier(id=0, name="a")
    tier(id=1, name="a")
    world.store.add_column(path, pa.field("more", pa.string()))
    tier(id=0, name="b", more="x")
    assert {row["id"]: row["name"] for row in rows(lake, path)} == {0: "a", 1: "a"}
    world.rules = lambda _path: TableSettings(**keys)
    replay(world, path, lambda: not rows(lake, path_of(path)), options)
    found = {row["id"]: (row["name"], row["more"]) for row in rows(lake, path)}
    assert found == {0: ("b", "x"), 1: ("a", None)}
    assert [*tmp_path.rglob("*.puffin")]
    lake.close()


def test_verify_knows_the_keys_of_letters_though_somebody_has_renamed_the_key_in_the_lake_table(tmp_path: Path) -> None:
    world, path = World.create(tmp_path), TablePath("t", "bad")
    world.store.create_table(path, COLUMNS, ("id",), buckets=1, freshness_s=0.2)
    world.rules = partial(mirrored, (), ())
    made = IcebergTables(tmp_path)
    lake = made.open(world.clock)
    load(world, path, 0, at=None)
    assert world.once(mirrors=True, lake=lake, lake_type=made.name).failed == ()
    made.rename(path, "id", "ident")
    load(world, path, ROWS, at=None)
    assert world.once(mirrors=True, lake=lake, lake_type=made.name).failed == ()
    checked = verified(world, lake, path)
    assert (checked.comparison.counts, checked.dead_letters) == (dict.fromkeys(KINDS, 0), 2)
    lake.close()


@pytest.mark.parametrize("tables", [IcebergTables, PaimonTables], ids=["iceberg", "paimon"])
def test_letters_of_before_columns_changed_their_names_in_the_source_go_to_the_same_columns(
    tmp_path: Path, tables: type[IcebergTables | PaimonTables]
) -> None:
    """The source has renamed one, and given its name to another one since."""
    world, path = World.create(tmp_path), TablePath("t", "grown")
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
    world.store.create_table(path, schema, buckets=1, freshness_s=0.2)
    world.rules = lambda _path: TableSettings(
        mode="mirror", on_bad_row="dead_letter", schema={"columns": "discard_row"}
    )
    made = tables(tmp_path)
    lake = made.open(world.clock)
    options: dict[str, Any] = {"lake": lake, "lake_type": made.name}

    tier = partial(tier_row, world, path, options)
    tier(id=0, name="a")
    world.store.add_column(path, pa.field("more", pa.string()))
    tier(id=1, name="b", more="x")
    assert [row["offset"] for row in rows(lake, path_of(path))] == [1]
    world.rules = lambda _path: TableSettings(mode="mirror", on_bad_row="dead_letter")
    world.store.rename_column(path, "name", "called")
    world.store.rename_column(path, "more", "name")
    tier(id=2, called="c", name="y")
    replay(world, path, lambda: not rows(lake, path_of(path)), options)
    found = {row["id"]: (row["called"], row["name"]) for row in rows(lake, path)}
    assert found == {0: ("a", None), 1: ("b", "x"), 2: ("c", "y")}
    lake.close()


@pytest.mark.parametrize(
    ("tables", "key"), [(IcebergTables, False), (PaimonTables, True)], ids=["iceberg-append", "paimon-keyed"]
)
@pytest.mark.parametrize("call", ["commit", "rewrite"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_service_killed_at_one_of_the_two_commits_of_a_replay_loses_and_doubles_nothing(
    tmp_path: Path, tables: type[IcebergTables | PaimonTables], call: str, *, key: bool, after: bool
) -> None:
    world, path = World.create(tmp_path), TablePath("t", "bad")
    world.store.create_table(path, COLUMNS, ("id",) if key else (), buckets=1, freshness_s=0.2)
    world.rules = partial(mirrored, (), ())
    made = tables(tmp_path)
    lake = made.open(world.clock)
    load(world, path, 0, at=None)
    assert world.once(mirrors=True, lake=lake, lake_type=made.name).failed == ()
    world.rules = partial(mirrored, (), ("!name",))
    sprung, released = threading.Event(), threading.Event()
    doomed = made.open(world.clock)
    real: Callable[[CommitRequest | RewriteRequest], CommitOutcome] = getattr(doomed, call)

    def trapped(request: CommitRequest | RewriteRequest) -> CommitOutcome:
        is_replay = isinstance(request, RewriteRequest) or request.round_id.epoch == REPLAY
        outcome = real(request) if after else None
        if is_replay and not sprung.is_set():
            sprung.set()
            released.wait(LIMIT_S)
        return outcome or real(request)

    setattr(doomed, call, trapped)

    async def until_killed() -> None:
        service = world.service(lake=doomed, lake_type=made.name, mirrors=True, replay=asked(path))
        serving = asyncio.create_task(service.serve())
        await until(sprung.is_set)
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving

    asyncio.run(until_killed())
    load(world, path, ROWS, at=None)
    assert world.once(mirrors=True, lake=lake, lake_type=made.name).failed == ()
    released.set()
    let_writes_end()
    load(world, path, 2 * ROWS, at=None)
    assert world.once(mirrors=True, lake=lake, lake_type=made.name).failed == ()
    put_in = call == "rewrite" or after
    assert sorted(row["id"] for row in rows(lake, path)) == [one for one in range(3 * ROWS) if put_in or one != BAD[0]]
    assert len(rows(lake, path_of(path))) == (0 if put_in else 1)
    lake.close()


@pytest.mark.parametrize("tables", [IcebergTables, PaimonTables], ids=["iceberg", "paimon"])
def test_a_table_of_dead_letters_that_an_earlier_release_made_is_gone_on_with(
    tmp_path: Path, tables: type[IcebergTables | PaimonTables]
) -> None:
    """It has no log offsets."""
    world, path = World.create(tmp_path), TablePath("t", "bad")
    spec = world.store.create_table(path, COLUMNS, (), buckets=1, freshness_s=0.2)
    world.rules = partial(mirrored, (), ())
    made = tables(tmp_path)
    lake = made.open(world.clock)
    before = pa.schema([field for field in SCHEMA if field.name != "log_offset"])
    lake.open_table(replace(table_of(spec), schema=before), Incarnation("svc", 1, "0" * 16))
    load(world, path, 0, at=None)
    assert world.once(mirrors=True, lake=lake, lake_type=made.name).failed == ()
    (letter,) = rows(lake, path_of(path))
    assert (letter["offset"], letter["log_offset"]) == (BAD[0], None)
    lake.close()
