"""A split in work, whole and in halves: embedded source to folder lake."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from msgspec import structs

from lakeward.errors import RowCountError, RowError, StorageError
from lakeward.model.bad_rows import BadRows
from lakeward.model.checkpoints import SplitProgress
from lakeward.model.results import LakeFile
from lakeward.model.splits import LogSplit, SnapshotSplit, Split
from lakeward.model.tables import TablePath, TableSpec
from lakeward.subtask.mailbox import Mailbox
from lakeward.subtask.reading import Read
from lakeward.subtask.row_filter import RowFilter
from lakeward.subtask.work import SplitWork
from lakeward.threads import ThreadExecutor
from lakeward_source_embedded.reader import EmbeddedReader
from lakeward_source_embedded.store import EmbeddedStore
from lakeward_testing.clock import FakeClock
from lakeward_testing.folder_lake import FolderLakePlugin

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakeward.ports import RowCheck, SourceBatch

PATH = TablePath("shop", "orders")
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
BATCH = 70_000
"""Rows of a load: each becomes a batch of its own."""
ROWS = 4 * BATCH
HUGE = 1 << 40


class Halves:
    """A table of four batches, and splits of it that are worked on for a while."""

    def __init__(self, store: EmbeddedStore, folder: Path, clock: FakeClock) -> None:
        self._store = store
        self.root = store.root
        self._folder = folder
        self._clock = clock
        self.table: TableSpec
        self.attempt = 0

    def log(self) -> LogSplit:
        self.table = self._store.create_table(PATH, SCHEMA)
        for start in range(0, ROWS, BATCH):
            self._store.load(PATH, _rows(start))
            self._clock.advance(1)
        (bucket,) = self._store.buckets(PATH)
        return LogSplit("log-0", bucket.bucket, (), 0, ROWS)

    def snapshot(self) -> SnapshotSplit:
        self.table = self._store.create_table(PATH, SCHEMA, primary_key=("id",))
        for start in range(0, ROWS, BATCH):
            self._store.load(PATH, _rows(start))
        self._store.snapshot(PATH)
        (bucket,) = self._store.buckets(PATH)
        assert bucket.snapshot is not None
        return SnapshotSplit("kv-0", bucket.bucket, (), bucket.snapshot.snapshot_id, bucket.snapshot.log_offset)

    def begin(
        self,
        progress: SplitProgress,
        target_bytes: int = 0,
        *,
        check: RowCheck | None = None,
        most: float = HUGE,
    ) -> tuple[SplitWork, Mailbox]:
        self.attempt += 1
        mailbox = Mailbox()
        task = json.dumps([str(self._folder), target_bytes]).encode()
        writer = FolderLakePlugin().writer(task, self.table, progress.split, self.attempt, progress)
        reader = EmbeddedReader(self._store.root, self.table)
        rows = RowFilter(PATH, progress, check, most)
        return SplitWork(self.table, progress, reader, writer, self._clock, ThreadExecutor(), mailbox, rows), mailbox


@pytest.fixture
def halves(tmp_path: Path) -> Iterator[Halves]:
    clock = FakeClock()
    with EmbeddedStore.create(tmp_path / "store", clock=clock) as store:
        yield Halves(store, tmp_path / "lake", clock)


def _rows(start: int) -> pa.Table:
    ids = np.arange(start, start + BATCH)
    return pa.table([pa.array(ids), pa.array(ids).cast(pa.string())], schema=SCHEMA)


def _take(work: SplitWork, mailbox: Mailbox, batches: int = 100) -> bool:
    """Write some batches; return whether the split ended."""
    for _ in range(batches):
        read = mailbox.get(60)
        assert isinstance(read, Read)
        assert read.error is None
        if read.batch is None:
            return True
        work.write(read.batch, read.read_s)
        work.read_on()
    return False


def _ids(files: tuple[LakeFile, ...]) -> list[int]:
    return [one for file in files for one in pa.ipc.open_file(file.path).read_all().column("id").to_pylist()]


def _split(halves: Halves, kind: str) -> Split:
    return halves.log() if kind == "log" else halves.snapshot()


@pytest.mark.parametrize("kind", ["log", "snapshot"])
def test_parts_give_what_the_whole_gives(halves: Halves, kind: str) -> None:
    split = _split(halves, kind)
    work, mailbox = halves.begin(SplitProgress.beginning(split))
    assert _take(work, mailbox)
    whole = work.close()

    progress = SplitProgress.beginning(split)
    for _ in range(2):
        work, mailbox = halves.begin(progress)
        assert not _take(work, mailbox, 1)
        progress = work.roll()
        _take(work, mailbox, 1)
        work.abort()
    assert progress.position == progress.rows
    work, mailbox = halves.begin(progress)
    assert _take(work, mailbox)
    result = work.close()

    assert sorted(_ids(result.files)) == sorted(_ids(whole.files)) == list(range(ROWS))
    assert result.files[: len(progress.files)] == progress.files
    assert structs.replace(result, files=(), timings_s={}) == structs.replace(whole, files=(), timings_s={})


@pytest.mark.parametrize("kind", ["log", "snapshot"])
def test_rows_that_do_not_fit_are_counted_once_however_often_the_split_is_begun_anew(halves: Halves, kind: str) -> None:
    """Each try finds every second row of the third batch bad: it is read by all tries, and counts in the last one."""
    split = _split(halves, kind)

    def check(records: pa.RecordBatch) -> dict[int, RowError]:
        first = records.column("id")[0].as_py()
        return {row: RowError(f"row {row}") for row in range(0, BATCH, 2)} if first == 2 * BATCH else {}

    progress = SplitProgress.beginning(split)
    for _ in range(2):
        work, mailbox = halves.begin(SplitProgress.beginning(split), check=check)
        assert not _take(work, mailbox, 3)
        progress = work.roll()
        work.abort()
    work, mailbox = halves.begin(progress, check=check)
    assert _take(work, mailbox)
    assert (progress.bad_rows, progress.rows) == (BadRows(dropped=BATCH // 2, first="row 0"), 3 * BATCH)
    result = work.close()
    assert (result.bad_rows, result.rows) == (progress.bad_rows, ROWS)
    assert _ids(result.files) == [one for one in range(ROWS) if not 2 * BATCH <= one < 3 * BATCH or one % 2]


def test_more_rows_that_do_not_fit_than_a_round_may_have_end_the_split_at_once(halves: Halves) -> None:
    work, mailbox = halves.begin(
        SplitProgress.beginning(halves.log()), check=lambda _: {7: RowError("row 7")}, most=2.0
    )
    with pytest.raises(RowError, match=f"3 of {3 * BATCH} records do not fit .* allows 2 rows .* first of them: row 7"):
        _take(work, mailbox)
    work.abort()


def test_progress_is_that_of_the_roll(halves: Halves) -> None:
    work, mailbox = halves.begin(SplitProgress.beginning(halves.log()))
    _take(work, mailbox, 2)
    rolled = work.roll()
    _take(work, mailbox, 1)
    assert (rolled.position, rolled.rows, len(rolled.files)) == (2 * BATCH, 2 * BATCH, 1)
    work.abort()
    assert _ids(rolled.files) == list(range(2 * BATCH))


def test_what_is_in_a_small_open_file_counts_as_not_read(halves: Halves) -> None:
    split = halves.log()
    work, mailbox = halves.begin(SplitProgress.beginning(split), HUGE)
    _take(work, mailbox, 2)
    rolled = work.roll()
    assert rolled == structs.replace(SplitProgress.beginning(split), timings_s=rolled.timings_s)
    assert work.rows == 2 * BATCH
    work.abort()


def test_below_half_the_position_is_the_end_of_the_last_file_that_was_full(halves: Halves) -> None:
    """Three batches fill a file, which closes by itself; the fourth is below half of one."""
    work, mailbox = halves.begin(SplitProgress.beginning(halves.log()))
    _take(work, mailbox, 1)
    work.abort()
    work, mailbox = halves.begin(SplitProgress.beginning(work.split), target_bytes=work.size_bytes * 5 // 2)
    _take(work, mailbox, 4)
    rolled = work.roll()
    assert (rolled.position, rolled.rows, work.rows) == (3 * BATCH, 3 * BATCH, 4 * BATCH)
    assert _ids(rolled.files) == list(range(3 * BATCH))
    work.abort()


def test_times_of_both_halves_are_added(halves: Halves) -> None:
    split = halves.log()
    progress = structs.replace(SplitProgress.beginning(split), timings_s={"read": 100.0, "decode": 7.0})
    work, mailbox = halves.begin(progress)
    _take(work, mailbox)
    timings = work.close().timings_s
    assert timings["read"] >= 100.0
    assert timings["decode"] == 7.0


def test_a_split_of_which_only_the_end_was_not_reported_is_closed_at_once(halves: Halves) -> None:
    first, mailbox = halves.begin(SplitProgress.beginning(halves.log()))
    assert _take(first, mailbox)
    progress = first.roll()
    first.abort()
    second, mailbox = halves.begin(progress)
    assert _take(second, mailbox)
    result = second.close()
    assert result.files == progress.files
    assert (result.end_offset, result.rows) == (ROWS, ROWS)


class Losing:
    """A writer that loses rows."""

    left_out = 0
    all_rows_flushed = False
    timings_s: ClassVar[dict[str, float]] = {}

    def write(self, batch: SourceBatch) -> None:
        self.taken = batch

    def roll(self) -> tuple[LakeFile, ...]:
        return ()

    def close(self) -> tuple[LakeFile, ...]:
        return (LakeFile("a", "data", 0, 1),)

    def abort(self) -> None:
        return


def test_a_writer_that_loses_rows_fails_the_split_with_both_counts(halves: Halves) -> None:
    split, mailbox = halves.log(), Mailbox()
    reader = EmbeddedReader(halves.root, halves.table)
    work = SplitWork(
        halves.table, SplitProgress.beginning(split), reader, Losing(), FakeClock(), ThreadExecutor(), mailbox
    )
    assert _take(work, mailbox)
    with pytest.raises(RowCountError, match=f"{ROWS} records were read, 0 rows were written"):
        work.close()


class Refusing(Losing):
    """A writer that refuses rows in words of its own."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def write(self, batch: SourceBatch) -> None:
        raise self._error


