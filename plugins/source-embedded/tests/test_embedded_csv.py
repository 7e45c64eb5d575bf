"""CSV files: what does not fit is named with file, column and row, and fields may be long."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lakeward.errors import RowError, UsageError
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


def test_an_error_far_down_says_how_many_rows_are_stored_and_the_load_goes_on_behind_them(
    store: EmbeddedStore, file: Path
) -> None:
    """A load is stored in steps of up to a million rows: those before the one that failed are there."""
    lines = [f"{number},c" for number in range(1_400_000)]
    lines[1_200_000] = "zz,c"
    _write(file, lines)
    with pytest.raises(RowError, match=r"column 'id', row 1200002: expected int64, found 'zz'") as caught:
        store.load_file(PATH, file)
    stored = sum(state.end for state in store.buckets(PATH))
    assert 900_000 < stored <= 1_000_000
    assert str(caught.value).endswith(
        f". The first {stored} rows of the file are stored: correct it and load it again with --skip-rows {stored}"
    )
    lines[1_200_000] = "1200000,c"
    _write(file, lines)
    assert store.load_file(PATH, file, skip_rows=stored) == 1_400_000 - stored
    assert sum(state.end for state in store.buckets(PATH)) == 1_400_000


def test_an_error_in_the_first_step_says_that_nothing_is_stored(store: EmbeddedStore, file: Path) -> None:
    _write(file, ["1,a", "zz,b"])
    with pytest.raises(RowError, match=r"found 'zz'\. No row of the file is stored: correct it and load it again$"):
        store.load_file(PATH, file)


def test_an_error_behind_rows_that_were_skipped_counts_them_as_stored(store: EmbeddedStore, file: Path) -> None:
    _write(file, ["1,a", "2,b", "zz,c"])
    with pytest.raises(RowError, match=r"row 4: .*The first 2 rows of the file are stored: .* --skip-rows 2$"):
        store.load_file(PATH, file, skip_rows=2)
    assert sum(state.end for state in store.buckets(PATH)) == 0


def test_more_rows_cannot_be_skipped_than_there_are(store: EmbeddedStore, file: Path) -> None:
    _write(file, ["1,a", "2,b"])
    assert store.load_file(PATH, file, skip_rows=2) == 0
    with pytest.raises(UsageError, match=rf"^{file}: expected at least 3 rows to skip, found 2$"):
        store.load_file(PATH, file, skip_rows=3)


def _write(file: Path, lines: list[str]) -> None:
    file.write_text("\n".join(["id,customer", *lines, ""]), encoding="utf-8")
