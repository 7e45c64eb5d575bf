"""The Paimon lake by a REST catalog: the contract of lakes, and the fence that is the catalog's commit call."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakeward.errors import ConfigError, FencedError, LakeAwayError, LakeError, OutcomeUnknownError
from lakeward.model.column_ids import with_column_id
from lakeward.model.results import CommitOutcome
from lakeward.ports import CheckedLake, ComparedLake, ServerLake
from lakeward_lake_paimon.options import PaimonOptions
from lakeward_lake_paimon.rest_catalog import RestCatalog
from lakeward_lake_paimon.rest_client import RestClient
from lakeward_lake_paimon.task import unpack_task
from lakeward_paimon_kit.others import Other
from lakeward_paimon_kit.rest import TOKEN, LostAnswer, RestCatalogServer
from lakeward_paimon_kit.shapes import ShapedPlugin
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_conformance import LakeConformance
from lakeward_testing.lake_tables import (
    COLUMNS,
    PATH,
    TieringRound,
    head_of,
    incarnation,
    log_split,
    log_table,
    source_batch,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lakeward.model.tables import TablePath, TableSpec
    from lakeward.ports import Lake
    from lakeward_lake_paimon.plugin import PaimonLakePlugin
    from lakeward_paimon_kit.reader import PythonReader

    ReadTable = Callable[[TablePath], pa.Table]


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[RestCatalogServer]:
    """A catalog without tables."""
    with RestCatalogServer.running(tmp_path / "warehouse") as server:
        yield server


@pytest.fixture
def options(catalog: RestCatalogServer) -> PaimonOptions:
    """The warehouse of that catalog."""
    return PaimonOptions(metastore="rest", uri=catalog.uri, warehouse="lake", properties={"token": TOKEN})


@pytest.fixture
def read_table(python_reader: PythonReader, options: PaimonOptions) -> Callable[[TablePath], pa.Table]:
    """All live rows, by pypaimon's REST client."""
    told = {"metastore": "rest", "uri": options.uri, "token.provider": "bear", "token": TOKEN}
    return lambda path: python_reader.rows(options.warehouse, str(path), told)


@pytest.mark.slow
class TestPaimonLakeByRest(LakeConformance):
    __test__ = True

    # Writers do the same whatever the catalog.
    test_interruptions_anywhere_leave_the_table_as_it_is_without_them = None

    @pytest.fixture
    def plugin(self) -> ShapedPlugin:
        return ShapedPlugin(properties={"paimon.changelog-producer": "none"})

    @pytest.fixture
    def roll_back(self, catalog: RestCatalogServer) -> Callable[[TablePath, int], None]:
        return lambda path, number: catalog.roll_back(path.database, path.table, number)

    @pytest.fixture
    def repeat_commits(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[Lake], None]:
        def repeat(_: Lake) -> None:
            post = RestClient.post

            def twice(client: RestClient, call: str, body: object) -> Any:  # noqa: ANN401 - an answer
                if call.endswith("/commit"):
                    post(client, call, body)
                return post(client, call, body)

            monkeypatch.setattr(RestClient, "post", twice)

        return repeat


class World:
    """Rounds on one lake."""

    def __init__(self, plugin: PaimonLakePlugin, lake: Lake, catalog: RestCatalogServer) -> None:
        self.lake = lake
        self.plugin = plugin
        self._catalog = catalog

    def begin(self, ids: list[int], table: TableSpec | None = None, start: int = 1000, number: int = 1) -> TieringRound:
        """Start a round, and write rows of these ids."""
        tiering = TieringRound(self.plugin, self.lake, table or log_table(), incarnation(start), number)
        tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": one} for one in ids])])
        return tiering

    def commit_by_another(self) -> None:
        """Commit an empty snapshot as a program that knows nothing of us."""
        folder = self._catalog.folder(PATH.database, PATH.table)
        Other(folder).commit("COMPACT")
        newest = max(folder.glob("snapshot/snapshot-*"), key=lambda one: int(one.name.partition("-")[2]))
        snapshot = json.loads(newest.read_bytes())
        newest.unlink()
        self._catalog.commit_as_another(PATH.database, PATH.table, snapshot)