@pytest.mark.parametrize("error", [pa.ArrowInvalid("no"), pa.ArrowCapacityError("no"), OverflowError("no")])
def test_what_a_writer_says_of_a_value_becomes_an_error_of_its_rows(halves: Halves, error: Exception) -> None:
    split, mailbox = halves.log(), Mailbox()
    reader = EmbeddedReader(halves.root, halves.table)
    work = SplitWork(
        halves.table, SplitProgress.beginning(split), reader, Refusing(error), FakeClock(), ThreadExecutor(), mailbox
    )
    with pytest.raises(RowError, match=rf"shop\.orders, bucket \d+/0, split log-0, offsets 0 to {BATCH - 1}: .*no"):
        _take(work, mailbox)
    work.abort()


@pytest.mark.parametrize("error", [OSError("no"), MemoryError(), StorageError("no")])
def test_what_is_no_fault_of_a_row_is_passed_on(halves: Halves, error: Exception) -> None:
    split, mailbox = halves.log(), Mailbox()
    reader = EmbeddedReader(halves.root, halves.table)
    work = SplitWork(
        halves.table, SplitProgress.beginning(split), reader, Refusing(error), FakeClock(), ThreadExecutor(), mailbox
    )
    with pytest.raises(type(error)):
        _take(work, mailbox)
    assert work.unreadable(error) is error
    work.abort()


def test_what_a_reader_says_of_a_value_becomes_an_error_of_its_rows(halves: Halves) -> None:
    work, mailbox = halves.begin(SplitProgress.beginning(halves.log()))
    _take(work, mailbox, 1)
    found = work.unreadable(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"))
    assert isinstance(found, RowError)
    assert found.permanent
    assert f"records from {BATCH} on cannot be decoded: UnicodeDecodeError" in str(found)
    work.abort()
