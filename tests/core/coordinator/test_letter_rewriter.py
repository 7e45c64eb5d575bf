"""Dead letters are taken out of their table beside whoever adds others, and nothing else is lost with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakeward.coordinator.commits.letter_rewriter import LetterChange, LetterRewriter
from lakeward.errors import CommitConflictError, FencedError, OutcomeUnknownError, RowError
from lakeward.model.batches import SourceBatch
from lakeward.model.dead_letters import SCHEMA, Reason, digests, letters_of, path_of, read_back, table_of
from lakeward.model.identity import REPLAY, RoundId
from lakeward.model.results import CommitRequest, RewriteRequest
from lakeward.model.splits import LogSplit
from lakeward.model.tables import TableBucket
from lakeward_service_kit.checkpoint_values import FIRST, SECOND
from lakeward_testing.folder_lake import FolderLake, FolderLakePlugin
from lakeward_testing.lake_tables import COLUMNS, PATH, log_table, source_batch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LETTERS = table_of(log_table())
ID = RoundId(SECOND, 7, REPLAY, 1)


@pytest.fixture
def lake(tmp_path: Path) -> FolderLake:
    """A lake with the dead letters of offsets 0 to 3 of one round."""
    found = FolderLake(tmp_path)
    found.open_table(LETTERS, FIRST)
    found.stamp(LETTERS.path, FIRST)
    add(found, [0, 1, 2, 3])
    return found


def letters(offsets: Sequence[int]) -> pa.RecordBatch:
    rows = source_batch(COLUMNS, [{"id": one, "name": "x"} for one in offsets], start=offsets[0]).records
    errors = [RowError(f"no {one}") for one in offsets]
    return letters_of(rows, errors, LogSplit("s", TableBucket(7, None, 0), (), 0, 9), "r/7-1-1")


def add(lake: FolderLake, offsets: Sequence[int], number: int = 1) -> None:
    """Commit letters as a round does."""
    round_id, head = RoundId(FIRST, 7, 1, number), lake.head(LETTERS.path)
    assert head is not None
    split = LogSplit("s", TableBucket(7, None, 0), (), 0, 9)
    writer = FolderLakePlugin().writer(lake.writer_task(LETTERS, head, round_id), LETTERS, split, 0)
    writer.write(SourceBatch(letters(offsets), 0))
    base = None if head.commit is None else head.commit.snapshot_id
    files = writer.close()
    ids = lake.new_ids(LETTERS.path)
    lake.commit(CommitRequest(LETTERS.path, 7, FIRST, round_id, 1, ids, base, files, {}, None))


def named(lake: FolderLake, *offsets: int) -> frozenset[bytes]:
    """Return the digests of letters that are there."""
    head = lake.head(LETTERS.path)
    assert head is not None
    assert head.snapshot_id is not None
    batches = [read_back(rows) for rows in lake.read_rows(head.path, head.snapshot_id)]
    found = {at: name for one in batches for at, name in zip(one["offset"].to_pylist(), digests(one), strict=True)}
    return frozenset(found[one] for one in offsets if one in found)


def rows(lake: FolderLake) -> dict[int, dict[str, object]]:
    """Return the letters by their offsets."""
    return {row["offset"]: {name: row[name] for name in SCHEMA.names} for row in lake.read(LETTERS.path)}


def offsets_in(lake: FolderLake) -> list[int]:
    return sorted(row["offset"] for row in lake.read(path_of(PATH)))


def unnamed_files(lake: FolderLake) -> frozenset[str]:
    files = frozenset(lake.files_on_disk(LETTERS.path))
    return files - lake.referenced(LETTERS.path, files)


def rewrite(lake: FolderLake, *gone: int, **options: Any) -> int:  # noqa: ANN401 - of any type
    return LetterRewriter(lake, FolderLakePlugin).rewrite(LETTERS.path, ID, LetterChange(named(lake, *gone)), **options)


def test_letters_are_taken_out_and_those_that_stay_are_as_they_were(lake: FolderLake) -> None:
    before = rows(lake)
    assert rewrite(lake, 1, 3) == 2
    assert rows(lake) == {one: before[one] for one in (0, 2)}


def test_letters_that_are_gone_already_are_not_missed_and_nothing_is_written(lake: FolderLake) -> None:
    gone = LetterChange(named(lake, 1))
    rewriter = LetterRewriter(lake, FolderLakePlugin)
    assert rewriter.rewrite(LETTERS.path, ID, gone) == 1
    head = lake.head(LETTERS.path)
    assert rewriter.rewrite(LETTERS.path, ID, gone) == 0
    assert lake.head(LETTERS.path) == head


def test_all_letters_can_be_taken_out_and_others_come_later(lake: FolderLake) -> None:
    assert rewrite(lake, 0, 1, 2, 3) == 4
    assert offsets_in(lake) == []
    add(lake, [8], 2)
    assert offsets_in(lake) == [8]


def test_letters_that_a_service_adds_meanwhile_stay(lake: FolderLake) -> None:
    def add_first(_: RewriteRequest) -> None:
        lake.before_rewrite = lambda _: None
        add(lake, [7], 2)

    lake.before_rewrite = add_first
    assert rewrite(lake, 1) == 1
    assert offsets_in(lake) == [0, 2, 3, 7]
    assert unnamed_files(lake) == frozenset()


@pytest.mark.parametrize("moment", ["before_rewrite", "after_rewrite"])
def test_a_rewrite_of_unknown_outcome_is_made_again(lake: FolderLake, moment: str) -> None:
    def lose(_: RewriteRequest) -> None:
        setattr(lake, moment, lambda _: None)
        message = "no answer"
        raise OutcomeUnknownError(message)

    setattr(lake, moment, lose)
    assert rewrite(lake, 1) == 1
    assert offsets_in(lake) == [0, 2, 3]
    assert unnamed_files(lake) == frozenset()


def test_a_lake_that_never_answers_leaves_it_open_and_no_file_is_deleted(lake: FolderLake) -> None:
    def lose(_: RewriteRequest) -> None:
        message = "no answer"
        raise OutcomeUnknownError(message)

    lake.before_rewrite = lose
    with pytest.raises(OutcomeUnknownError, match="may still be rewritten"):
        rewrite(lake, 1)
    assert offsets_in(lake) == [0, 1, 2, 3]
    assert unnamed_files(lake) != frozenset()


def test_who_comes_last_each_time_gives_up_and_leaves_no_file(lake: FolderLake) -> None:
    numbers = iter(range(2, 100))
    lake.before_rewrite = lambda _: add(lake, [50 + next(numbers)], next(numbers))
    with pytest.raises(CommitConflictError, match="lost the race"):
        rewrite(lake, 1)
    assert 1 in offsets_in(lake)
    assert unnamed_files(lake) == frozenset()


def test_a_start_that_was_overtaken_takes_nothing_out(lake: FolderLake) -> None:
    with pytest.raises(FencedError):
        rewrite(lake, 1, stamp=SECOND)
    assert offsets_in(lake) == [0, 1, 2, 3]
    assert unnamed_files(lake) == frozenset()


def test_a_letter_gets_another_reason_and_keeps_its_column_unless_that_is_another_one(lake: FolderLake) -> None:
    first, second = (next(iter(named(lake, one))) for one in (0, 1))
    reasons = {first: Reason("too late", "LW-414"), second: Reason("too long", "LW-406", "name")}
    assert LetterRewriter(lake, FolderLakePlugin).rewrite(LETTERS.path, ID, LetterChange((), reasons)) == 0
    found = {row["offset"]: (row["cause"], row["code"], row["column_name"]) for row in lake.read(LETTERS.path)}
    assert found[0] == ("too late", "LW-414", "")
    assert found[1] == ("too long", "LW-406", "name")
    assert found[2] == ("no 2", "LW-406", "")