@pytest.fixture
def world(plugin: PaimonLakePlugin, lake: Lake, catalog: RestCatalogServer) -> World:
    """A catalog, and a lake that uses it."""
    return World(plugin, lake, catalog)


def test_a_stale_start_that_wakes_up_between_its_check_and_its_commit_lands_nothing(
    world: World, catalog: RestCatalogServer, read_table: ReadTable
) -> None:
    stale = world.begin([1])
    request = stale.request()

    def overtaken(_: object) -> None:
        catalog.before_commit = None
        assert world.lake.commit(world.begin([2], start=2000).request()) is CommitOutcome.LANDED

    catalog.before_commit = overtaken
    assert world.lake.commit(request) is CommitOutcome.CONFLICT
    assert world.lake.find(PATH, stale.round_id, 0) is None
    with pytest.raises(FencedError):
        world.lake.commit(request)
    assert read_table(PATH)["id"].to_pylist() == [2]


def test_a_stale_commit_to_a_table_that_was_made_anew_is_refused_by_the_tables_id(
    world: World, catalog: RestCatalogServer, read_table: ReadTable
) -> None:
    assert world.lake.commit(world.begin([1]).request()) is CommitOutcome.LANDED
    stale = world.begin([9], number=2)

    def made_anew(_: object) -> None:
        catalog.before_commit = None
        live = world.begin([8], log_table(table_id=8), start=2000)
        assert world.lake.commit(live.request()) is CommitOutcome.LANDED

    catalog.before_commit = made_anew
    with pytest.raises(FencedError, match="no such table of id"):
        world.lake.commit(stale.request())
    assert read_table(PATH)["id"].to_pylist() == [8]
    assert "orders__dropped_7" in catalog.tables(PATH.database)


def test_a_snapshot_of_another_program_is_built_on(
    world: World, catalog: RestCatalogServer, read_table: ReadTable
) -> None:
    assert world.lake.commit(world.begin([1]).request()) is CommitOutcome.LANDED
    second = world.begin([2], number=2)
    world.commit_by_another()
    request = second.request()

    def another(_: object) -> None:
        catalog.before_commit = None
        world.commit_by_another()

    catalog.before_commit = another
    assert world.lake.commit(request) is CommitOutcome.CONFLICT
    assert world.lake.commit(second.request()) is CommitOutcome.LANDED
    assert head_of(world.lake).snapshot_id == 5
    assert sorted(read_table(PATH)["id"].to_pylist()) == [1, 2]


@pytest.mark.parametrize("landed", [True, False])
def test_an_answer_that_is_lost_is_looked_up(world: World, catalog: RestCatalogServer, *, landed: bool) -> None:
    tiering = world.begin([1])
    request = tiering.request()

    def lose(_: object) -> None:
        catalog.before_commit = catalog.after_commit = None
        raise LostAnswer

    if landed:
        catalog.after_commit = lose
        assert world.lake.commit(request) is CommitOutcome.LANDED
    else:
        catalog.before_commit = lose
        with pytest.raises(OutcomeUnknownError, match="no answer whether snapshot 2"):
            world.lake.commit(request)
    assert world.lake.find(PATH, tiering.round_id, 0) == (2 if landed else None)


@pytest.mark.parametrize("tells_old", [True, False])
def test_a_commit_that_landed_below_another_ones_is_not_taken_for_lost(
    world: World, catalog: RestCatalogServer, *, tells_old: bool
) -> None:
    tiering = world.begin([1])
    request = tiering.request()

    def lose(_: object) -> None:
        catalog.before_commit = catalog.after_commit = None
        world.commit_by_another()
        raise LostAnswer

    catalog.after_commit = lose
    catalog.tells_old = tells_old
    if tells_old:
        assert world.lake.commit(request) is CommitOutcome.LANDED
    else:
        with pytest.raises(OutcomeUnknownError, match="no answer whether snapshot 2"):
            world.lake.commit(request)
    assert world.lake.find(PATH, tiering.round_id, 0) == 2


