from __future__ import annotations

from collections.abc import Callable
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
    ],
)
def test_a_wrong_word_is_named(lakeward: Lakeward, words: tuple[str, ...], text: str) -> None:
    said = lakeward("embedded", *words, "--store", "store")
    assert said.code == 2
    assert text in said.err


def test_a_table_can_be_changed_looked_after_and_dropped(flights: Lakeward) -> None:
    assert flights("embedded", "add-column", "nyc.flights", "delay double").code == 0
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


@pytest.mark.parametrize("command", ["rename-column", "drop-column", "alter-column"])
def test_a_change_of_columns_that_there_is_not_is_answered_with_what_to_do(lakeward: Lakeward, command: str) -> None:
    said = lakeward("embedded", command, "a.b", "x", "y")
    assert said.code == 2
    assert "columns are only added (`add-column`). For others, create a new table and load it." in said.err


def test_an_unknown_property_is_refused_with_the_nearest_one(flights: Lakeward) -> None:
    said = flights("embedded", "set-property", "nyc.flights", "table.log.ttl", "1")
    assert said.code == 2
    assert said.err.startswith("error[LW-200]: table.log.ttl: expected one of table.kv.snapshot.interval-s, ")
    assert said.err.endswith("found 'table.log.ttl'. Did you mean 'table.log.ttl-s'?\n")
