from __future__ import annotations

import io
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeward.model.tables import TablePath
from lakeward_source_embedded.columns import TYPES
from lakeward_source_embedded.store import EmbeddedStore

Lakeward = Callable[..., Any]


def test_create_makes_the_store_and_the_table(lakeward: Lakeward, tmp_path: Path) -> None:
    said = lakeward(
        *("embedded", "create", "nyc.flights", "--columns", "day string, id bigint, name string"),
        *("--primary-key", "day,id", "--partition-by", "day", "--bucket-key", "id", "--buckets", "4"),
        *("--freshness", "1.5min", "--property", "table.kv.snapshot.rows=7", "--store", "store", "--output", "json"),
    )
    assert said.document["table"] == "nyc.flights"
    with EmbeddedStore.open(tmp_path / "store") as store:
        spec = store.table(TablePath("nyc", "flights"))
    assert (spec.primary_key, spec.partition_keys, spec.bucket_key) == (("day", "id"), ("day",), ("id",))
    assert (spec.buckets, spec.freshness_s, spec.properties["table.kv.snapshot.rows"]) == (4, 90.0, "7")


def test_the_store_is_the_configurations(flights: Lakeward) -> None:
    (table,) = flights("embedded", "list", "-o", "json").document["tables"]
    assert (table["table"], table["end"], table["columns"]["id"]) == ("nyc.flights", 3, "int64 not null")


def test_a_change_column_says_what_becomes_of_a_row(flights: Lakeward, tmp_path: Path) -> None:
    (tmp_path / "changes.csv").write_text("id,name,op\n1,z,+U\n2,,-D\n", encoding="utf-8")
    said = flights("embedded", "load", "nyc.flights", "changes.csv", "--change-column", "op", "-o", "json")
    assert said.document["files"][0]["records"] == 3


def test_a_row_that_does_not_fit_is_one_clear_message(flights: Lakeward, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("id,name\nx,a\n", encoding="utf-8")
    said = flights("embedded", "load", "nyc.flights", "bad.csv")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("error[LW-406]: ")
    assert "bad.csv" in said.err


def test_a_load_of_several_files_names_those_that_are_stored_and_goes_on_in_the_middle_of_one(
    flights: Lakeward, tmp_path: Path
) -> None:
    (tmp_path / "good.csv").write_text("id,name\n10,a\n11,b\n", encoding="utf-8")
    (tmp_path / "bad.csv").write_text("id,name\n12,c\nx,d\n", encoding="utf-8")
    said = flights("embedded", "load", "nyc.flights", "good.csv", "bad.csv")
    assert said.code == 2
    assert "bad.csv: " in said.err
    assert said.err.rstrip().endswith(
        ". No row of the file is stored: correct it and load it again. Already stored: good.csv"
    )
    (tmp_path / "bad.csv").write_text("id,name\n12,c\n13,d\n", encoding="utf-8")
    said = flights("embedded", "load", "nyc.flights", "bad.csv", "good.csv", "--skip-rows", "1", "-o", "json")
    assert [file["records"] for file in said.document["files"]] == [1, 4], "of the first file alone; an update has two"


def test_columns_can_be_taken_from_a_file(lakeward: Lakeward, tmp_path: Path) -> None:
    data = {
        "n": pa.array([1], pa.uint32()),
        "s": pa.array(["a"]).dictionary_encode(),
        "t": pa.array([1], pa.timestamp("us", tz="Europe/Paris")),
        "op": ["+I"],
    }
    pq.write_table(pa.table(data), tmp_path / "f.parquet")
    words = ("embedded", "create", "a.b", "--like", "f.parquet", "--change-column", "op", "--store", "store")
    assert lakeward(*words).code == 0
    with EmbeddedStore.open(tmp_path / "store") as store:
        schema = store.table(TablePath("a", "b")).schema
    assert schema.names == ["n", "s", "t"]
    assert schema.types == [pa.int64(), pa.string(), pa.timestamp("us", tz="UTC")]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("create", "a.b", "--columns", "x int", "--like", "f"), "expected one of --columns and --like"),
        (("create", "a.b"), "expected one of --columns and --like"),
        (("create", "ab", "--columns", "x int"), "expected DATABASE.TABLE"),
        (("create", "a.b", "--columns", "x int", "--freshness", "soon"), "found 'soon'"),
        (("create", "a.b", "--columns", "x int", "--property", "k"), "expected KEY=VALUE"),
        (("create", "a.b", "--like", "none.parquet"), "none.parquet: expected a file"),
        (("create", "a.b", "--like", "none.txt"), "expected a name that ends in .parquet"),
        (("add-column", "a.b", "x int, y int"), "expected one column, found 2"),
        (("widen-column", "a.b", "x int, y int"), "expected one column, found 2"),
    ],
)
def test_a_wrong_word_is_named(lakeward: Lakeward, words: tuple[str, ...], text: str) -> None:
    said = lakeward("embedded", *words, "--store", "store")
    assert said.code == 2
    assert text in said.err