@pytest.mark.parametrize("answer", [(502, {}), (408, {}), (200, {}), (200, {"message": "log in"})], ids=str)
def test_an_answer_of_somebody_between_is_no_answer(
    world: World, catalog: RestCatalogServer, answer: tuple[int, dict[str, Any]]
) -> None:
    tiering = world.begin([1])
    catalog.between = lambda _, path: answer if path.endswith("/commit") else None
    with pytest.raises(OutcomeUnknownError, match="no answer whether snapshot 2"):
        world.lake.commit(tiering.request())
    catalog.between = None
    assert world.lake.commit(tiering.request()) is CommitOutcome.LANDED


def test_a_catalog_that_is_away_after_a_commit_is_asked_again(world: World, catalog: RestCatalogServer) -> None:
    tiering = world.begin([1])

    def away(_: object) -> None:
        catalog.after_commit = None
        catalog.between = lambda *_: (503, {"message": "later"})

    catalog.after_commit = away
    with pytest.raises(OutcomeUnknownError, match="snapshot 2 was committed, and the catalog is away"):
        world.lake.commit(tiering.request())
    with pytest.raises(LakeAwayError, match="HTTP 503: later"):
        world.lake.find(PATH, tiering.round_id, 0)
    catalog.between = None
    assert world.lake.find(PATH, tiering.round_id, 0) == 2


def test_a_page_that_is_not_there_is_no_missing_table(world: World, catalog: RestCatalogServer) -> None:
    tiering = world.begin([1])
    assert world.lake.commit(tiering.request()) is CommitOutcome.LANDED
    catalog.between = lambda *_: (404, {"message": "<html>not found</html>"})
    with pytest.raises(LakeError, match="not found"):
        world.lake.find(PATH, tiering.round_id, 0)


def test_a_commit_is_built_on_the_very_head_that_it_was_checked_on(world: World, catalog: RestCatalogServer) -> None:
    request = world.begin([1]).request()

    def rolled_back(_: object) -> None:
        catalog.before_commit = None
        catalog.put_in_the_place_of_the_head(PATH.database, PATH.table)

    catalog.before_commit = rolled_back
    assert world.lake.commit(request) is CommitOutcome.CONFLICT


def test_the_head_is_what_the_catalog_says_whatever_its_file_says(world: World, catalog: RestCatalogServer) -> None:
    request = world.begin([1]).request()
    catalog.put_in_the_place_of_the_head(PATH.database, PATH.table)
    with pytest.raises(FencedError, match="the stamp on the head is None"):
        world.lake.commit(request)


def test_an_answer_that_is_lost_while_another_program_committed_is_a_conflict(
    world: World, catalog: RestCatalogServer
) -> None:
    request = world.begin([1]).request()

    def lose(_: object) -> None:
        catalog.before_commit = None
        world.commit_by_another()
        raise LostAnswer

    catalog.before_commit = lose
    assert world.lake.commit(request) is CommitOutcome.CONFLICT


def test_a_snapshot_file_that_the_catalog_has_not_made_the_head_is_not_read(
    world: World, catalog: RestCatalogServer
) -> None:
    world.lake.commit(world.begin([1]).request())
    folder = catalog.folder(PATH.database, PATH.table)
    (folder / "snapshot" / "snapshot-3").write_bytes((folder / "snapshot" / "snapshot-2").read_bytes())
    assert head_of(world.lake).snapshot_id == 2


