from __future__ import annotations

import pyarrow as pa
import pytest

from lakeward.errors import LogGapError, RowCountError, SourceError
from lakeward.model.bad_rows import NO_BAD_ROWS
from lakeward.model.batches import SourceBatch
from lakeward.model.checkpoints import SplitProgress
from lakeward.model.results import LakeFile
from lakeward.model.splits import LogSplit
from lakeward.model.tables import OFFSET_COLUMN, TableBucket
from lakeward.subtask.row_account import RowAccount
from lakeward_testing.lake_tables import log_table

SPLIT = LogSplit("b0-0", TableBucket(7, None, 0), (), 10, 20)
WHERE = "table shop.orders, bucket 7/0"


def account(position: int = 10, rows: int = 0, files: tuple[LakeFile, ...] = ()) -> RowAccount:
    return RowAccount(log_table(), SplitProgress(SPLIT, position, files, rows, -1))


def batch(offsets: list[int], end: int, empty: int | None = 0) -> SourceBatch:
    records = pa.record_batch([pa.array(offsets, pa.int64())], names=[OFFSET_COLUMN])
    return SourceBatch(records, end, empty_offsets=empty)


def file(path: str, rows: int, kind: str = "data") -> LakeFile:
    return LakeFile(path, kind, rows, 1)


def test_a_hole_before_a_batch_names_both_offsets() -> None:
    rows = account()
    rows.take(batch([10, 11], 12))
    with pytest.raises(LogGapError, match=f"{WHERE}: expected log records from offset 12, found them from offset 15"):
        rows.take(batch([15, 16], 17))


def test_a_hole_within_a_batch_names_both_offsets() -> None:
    with pytest.raises(LogGapError, match="from offset 11, found them from offset 13"):
        account().take(batch([10, 13], 14))


@pytest.mark.parametrize(("offsets", "end"), [([], 20), ([10, 11], 20)])
def test_records_that_a_batch_lacks_are_counted(offsets: list[int], end: int) -> None:
    with pytest.raises(RowCountError, match=f"expected 10 records from offset 10 to 20.* found {len(offsets)}"):
        account().take(batch(offsets, end))


def test_offsets_that_the_source_says_hold_no_record_are_no_hole() -> None:
    rows = account()
    rows.take(batch([12], 15, empty=4))
    rows.take(batch([], 20, empty=5))
    rows.check_end()
    with pytest.raises(RowCountError, match="3 offsets hold none"):
        account().take(batch([12], 15, empty=3))


@pytest.mark.parametrize("offsets", [[9, 10], [10, 10], [11, 10], [10, 12]])
@pytest.mark.parametrize("empty", [0, None])
def test_offsets_that_go_back_or_beyond_the_batch_are_an_error(offsets: list[int], empty: int | None) -> None:
    with pytest.raises(RowCountError, match="expected ascending offsets from 10"):
        account().take(batch(offsets, 12, empty))


def test_a_split_whose_source_ends_early_is_an_error_that_names_both_offsets() -> None:
    rows = account()
    rows.take(batch([10, 11], 12))
    with pytest.raises(SourceError, match="up to offset 20, found none from offset 12 on"):
        rows.check_end()


def test_rows_in_are_rows_out() -> None:
    rows = account()
    rows.take(batch([10, 11, 12, 13, 14], 15))
    rows.check_written([file("a", 2), file("b", 3)], 0, NO_BAD_ROWS)
    rows.check_written([file("a", 2), file("b-deletes", 7, "deletes")], 3, NO_BAD_ROWS)
    with pytest.raises(RowCountError, match="5 records were read, 4 rows were written, 0 records needed none and 0 do"):
        rows.check_written([file("a", 4)], 0, NO_BAD_ROWS)


def test_rows_of_the_progress_that_it_went_on_from_are_not_counted_again() -> None:
    before = file("before", 5)
    rows = account(15, 5, (before,))
    rows.take(batch([15, 16], 17))
    rows.check_written([before, file("a", 2)], 0, NO_BAD_ROWS)