def test_a_table_can_be_changed_looked_after_and_dropped(flights: Lakeward) -> None:
    assert flights("embedded", "add-column", "nyc.flights", "delay float").code == 0
    said = flights("embedded", "widen-column", "nyc.flights", "delay double")
    assert (said.code, said.out) == (0, "Column delay of nyc.flights is double now.\n")
    assert flights("embedded", "set-property", "nyc.flights", "table.kv.snapshot.num-retained", "3").code == 0
    assert flights("embedded", "snapshot", "nyc.flights", "-o", "json").document["taken"] == 1
    assert flights("embedded", "maintain").code == 0
    assert flights("embedded", "drop", "nyc.flights").code == 0
    assert flights("embedded", "drop", "nyc.flights").err.startswith("error[LW-401]")


def test_a_setting_of_the_store_is_changed(flights: Lakeward) -> None:
    said = flights("embedded", "set-option", "lease-api", "false", "-o", "json")
    assert said.document["options"]["lease-api"] == "false"


def test_a_directory_without_a_store_is_named(lakeward: Lakeward) -> None:
    said = lakeward("embedded", "list", "--store", "nowhere")
    assert said.code == 2
    assert "nowhere" in said.err
    assert "lakeward embedded create" in said.err


@pytest.mark.parametrize(
    ("columns", "parts"),
    [
        ("id bigintt", ["column 'id'", "found 'bigintt'. Did you mean 'bigint'?"]),
        ("id int, name varchar(9)", ["column 'name'", "found 'varchar'. Did you mean 'string'?"]),
        ("a array<strin>", ["found 'strin'. Did you mean 'string'?"]),
        ("a map<int, row<b decimall(9)>>", ["column 'b'", "found 'decimall'. Did you mean 'decimal'?"]),
        ("id", ["column 'id'", "found 'nothing'"]),
    ],
)
def test_a_type_that_there_is_not_is_answered_with_all_types_and_the_nearest(
    lakeward: Lakeward, columns: str, parts: list[str]
) -> None:
    said = lakeward("embedded", "create", "a.b", "--columns", columns, "--store", "store")
    assert said.code == 2
    assert all(part in said.err for part in [*parts, f"one of the types {TYPES}, found"])


@pytest.mark.parametrize(
    ("name", "columns", "said"),
    [
        ("a." + "x" * 201, "id int", "expected names of 1 to 200 letters, digits, _ and -"),
        ("a.b", "id binary(99999999999)", "expected a length from 1 to 2147483647, found 99999999999"),
        ("a.b", "id char(0)", "expected a length from 1 to 2147483647, found 0"),
        ("a.b", "id decimal(39,0)", "1 <= p <= 38"),
        ("a.b", "id time(10)", "expected a precision from 0 to 9, found 10"),
    ],
)
def test_an_error_names_the_limit(lakeward: Lakeward, name: str, columns: str, said: str) -> None:
    refused = lakeward("embedded", "create", name, "--columns", columns, "--store", "store")
    assert (refused.code, said in refused.err) == (2, True)


