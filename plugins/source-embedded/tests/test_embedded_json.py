"""JSON lines: values of each type, what does not fit, and columns that are guessed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakeward.errors import RowError
from lakeward.model.tables import TablePath
from lakeward_source_embedded import json_rows
from lakeward_source_embedded.columns import columns_text, parse_columns
from lakeward_source_embedded.commands.like import columns_like
from lakeward_source_embedded.json_rows import read_json_lines
from lakeward_source_embedded.store import EmbeddedStore
from lakeward_testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PATH = TablePath("shop", "orders")
EVERY_TYPE = (
    "id bigint not null, b boolean, i8 tinyint, f float, d double, m decimal(20,4), s string, raw bytes, "
    "fix binary(2), "
    "day date, t time(3), at timestamp(9), z timestamp_ltz(6), tags array<date>, "
    "costs map<string, decimal(5,2)>, codes map<int, string>, place row<x double, at timestamp(3)>"
)
LINE = (
    '{"id": 9007199254740993, "b": true, "i8": -128, "f": 1.5, "d": 2, "m": 1234567890123456.7891, "s": "ä", '
    '"raw": "Af8=", "fix": "AAE=", "day": "2024-02-29", "t": "23:59:59.123", "at": "2024-02-29T12:00:00.123456789", '
    '"z": "2024-02-29T12:00:00.5+01:00", "tags": ["2024-01-01", null], "costs": {"a": 1.25}, "codes": {"7": "x"}, '
    '"place": {"x": 0.5, "at": "2024-01-01 00:00:00"}}'
)


@pytest.fixture
def store(tmp_path: Path) -> EmbeddedStore:
    """A store with a table that has every type."""
    made = EmbeddedStore.create(tmp_path / "store", clock=FakeClock())
    made.create_table(PATH, parse_columns(EVERY_TYPE))
    return made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The path of a file that is not there yet."""
    return tmp_path / "orders.jsonl"


def read(store: EmbeddedStore, file: Path) -> list[Mapping[str, object]]:
    """Return the rows; `at` as nanoseconds, for which Python has no type of its own."""
    rows: list[Mapping[str, object]] = []
    for batch in read_json_lines(store.table(PATH), file, None):
        names = batch.schema.names
        columns = [batch[name].cast("int64") if name == "at" else batch[name] for name in names]
        rows += pa.RecordBatch.from_arrays(columns, names).to_pylist()
    return rows


def test_values_of_each_type_are_kept_exactly(store: EmbeddedStore, file: Path) -> None:
    file.write_text(f"{LINE}\n", encoding="utf-8")
    (row,) = read(store, file)
    texts = {name: str(value) for name, value in row.items()}
    assert (row["id"], row["b"], row["i8"], row["f"], row["d"]) == (9007199254740993, True, -128, 1.5, 2.0)
    assert texts["m"] == "1234567890123456.7891"
    assert (row["s"], row["raw"], row["fix"]) == ("ä", b"\x01\xff", b"\x00\x01")
    assert (texts["day"], texts["t"]) == ("2024-02-29", "23:59:59.123000")
    assert row["at"] == 1709208000_123456789
    assert texts["z"] == "2024-02-29 11:00:00.500000+00:00"
    assert texts["tags"] == "[datetime.date(2024, 1, 1), None]"
    assert (texts["costs"], row["codes"]) == ("[('a', Decimal('1.25'))]", [(7, "x")])
    assert texts["place"] == "{'x': 0.5, 'at': datetime.datetime(2024, 1, 1, 0, 0)}"


def test_the_greatest_floats_and_infinity_are_kept(store: EmbeddedStore, file: Path) -> None:
    lines = '{"id": 1, "f": 3.4028234663852886e38, "d": 1.7976931348623157e308}\n{"id": 2, "f": -Infinity}\n'
    file.write_text(lines, encoding="utf-8")
    found = [(row["f"], row.get("d")) for row in read(store, file)]
    assert found == [(3.4028234663852886e38, 1.7976931348623157e308), (float("-inf"), None)]


