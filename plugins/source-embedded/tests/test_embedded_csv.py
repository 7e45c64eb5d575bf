"""CSV files: what does not fit is named with file, column and row, and fields may be long."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lakeward.errors import RowError
from lakeward.model.tables import TablePath
from lakeward.testing.clock import FakeClock
from lakeward_source_embedded.columns import parse_columns
from lakeward_source_embedded.commands.like import columns_like
from lakeward_source_embedded.store import EmbeddedStore

PATH = TablePath("shop", "orders")
SCHEMA = parse_columns("id bigint not null, customer string")


@pytest.fixture
def store(tmp_path: Path) -> EmbeddedStore:
    """A store with one log table."""
    made = EmbeddedStore.create(tmp_path / "store", clock=FakeClock())
    made.create_table(PATH, SCHEMA)
    return made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The path of a CSV file that is not there yet."""
    return tmp_path / "orders.csv"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"id,customer\n1,x\nzz,y\n", r"column 'id', row 3: expected int64, found 'zz'"),
        (b"customer,id\nx,1.5\n", r"column 'id', row 2: expected int64, found '1.5'"),
        (b"id,customer\n1,x\n2,y,z\n", r"row 3: expected 2 columns, found 3: '2,y,z'"),
        (b"id,customer\n1,x\n2,\xe9\n", r"column 'customer', row 3: expected text in UTF-8, found other bytes"),
        (b"id,id,customer\n1,2,x\n", r"expected distinct column names, found 'id' 2 times"),
        (b"id,name\n1,x\n", r"expected the columns id, customer, found 'name'"),
        (b"", r"expected a header and rows, found an empty file"),
    ],
)
def test_what_does_not_fit_is_named_with_file_column_and_row(
    store: EmbeddedStore, file: Path, text: bytes, message: str
) -> None:
    file.write_bytes(text)
    with pytest.raises(RowError, match=rf"^{file}: table shop\.orders.*{message}"):
        store.load_file(PATH, file)


def test_the_row_is_right_far_down_in_a_file(store: EmbeddedStore, file: Path) -> None:
    lines = "".join(f"{number},customer number {number}\n" for number in range(120_000))
    file.write_text(f"id,customer\n{lines}x,y\n", encoding="utf-8")
    with pytest.raises(RowError, match=r"column 'id', row 120002: expected int64, found 'x'"):
        store.load_file(PATH, file)


def test_a_value_of_megabytes_is_shortened_in_the_message(store: EmbeddedStore, file: Path) -> None:
    file.write_text(f"id,customer\n{'9' * 2_000_000},a\n", encoding="utf-8")
    with pytest.raises(RowError, match="column 'id', row 2") as caught:
        store.load_file(PATH, file)
    assert len(str(caught.value)) < 500


def test_fields_of_forty_megabytes_are_loaded_and_no_row_twice(store: EmbeddedStore, file: Path) -> None:
    long = "a" * 40_000_000
    short = "".join(f"{number},b\n" for number in range(300_000))
    file.write_text(f"id,customer\n{short}300000,{long}\n300001,c\n", encoding="utf-8")
    assert store.load_file(PATH, file) == 300_002


def test_columns_are_taken_from_a_file_with_a_long_first_row(file: Path) -> None:
    file.write_text(f"id,customer\n1,{'a' * 3_000_000}\n", encoding="utf-8")
    assert columns_like(file, None) == pa.schema({"id": pa.int64(), "customer": pa.string()})