def test_the_help_lists_the_types_that_there_are(lakeward: Lakeward) -> None:
    assert f"Types: {TYPES}." in " ".join(lakeward("embedded", "create", "--help").out.split())


def test_a_key_column_is_refused_where_it_is_said_to_be_null(lakeward: Lakeward) -> None:
    create = ("embedded", "create", "a.b", "--store", "store", "--primary-key", "id", "--columns")
    said = lakeward(*create, "id bigint null, name string null")
    assert (said.code, "expected key column 'id' to be not null, found 'null'" in said.err) == (2, True)
    assert lakeward(*create, "id bigint, name string null, more row<id int null>").code == 0


@pytest.mark.parametrize("command", ["alter-column", "rename"])
def test_a_change_of_columns_that_there_is_not_is_answered_with_what_to_do(lakeward: Lakeward, command: str) -> None:
    said = lakeward("embedded", command, "a.b", "x", "y")
    assert said.code == 2
    assert "renamed (`rename-column`) and dropped (`drop-column`). For other changes, create a new table" in said.err


def test_a_column_is_renamed_and_dropped(flights: Lakeward) -> None:
    assert flights("embedded", "rename-column", "nyc.flights", "name", "carrier").code == 0
    said = flights("embedded", "describe", "nyc.flights", "-o", "json")
    assert [column["name"] for column in said.document["columns"]] == ["id", "carrier"]
    assert flights("embedded", "drop-column", "nyc.flights", "carrier").code == 0
    said = flights("embedded", "describe", "nyc.flights", "-o", "json")
    assert [column["name"] for column in said.document["columns"]] == ["id"]


def test_an_unknown_property_is_refused_with_the_nearest_one(flights: Lakeward) -> None:
    said = flights("embedded", "set-property", "nyc.flights", "table.log.ttl", "1")
    assert said.code == 2
    assert said.err.startswith("error[LW-200]: table.log.ttl: expected one of table.kv.snapshot.interval-s, ")
    assert said.err.endswith("found 'table.log.ttl'. Did you mean 'table.log.ttl-s'?\n")


def test_json_lines_are_loaded_from_the_standard_input(flights: Lakeward, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"id": 7, "name": "z"}\n{"id": 8}\n'), "utf-8"))
    (file,) = flights("embedded", "load", "nyc.flights", "-", "-o", "json").document["files"]
    assert (file["file"], file["records"]) == ("-", 2)


def test_a_wrong_row_of_the_standard_input_is_named(flights: Lakeward, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"id,name\nx,a\n"), "utf-8"))
    said = flights("embedded", "load", "nyc.flights", "-", "--format", "csv")
    assert said.code == 2
    assert "standard-input.csv: table nyc.flights, column 'id', row 2: expected int64, found 'x'" in said.err


@pytest.fixture
def keyed(lakeward: Lakeward) -> Lakeward:
    """The command line with a store that has a primary-key table."""
    columns = "id bigint not null, name string, tags array<string>, cost decimal(5,2)"
    made = lakeward("embedded", "create", "nyc.planes", "--columns", columns, "--primary-key", "id", "--store", "store")
    assert made.code == 0
    return lakeward


def rows(path: str = "nyc.planes") -> list[tuple[object, ...]]:
    """What the log of a table has come to: a row of each key."""
    with EmbeddedStore.open(Path("store")) as store:
        table = store.table(TablePath.parse(path))
        found = store._loader.find(table, pa.record_batch([range(10)], names=["id"]))
    return [tuple(row.values()) for row in found.to_pylist()]