def test_columns_may_be_missing_and_lines_empty(store: EmbeddedStore, file: Path) -> None:
    file.write_text('\ufeff{"id": 1}\n\n{"s": "x", "id": 2}', encoding="utf-8")
    assert store.load_file(PATH, file) == 2
    assert [(row["id"], row["s"]) for row in read(store, file)] == [(1, None), (2, "x")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "1"}', "column 'id', row 3: expected int64, found '1'"),
        ('{"id": 1.5}', r"column 'id', row 3: expected int64, found Decimal\('1.5'\)"),
        ('{"id": true}', "column 'id', row 3: expected int64, found True"),
        ('{"id": 9223372036854775808}', "column 'id', row 3: expected int64, found 9223372036854775808"),
        ('{"id": 1, "i8": 128}', "column 'i8', row 3: expected int8, found 128"),
        ('{"id": 1, "b": "true"}', "column 'b', row 3: expected bool, found 'true'"),
        ('{"id": 1, "s": 5}', "column 's', row 3: expected string, found 5"),
        ('{"id": 1, "m": "12,5"}', r"column 'm', row 3: expected decimal128\(20, 4\), found '12,5'"),
        ('{"id": 1, "m": 1.23456}', r"column 'm', row 3: expected decimal128\(20, 4\), found Decimal\('1.23456'\)"),
        ('{"id": 1, "raw": "?"}', r"column 'raw', row 3: expected binary, found '\?'"),
        ('{"id": 1, "day": "yesterday"}', "column 'day', row 3: expected date32"),
        ('{"id": 1, "t": "24:00"}', "column 't', row 3: expected time32"),
        ('{"id": 1, "t": "10:00:00.0001"}', "column 't', row 3: expected time32"),
        ('{"s": "x"}', "column 'id', row 3: expected int64 not null, found None"),
        ('{"id": 1, "z": "2024-01-01 00:00:00"}', "column 'z', row 3: expected timestamp"),
        ('{"id": 1, "tags": "2024-01-01"}', "column 'tags', row 3: expected list"),
        ('{"id": 1, "codes": {"x": "y"}}', "column 'codes', row 3: expected map"),
        ('{"id": 1, "place": {"y": 1}}', "column 'place', row 3: expected struct"),
        ('{"id": 1, "id": 2}', "row 3: expected a JSON object, found .*it names something twice"),
        ('{"id": 1, "place": {"x": 1, "x": 2}}', "row 3: expected a JSON object, found .*it names something twice"),
        ('{"id": 1, "s": "\\ud800"}', "column 's', row 3: expected string"),
        ('{"id": 1, "d": 1e400}', "column 'd', row 3: expected double"),
        pytest.param(f'{{"id": 1, "d": {10**400}}}', "column 'd', row 3: expected double", id="a long number"),
        ('{"id": 1, "f": 1e39}', "column 'f', row 3: expected float"),
        pytest.param(f'{{"id": {"[" * 100_000}', "row 3: expected a JSON object", id="too deep"),
        ('{"id": 1, "colour": 1}', "row 3: expected the columns id, b, .*found 'colour'"),
        ('{"id": 1', "row 3: expected a JSON object, found '{\"id\": 1' "),
        ("[1]", "row 3: expected a JSON object, found '\\[1\\]' .found a JSON list"),
    ],
)
def test_what_does_not_fit_is_named_with_column_and_line(
    store: EmbeddedStore, file: Path, line: str, message: str
) -> None:
    file.write_text(f'{{"id": 1}}\n{{"id": 2}}\n{line}\n', encoding="utf-8")
    with pytest.raises(RowError, match=rf"orders\.jsonl: table shop\.orders.*{message}.*No row of the file is stored"):
        store.load_file(PATH, file)


def test_the_line_is_right_after_many_batches(
    store: EmbeddedStore, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_rows, "_BATCH_ROWS", 10)
    lines = [json.dumps({"id": number, "day": "2024-01-01"}) for number in range(35)]
    file.write_text("\n".join([*lines, '{"id": 1, "day": "2024-13-01"}']), encoding="utf-8")
    with pytest.raises(RowError, match="column 'day', row 36: expected date32"):
        read(store, file)


def test_columns_are_guessed_and_named_as_create_takes_them(file: Path) -> None:
    file.write_text(
        '{"id": 1, "name": "a", "cost": 1.5, "on": true, "tags": ["x"], "at": {"x": 1}}\n', encoding="utf-8"
    )
    text = columns_text(columns_like(file, None))
    assert text == "id bigint, name string, cost double, on boolean, tags array<string>, at row<x bigint>"


def test_every_type_is_written_as_it_is_read() -> None:
    schema = parse_columns(f"{EVERY_TYPE}, `odd name` row<a int not null, `b c` map<string, int not null>> not null")
    assert parse_columns(columns_text(schema)).equals(schema)