def test_a_column_is_added_by_the_catalog_before_the_system_columns(
    world: World, catalog: RestCatalogServer, read_table: ReadTable
) -> None:
    import pyarrow as pa  # noqa: PLC0415 - of this alone

    world.lake.commit(world.begin([1]).request())
    wider = log_table(pa.schema([*COLUMNS, pa.field("added", pa.string())]))
    tiering = TieringRound(world.plugin, world.lake, wider, incarnation(1000), 2)
    tiering.write(log_split(wider), [source_batch(wider.schema, [{"id": 2, "added": "new"}])])
    assert world.lake.commit(tiering.request()) is CommitOutcome.LANDED
    assert [one[1] for one in catalog.seen if one[2].get("changes")] == ["v1/of-tests/databases/shop/tables/orders"]
    rows = read_table(PATH)
    names = [name for name in rows.column_names if not name.startswith("__")]
    assert rows.column_names == [*names, "__bucket", "__offset", "__timestamp"]
    assert sorted(rows["added"].to_pylist(), key=str) == [None, "new"]


def test_executors_get_no_token_of_the_catalog(world: World) -> None:
    table = log_table()
    head = world.lake.open_table(table, incarnation(1000))
    tiering = world.begin([1])
    task = unpack_task(world.lake.writer_task(table, head, tiering.round_id))
    assert task.storage == {}


def test_executors_get_the_catalogs_properties_of_files_and_no_others(
    plugin: PaimonLakePlugin, catalog: RestCatalogServer, options: PaimonOptions
) -> None:
    said = {"s3.endpoint": "https://store", "token": TOKEN, "header.X-Secret": "none", "warehouse": "lake"}
    catalog.between = lambda _, path: (200, {"defaults": said, "overrides": {}}) if path == "v1/config" else None
    assert RestCatalog(options.uri, "lake", {"s3.region": "here", "token": TOKEN}, 60.0).properties == {
        "s3.endpoint": "https://store",
        "s3.region": "here",
    }


def test_a_token_with_a_line_end_is_taken(catalog: RestCatalogServer) -> None:
    assert RestClient(catalog.uri, "lake", {"token": f"{TOKEN}\n"}, 60.0).get("databases").is_good


def test_a_catalog_that_refuses_the_token_is_named(
    plugin: PaimonLakePlugin, catalog: RestCatalogServer, options: PaimonOptions
) -> None:
    wrong = PaimonOptions(metastore="rest", uri=catalog.uri, warehouse="lake", properties={"token": "none"})
    with pytest.raises(LakeError, match="HTTP 401: who are you"):
        plugin.open(wrong, FakeClock())
    assert "sesame" not in repr(options)


@pytest.mark.parametrize(
    ("uri", "properties", "said"),
    [
        ("", {}, r"lake\.uri: expected the address of a REST catalog"),
        ("thrift://host", {}, r"lake\.uri: expected the address of a REST catalog"),
        ("http://host", {"token.provider": "dlf"}, "expected bear"),
        ("http://me:sesame@host", {}, "found 'one with a user or password'"),
        ("http://host/x?token=sesame", {}, "found 'one with parameters'"),
        ("http://host", {"token": "sesame\nX-More: 1"}, "printable ASCII"),
        ("http://host", {"header.X-Key": "sesam\u00e9"}, "printable ASCII"),
    ],
)
def test_a_catalog_that_cannot_be_asked_is_refused_and_no_secret_shown(
    plugin: PaimonLakePlugin, uri: str, properties: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigError, match=f"(?s)^(?!.*sesam).*{said}"):
        plugin.open(PaimonOptions(metastore="rest", uri=uri, warehouse="w", properties=properties), FakeClock())


def test_doctor_asks_the_catalog_and_compares_it_with_the_servers(world: World, catalog: RestCatalogServer) -> None:
    world.begin([1])
    assert isinstance(world.lake, CheckedLake)
    assert isinstance(world.lake, ComparedLake)
    (found,) = world.lake.check(write=False)
    assert (found.ok, "warehouse lake has 1 database" in found.message) == (True, True)
    told = {"metastore": "rest", "uri": f"{catalog.uri}/", "warehouse": "lake"}
    assert world.lake.compare(ServerLake((PATH,), "paimon", told)).ok
    for key, other in (("metastore", "hive"), ("uri", "http://elsewhere"), ("warehouse", "other")):
        found = world.lake.compare(ServerLake((PATH,), "paimon", told | {key: other}))
        assert (found.ok, f"lake.{key} {other}" in found.message) == (False, True)