def test_one_row_is_inserted_updated_and_deleted(keyed: Lakeward) -> None:
    at = ("nyc.planes", "--store", "store")
    assert keyed("embedded", "insert", *at, "id=1", "name=a=b", 'tags=["x"]', "cost=1.25").out == (
        "nyc.planes: 1 row inserted.\n"
    )
    assert rows() == [(1, "a=b", ["x"], Decimal("1.25"))]
    assert keyed("embedded", "update", *at, "id=1", "cost=2", "tags=NULL").code == 0
    assert rows() == [(1, "a=b", None, Decimal("2.00"))]
    assert keyed("embedded", "insert", *at, '{"id": 2, "name": "NULL"}', "--json").document["inserted"] == 1
    assert keyed("embedded", "delete", *at, "id=1", "--json").document["deleted"] == 1
    assert keyed("embedded", "delete", *at, "id=1").out == "nyc.planes: there is no row of that key.\n"
    assert rows() == [(2, "NULL", None, None)]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("insert", "id=x"), "column 'id', row 1: expected int64, found 'x'"),
        (("insert", "name=a"), "column 'id', row 1: expected int64 not null, found None"),
        (("insert", "id"), "row: expected NAME=VALUE, each name once, or a JSON object, found 'id'"),
        (("insert", "id=1", "id=2"), "found 'id=2'"),
        (("insert", "id=1", "colour=red"), "expected the columns id, name, tags, cost, found 'colour'"),
        (("insert", "{id: 1}"), "row: expected a JSON object, found '{id: 1}'"),
        (("update", "id=5", "name=b"), "table nyc.planes: expected a row with id 5, found none"),
        (("update", "name=b"), "expected a value of each key column, found none of 'id'"),
        (("delete", "name=b"), "expected a value of each key column, found none of 'id'"),
    ],
)
def test_a_wrong_row_of_the_command_line_is_named(keyed: Lakeward, words: tuple[str, ...], text: str) -> None:
    said = keyed("embedded", words[0], "nyc.planes", *words[1:], "--store", "store")
    assert (said.code, said.out) == (2, "")
    assert text in said.err


def test_rows_of_a_log_table_are_inserted_and_stay(lakeward: Lakeward) -> None:
    at = ("nyc.log", "--store", "store")
    assert lakeward("embedded", "create", *at, "--columns", "id bigint, name string").code == 0
    assert lakeward("embedded", "insert", *at, "id=9", "name=n").code == 0
    said = lakeward("embedded", "update", *at, "id=9", "name=m")
    assert "expected a primary-key table, found a log table" in said.err
    said = lakeward("embedded", "delete", *at, "id=9")
    assert "expected insert (a log table takes nothing else), found 'delete'" in said.err


def test_a_table_is_described_in_the_words_of_create(keyed: Lakeward) -> None:
    at = ("nyc.planes", "--store", "store")
    assert keyed("embedded", "insert", *at, "id=1").code == 0
    document = keyed("embedded", "describe", *at, "--json").document
    assert [(one["name"], one["type"], one["null"], one["key"]) for one in document["columns"]] == [
        ("id", "bigint", "no", "primary, bucket"),
        ("name", "string", "yes", ""),
        ("tags", "array<string>", "yes", ""),
        ("cost", "decimal(5,2)", "yes", ""),
    ]
    assert [(one["bucket"], one["start"], one["end"]) for one in document["buckets"]] == [(0, 0, 1)]
    said = keyed("embedded", "describe", *at).out
    assert said.startswith("nyc.planes: primary key id, table id ")
    assert "table.datalake.freshness" in said


def test_the_types_that_were_taken_from_a_file_are_shown(lakeward: Lakeward, tmp_path: Path) -> None:
    (tmp_path / "planes.jsonl").write_text('{"id": 1, "built": "2004-05-06", "seats": [1.5]}\n', encoding="utf-8")
    said = lakeward("embedded", "create", "nyc.planes", "--like", "planes.jsonl", "--store", "store")
    assert said.out.splitlines()[1].startswith("Columns, as planes.jsonl has them: id bigint, built ")
    assert "seats array<double>" in said.out
