"""Files of dead letters are in step with the position of their split, and what no checkpoint names is deleted."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from lakeward.errors import RowError
from lakeward.model.dead_letters import KIND, table_of
from lakeward.model.results import LakeFile
from lakeward.model.splits import LogSplit
from lakeward.model.tables import TableBucket
from lakeward.subtask import dead_letter_files
from lakeward.subtask.dead_letter_files import DeadLetterFiles
from lakeward_testing.folder_lake import FolderLakePlugin
from lakeward_testing.lake_tables import COLUMNS, log_table, source_batch

BUCKET = TableBucket(7, 4, 1)


@pytest.fixture
def letters(tmp_path: Path) -> DeadLetterFiles:
    task, split = json.dumps([str(tmp_path), 1 << 30]).encode(), LogSplit("s", BUCKET, (), 0, 0)
    return DeadLetterFiles(partial(FolderLakePlugin().writer, task, table_of(log_table()), split, 1), split, "r/1-1-1")


def add(letters: DeadLetterFiles, *offsets: int) -> None:
    for offset in offsets:
        rows = source_batch(COLUMNS, [{"id": offset, "name": "x"}], start=offset)
        letters.add(rows.records, [RowError(f"no {offset}")])


def offsets_in(files: tuple[LakeFile, ...]) -> list[int]:
    assert {file.kind for file in files} <= {KIND}
    return [one for file in files for one in pa.ipc.open_file(file.path).read_all().column("offset").to_pylist()]


@pytest.fixture(params=[False, True], ids=["held", "written at once"])
def _held_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param:
        monkeypatch.setattr(dead_letter_files, "HELD_BYTES", 1)


@pytest.mark.usefixtures("_held_bytes")
def test_a_checkpoint_has_the_letters_up_to_its_position_and_the_end_has_all(letters: DeadLetterFiles) -> None:
    add(letters, 1, 2)
    letters.mark()
    add(letters, 3)
    assert offsets_in(letters.roll()) == [1, 2]
    assert offsets_in(letters.roll()) == [1, 2]
    letters.mark()
    add(letters, 4)
    assert offsets_in(letters.roll()) == [1, 2, 3]
    assert offsets_in(letters.close()) == [1, 2, 3, 4]


@pytest.mark.usefixtures("_held_bytes")
def test_what_a_checkpoint_may_name_stays_and_all_else_is_deleted(letters: DeadLetterFiles, tmp_path: Path) -> None:
    add(letters, 1)
    letters.mark()
    add(letters, 2)
    named = letters.roll()
    add(letters, 3)
    letters.close()
    letters.abort()
    assert {str(file) for file in tmp_path.rglob("*.arrow")} == {file.path for file in named}
    assert offsets_in(named) == [1]


def test_a_letter_says_where_its_row_was_and_why_it_is_one(letters: DeadLetterFiles) -> None:
    add(letters, 5)
    (file,) = letters.close()
    (found,) = pa.ipc.open_file(file.path).read_all().to_pylist()
    assert (found["partition_id"], found["bucket"], found["offset"]) == (4, 1, 5)
    assert (found["cause"], found["code"], found["round"]) == ("no 5", RowError.code, "r/1-1-1")
    assert json.loads(found["json"])["id"] == 5
    assert pa.ipc.open_stream(found["row"]).read_all().column("id").to_pylist() == [5]


def test_a_row_that_json_cannot_hold_has_none_and_its_neighbours_have_theirs(letters: DeadLetterFiles) -> None:
    rows = source_batch(COLUMNS, [{"id": one, "name": "x"} for one in range(3)]).records
    texts = pa.array([b"a", b"\xff", b"c"]).view(pa.string())
    rows = rows.set_column(rows.schema.get_field_index("name"), "name", texts)
    letters.add(rows, [RowError("broken")] * 3)
    (file,) = letters.close()
    found = pa.ipc.open_file(file.path).read_all()
    assert [one and json.loads(one)["name"] for one in found.column("json").to_pylist()] == ["a", None, "c"]
    names = [pa.ipc.open_stream(row).read_all().column("name") for row in found.column("row").to_pylist()]
    assert [one.chunk(0).view(pa.binary()).to_pylist() for one in names] == [[b"a"], [b"\xff"], [b"c"]]