def test_a_table_lies_where_its_option_says_and_is_fenced_there_by_its_files(
    world: World, catalog: RestCatalogServer, read_table: ReadTable, tmp_path: Path
) -> None:
    table = log_table(properties={"paimon.path": str(tmp_path / "elsewhere")})
    stale = world.begin([1], table)
    assert world.lake.commit(world.begin([2], table, start=2000).request()) is CommitOutcome.LANDED
    with pytest.raises(FencedError):
        world.lake.commit(stale.request())
    assert (tmp_path / "elsewhere" / "snapshot" / "snapshot-3").is_file()
    assert not [one for one in catalog.seen if one[1].endswith("/commit")]
    assert read_table(PATH)["id"].to_pylist() == [2]


def test_a_table_that_lies_where_its_option_says_is_not_set_aside(world: World, tmp_path: Path) -> None:
    table = log_table(properties={"paimon.path": str(tmp_path / "elsewhere")})
    assert world.lake.commit(world.begin([1], table).request()) is CommitOutcome.LANDED
    with pytest.raises(LakeError, match="give the new table another path"):
        world.begin([2], replace(table, table_id=8))


def test_an_option_that_is_configured_is_set_by_the_catalog(world: World, catalog: RestCatalogServer) -> None:
    for number, wanted in enumerate(({}, {"read.batch-size": "7"}), 1):
        begun = world.begin([number], log_table(lake_properties=wanted), number=number)
        assert world.lake.commit(begun.request()) is CommitOutcome.LANDED
    newest = catalog.folder(PATH.database, PATH.table) / "schema" / "schema-1"
    assert json.loads(newest.read_bytes())["options"]["read.batch-size"] == "7"


def test_names_that_two_columns_give_to_each_other_are_changed_by_the_catalog(
    world: World, catalog: RestCatalogServer
) -> None:
    tables = [
        log_table(pa.schema([with_column_id(pa.field(name, pa.int64()), number) for number, name in enumerate(names)]))
        for names in (("id", "name"), ("name", "id"))
    ]
    for table in tables:
        world.lake.open_table(table, incarnation())
    head = head_of(world.lake)
    assert head.columns is not None
    assert head.columns[:2] == ("name", "id")
    assert {number: one.name for number, one in head.by_id.items()} == {0: "name", 1: "id"}


def test_a_column_that_the_source_drops_is_made_nullable_by_the_catalog(
    world: World, catalog: RestCatalogServer
) -> None:
    fields = [with_column_id(pa.field(name, pa.int64(), nullable=False), at) for at, name in enumerate(("id", "n"))]
    for columns in (fields, fields[:1]):
        world.lake.open_table(log_table(pa.schema(columns)), incarnation())
    newest = max((catalog.folder(PATH.database, PATH.table) / "schema").iterdir())
    kinds = {one["name"]: one["type"] for one in json.loads(newest.read_bytes())["fields"]}
    assert (kinds["id"], kinds["n"]) == ("BIGINT NOT NULL", "BIGINT")


def test_a_type_that_becomes_wider_is_changed_by_the_catalog(world: World, catalog: RestCatalogServer) -> None:
    for kind in (pa.int32(), pa.int64()):
        world.lake.open_table(log_table(pa.schema([("id", kind), ("name", pa.string())])), incarnation())
    newest = max((catalog.folder(PATH.database, PATH.table) / "schema").iterdir())
    fields = {one["name"]: (one["id"], one["type"]) for one in json.loads(newest.read_bytes())["fields"]}
    assert fields["id"] == (0, "BIGINT")
