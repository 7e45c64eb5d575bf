"""`lakeward query` in this process: what it shows of a lake table, and what it says where it cannot."""

from __future__ import annotations

import builtins
import importlib
import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakeward.errors import LakeError
from lakeward.model.results import LakeHead
from lakeward.model.tables import TablePath

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward_service_kit.command_line import Lakeward

PATH = TablePath("nyc", "flights")
ROWS = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("raw", pa.binary()),
        ("cost", pa.decimal128(6, 2)),
        ("at", pa.timestamp("us", "UTC")),
    ]
)


def two_batches(self: object, path: TablePath, snapshot_id: int) -> Iterator[pa.RecordBatch]:
    """Yield five rows; which snapshot they are of is a part of their names."""
    for start, stop in ((0, 3), (3, 5)):
        ids = range(start, stop)
        names = [None if number == 0 else f"{snapshot_id}-{number}" for number in ids]
        columns = [list(ids), names, [b"\x01\xff"] * len(ids), [None] * len(ids), [0] * len(ids)]
        yield pa.record_batch(columns, schema=ROWS)


def a_file_is_gone(self: object, path: TablePath, snapshot_id: int) -> Iterator[pa.RecordBatch]:
    """Fail after the first rows."""
    yield from list(two_batches(self, path, snapshot_id))[:1]
    message = f"{path}: a file of snapshot {snapshot_id} is gone"
    raise LakeError(message)


@pytest.fixture
def queried(flights: Lakeward, monkeypatch: pytest.MonkeyPatch) -> Lakeward:
    """The command line with a lake that has a table of five rows, in snapshot 5."""
    assert flights("tables").code == 0  # the lake's module is imported
    monkeypatch.setattr(lake_class(), "read_rows", two_batches, raising=False)
    Path("head.pickle").write_bytes(pickle.dumps(LakeHead(PATH, 1, "/w", 5, None, None)))
    return flights


def lake_class() -> type:
    found: type = importlib.import_module("puddle_lake").Puddle
    return found


def test_without_sql_the_first_rows_are_shown(queried: Lakeward) -> None:
    said = queried("query", "nyc.flights", "--most", "2")
    assert (said.code, said.err) == (0, "")
    assert [line.split() for line in said.out.splitlines()] == [
        ["id", "name", "raw", "cost", "at"],
        ["0", "NULL", "01ff", "NULL", "1970-01-01", "00:00:00+00:00"],
        ["1", "5-1", "01ff", "NULL", "1970-01-01", "00:00:00+00:00"],
        ["The", "first", "2", "rows;", "`--most`", "shows", "more."],
    ]


@pytest.mark.parametrize("name", ["nyc.flights", "flights", "memory.nyc.flights"])
def test_the_table_has_its_path_and_its_name_in_sql(queried: Lakeward, name: str) -> None:
    sql = f"select count(*) as n, sum(id) as total from {name}"  # noqa: S608 - names of the test
    said = queried("query", "nyc.flights", sql, "--json")
    assert json.loads(said.out) == {"rows": [{"n": 5, "total": 10}], "more": False}


def test_a_table_that_a_query_names_twice_is_read_twice(queried: Lakeward) -> None:
    said = queried(
        "query", "nyc.flights", "select a.id, b.id from flights a join flights b on b.id = a.id + 3", "--json"
    )
    rows = json.loads(said.out)["rows"]
    assert sorted((row["id"], row["id_1"]) for row in rows) == [(0, 3), (1, 4)]


def test_an_older_snapshot_is_queried_by_its_id(queried: Lakeward) -> None:
    said = queried("query", "nyc.flights", "select max(name) as name from flights", "--snapshot", "3", "--json")
    assert json.loads(said.out)["rows"] == [{"name": "3-4"}]


def test_sql_that_duckdb_refuses_is_one_error_with_its_words(queried: Lakeward) -> None:
    said = queried("query", "nyc.flights", "select colour from flights")
    assert said.code == 2
    assert "DuckDB: " in said.err
    assert 'column "colour" not found' in said.err


def test_a_lake_that_cannot_be_read_is_its_own_error(queried: Lakeward, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_class(), "read_rows", a_file_is_gone)
    said = queried("query", "nyc.flights", "select count(*) from flights")
    assert said.code == 1
    assert said.err.splitlines()[0].endswith("nyc.flights: a file of snapshot 5 is gone")


def test_a_table_that_was_never_tiered_is_an_error(queried: Lakeward) -> None:
    Path("head.pickle").unlink()
    said = queried("query", "nyc.flights")
    assert said.code == 1
    assert "nyc.flights: the lake has no rows of it: nothing has been tiered yet" in said.err


def test_without_duckdb_the_extra_is_named(queried: Lakeward, monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def without(name: str, *arguments: Any, **more: Any) -> Any:  # noqa: ANN401 - as Python's own
        if name == "duckdb":
            raise ImportError(name)
        return original(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    said = queried("query", "nyc.flights")
    assert said.code == 2
    assert "pip install 'lakeward[query]'" in said.err


def test_a_lake_that_knows_no_lines_says_so(queried: Lakeward) -> None:
    said = queried("query", "nyc.flights", "--print")
    assert said.code == 1
    assert "cannot say how other programs read its tables" in said.err


def test_the_lines_of_other_programs_are_those_of_the_lake(queried: Lakeward, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = {"Spark": "spark.read.load('/w')"}
    monkeypatch.setattr(lake_class(), "reading_lines", lambda *_: lines, raising=False)
    assert queried("query", "nyc.flights", "--print").out.splitlines() == ["Spark:", "  spark.read.load('/w')"]
    assert json.loads(queried("query", "nyc.flights", "--print", "--json").out)["lines"] == lines
