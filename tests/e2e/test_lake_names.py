"""A mirror whose lake table has another name: every command finds it, and its dead letters, in both lakes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakeward.config.loader import load_config
from lakeward.container import build
from lakeward.errors import ConfigError
from lakeward.model.settings import TableSettings
from lakeward.model.tables import TablePath
from lakeward_e2e.lakes import LAKES, AnyTables, lake_id
from lakeward_service_kit.service_world import World
from lakeward_source_embedded.store import EmbeddedStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakeward_service_kit.command_line import Lakeward

PATH = TablePath("t", "orders")
COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
CONFIG = """
[service]
name = "svc"
[source]
type = "embedded"
path = "store"
[lake]
type = "{lake}"
warehouse = "warehouse"
[checkpoint]
root = "state"
[tables."t.*"]
mode = "mirror"
lake_namespace = "sales"
on_bad_row = "dead_letter"
[tables."t.orders"]
lake_name = "{name}"
"""


class Named:
    """A table in a lake, a service that mirrors it, and the command line of the same configuration."""

    def __init__(
        self, directory: Path, kind: AnyTables, lakeward: Lakeward, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.kind = kind
        self.capsys = capsys
        self.services = World.create(directory)
        self.lakeward = lakeward
        self.services.store.create_table(PATH, COLUMNS, buckets=1, freshness_s=0.2)
        self.rows = 0

    def call_it(self, name: str) -> None:
        """Give the lake table a name."""
        rules = TableSettings(mode="mirror", lake_name=name, lake_namespace="sales", on_bad_row="dead_letter")
        self.services.rules = lambda _: rules
        text = CONFIG.format(lake=self.kind.name, name=name)
        (self.services.directory / "lakeward.toml").write_text(text, encoding="utf-8")

    def tier(self) -> dict[TablePath, str]:
        """Add nine rows and one whose text is none, and mirror them; return why tables failed."""
        ids = range(self.rows, self.rows + 10)
        names = pa.array([b"\xff" if number == self.rows else b"a" for number in ids], pa.binary()).view(pa.string())
        with EmbeddedStore.open(self.services.store.root) as store:
            store.load(PATH, pa.table([pa.array(ids, pa.int64()), names], schema=COLUMNS))
        self.rows += 10
        lake = self.kind.open(self.services.clock)
        end = self.services.once(mirrors=True, lake=lake, lake_type=self.kind.name)
        lake.close()
        return dict(end.failed)

    def ids(self, name: str) -> list[int]:
        """Return the ids that a lake table of a name in the namespace has."""
        lake, path = self.kind.open(self.services.clock), TablePath("sales", name)
        head = lake.head(path)
        batches = [] if head is None else list(lake.read_rows(path, head.snapshot_id))
        lake.close()
        return sorted(number for batch in batches for number in batch.column("id").to_pylist())

    def document(self, *words: str) -> Any:  # noqa: ANN401 - any JSON
        """Run a command, which has to succeed, and return its document."""
        self.capsys.readouterr()  # what services have logged
        said = self.lakeward(*words, "-o", "json")
        assert said.code == 0, said.err
        return said.document


@pytest.fixture(params=LAKES, ids=lake_id)
def named(
    request: pytest.FixtureRequest, tmp_path: Path, lakeward: Lakeward, capsys: pytest.CaptureFixture[str]
) -> Iterator[Named]:
    named = Named(tmp_path, request.param(tmp_path), lakeward, capsys)
    named.call_it("all")
    yield named
    named.services.store.close()


def good(rows: int) -> list[int]:
    return [number for number in range(rows) if number % 10]


def test_every_command_finds_the_lake_table_of_the_configured_name(named: Named) -> None:
    for _ in range(2):
        assert named.tier() == {}
    assert named.ids("all") == good(20)
    (line,) = named.document("tables", "list")["tables"]
    assert (line["tiered"], line["lag_rows"], line["lake_table"]) == (20, 0, "sales.all")
    verified = named.document("verify", "t.orders")
    assert (verified["equal"], verified["lake_rows"], verified["dead_letters"]) == (True, 18, 2)
    for table in ("t.orders", "sales.all"):
        (row,) = named.document("query", table, f"select count(*) as n from {table}")["rows"]  # noqa: S608 - a test
        assert row == {"n": 18}
    assert named.document("query", "t.orders__dead_letters", "select count(*) as n from orders__dead_letters")[
        "rows"
    ] == [{"n": 2}]
    assert "sales" in str(named.document("query", "t.orders", "--print")["lines"])
    (letters,) = named.document("deadletters", "list")["dead_letters"]
    assert (letters["dead_letters"], letters["lake_table"]) == (2, "sales.all__dead_letters")
    assert named.document("deadletters", "show", "t.orders")["total"] == 2
    assert named.document("deadletters", "delete", "t.orders", "--column", "none", "--yes")["deleted"] == 0
    (due,) = named.document("upkeep", "plan", "t.orders")["tables"]
    assert due["next"] != "nothing: no service has tiered it yet"
    (planned,) = named.document("plan")["rounds"]
    assert planned["action"] == "nothing", planned
    assert named.document("deadletters", "delete", "t.orders", "--yes")["deleted"] == 2
    assert named.document("deadletters", "show", "t.orders")["total"] == 0


def test_a_lake_table_that_got_another_name_is_left_as_it_is_once_that_is_accepted(named: Named) -> None:
    assert named.tier() == {}
    named.call_it("every")
    refused = named.tier()
    assert "the lake has no table sales.every, as lake_name and lake_namespace call it" in refused[PATH]
    assert named.ids("every") == []
    assert named.document("tables", "accept", "t.orders", "--yes")["accepted"]
    assert named.tier() == {}
    assert (named.ids("every"), named.ids("all")) == (good(30), good(10))
    assert named.document("verify", "t.orders")["equal"]


def test_a_lake_table_that_was_renamed_with_its_key_is_gone_on_with(named: Named) -> None:
    assert named.tier() == {}
    for name in ("all", "all__dead_letters"):
        named.kind.move(TablePath("sales", name), name.replace("all", "every"))
    named.call_it("every")
    assert named.tier() == {}
    assert (named.ids("every"), named.ids("all")) == (good(20), [])
    assert named.document("verify", "t.orders")["equal"]


def test_two_tables_for_one_lake_table_are_refused_by_the_check_and_at_the_start(named: Named) -> None:
    named.services.store.create_table(TablePath("t", "all"), COLUMNS, buckets=1)
    said = named.lakeward("config", "check")
    assert said.code == 1
    assert "a lake table of its own for t." in said.out
    assert "t.orders" in said.out
    container = build(load_config(named.services.directory / "lakeward.toml", {}))
    with pytest.raises(ConfigError, match="a lake table of its own for t"):
        container.incarnation()
    assert container.lake().head(TablePath("sales", "all")) is None
    asyncio.run(container.resources().close_all())
