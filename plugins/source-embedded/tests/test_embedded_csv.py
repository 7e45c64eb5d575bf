"""CSV files: what does not fit is named with file, column and row, and fields may be long."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lakeward.errors import RowError, UsageError
from lakeward.model.tables import TablePath
from lakeward_source_embedded import csv_records
from lakeward_source_embedded.columns import parse_columns
from lakeward_source_embedded.commands.like import columns_like
from lakeward_source_embedded.csv_files import read_csv
from lakeward_source_embedded.store import EmbeddedStore
from lakeward_testing.clock import FakeClock

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


def loaded(store: EmbeddedStore, file: Path) -> list[tuple[int, str | None]]:
    """Load a file; return its rows as they are stored."""
    store.load_file(PATH, file)
    rows = pa.Table.from_batches(read_csv(store.table(PATH), file, None)).to_pylist()
    assert len(rows) == sum(state.end for state in store.buckets(PATH))
    return [(row["id"], row["customer"]) for row in rows]


def test_line_breaks_in_quotes_make_no_rows_that_nobody_wrote(store: EmbeddedStore, file: Path) -> None:
    value = "x" * 490 + "\n10000000,evil"
    quoted = "".join(f'{number},"{value}"\n' for number in range(2400))
    file.write_text(f"id,customer\n{quoted}", encoding="utf-8")
    assert loaded(store, file) == [(number, value) for number in range(2400)]


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_no_line_break_is_lost_wherever_a_piece_ends(
    store: EmbeddedStore, file: Path, line_end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = ["a\r\nb", "", None, 'say ""hi""', "\r\n", "plain", 'half " an inch', "\n\n", 'tail" of', "a,b"]
    lines = [
        f"{n},"
        + ("" if value is None else f'"{value}"' if set(value) & set("\r\n,") or not value or '""' in value else value)
        for n, value in enumerate(values)
    ]
    file.write_bytes(line_end.join(["id,customer", *lines, ""]).encode())
    expected = [(n, value if value is None else value.replace('""', '"')) for n, value in enumerate(values)]
    assert loaded(store, file) == expected
    for size in range(1, len(file.read_bytes()) + 2):
        monkeypatch.setattr(csv_records, "PIECE_BYTES", size)
        rows = pa.Table.from_batches(read_csv(store.table(PATH), file, None)).to_pylist()
        assert [(row["id"], row["customer"]) for row in rows] == expected, size


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "with a mark"])
@pytest.mark.parametrize("end", [b"\n", b""], ids=["line break", "no line break"])
def test_a_mark_in_front_and_a_missing_line_break_at_the_end_change_nothing(
    store: EmbeddedStore, file: Path, mark: bytes, end: bytes
) -> None:
    file.write_bytes(mark + b"id,customer\n\n1,x\n2,y" + end)
    assert loaded(store, file) == [(1, "x"), (2, "y")]


def test_rows_are_counted_as_lines_of_the_file(store: EmbeddedStore, file: Path) -> None:
    file.write_bytes(b'id,customer\n1,"a\n\nb"\n\n2,x\nzz,y\n')
    with pytest.raises(RowError, match=r"column 'id', row 7: expected int64, found 'zz'"):
        store.load_file(PATH, file)


@pytest.mark.parametrize(
    ("text", "number"), [("007", 7), ("0x1F", 31), ("-5", -5), ("NULL", None), ("", None), ("\\N", None)]
)
def test_how_a_whole_number_may_be_written(tmp_path: Path, text: str, number: int | None) -> None:
    file, store = tmp_path / "numbers.csv", EmbeddedStore.create(tmp_path / "store", clock=FakeClock())
    store.create_table(PATH, parse_columns("id bigint, customer string"))
    file.write_text(f"id,customer\n{text},x\n", encoding="utf-8")
    assert loaded(store, file) == [(number, "x")]


@pytest.mark.parametrize("text", ["1e3", "1.0", "1_000", "+5", '"NULL"'])
def test_what_is_no_whole_number_is_refused(store: EmbeddedStore, file: Path, text: str) -> None:
    file.write_text(f"id,customer\n{text},x\n", encoding="utf-8")
    with pytest.raises(RowError, match="column 'id', row 2: expected int64, found"):
        store.load_file(PATH, file)


def test_a_quote_that_is_never_closed_is_refused(store: EmbeddedStore, file: Path) -> None:
    file.write_text('id,customer\n1,x\n2,"y\n3,z\n', encoding="utf-8")
    with pytest.raises(RowError, match=r"row 3: expected a closing quote, found the end of the file"):
        store.load_file(PATH, file)


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
