"""One writer in front of many, with the folder lake's partitions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeward.errors import LakeError
from lakeward.model.batches import SourceBatch, batch_schema, log_records
from lakeward.model.checkpoints import SplitProgress
from lakeward.model.events import Deploy
from lakeward.model.partitioning import PartitionField
from lakeward.model.splits import LogSplit
from lakeward.model.tables import Change, TableBucket, TablePath, TableSpec
from lakeward.subtask.fan_out.dividing import RowDivider
from lakeward.subtask.fan_out.files import PartitionFiles
from lakeward.subtask.fan_out.writer import ExchangeFanOut, FanOutLimits, SplitFanOut
from lakeward.subtask.writers import split_writer
from lakeward_testing.clock import FakeClock
from lakeward_testing.folder_lake import FolderLakePlugin, FolderWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.model.results import LakeFile
    from lakeward.ports import Partitioner

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("color", pa.string())])
HUGE = 1 << 40


class Folder:
    """A folder lake's partitions, and how many of its writers are open."""

    def __init__(self, folder: Path, *fields: str, target_bytes: int = HUGE) -> None:
        layout = tuple(PartitionField.parse(field) for field in fields)
        self.table = TableSpec(TablePath("shop", "orders"), 1, 1, SCHEMA, (), (), (), 1, 1.0, lake_partition=layout)
        self._task = json.dumps([str(folder), target_bytes]).encode()
        self.writers: list[FolderWriter] = []
        self.attempt = 0

    def writer(self, partition: bytes, name: str, before: tuple[LakeFile, ...], memory_bytes: int) -> FolderWriter:
        writer = FolderLakePlugin().partition_writer(
            self._task, self.table, partition, name, self.attempt, before, memory_bytes
        )
        self.writers.append(writer)
        return writer

    @property
    def open(self) -> int:
        return sum(not writer.all_rows_flushed for writer in self.writers)

    def split(
        self,
        before: Sequence[LakeFile] = (),
        *,
        open_files: int = 64,
        open_rows_bytes: int = 0,
        bucket: int = 3,
        deletes_old_row: bool = False,
        memory_bytes: int = 0,
    ) -> SplitFanOut:
        partitioner = FolderLakePlugin().partitioner(self._task, self.table)
        return SplitFanOut(
            RowDivider(partitioner, self.table, bucket=bucket, deletes_old_row=deletes_old_row),
            self._files(partitioner, before),
            FanOutLimits(open_files, open_rows_bytes, memory_bytes),
        )

    def exchange(
        self,
        before: Sequence[LakeFile] = (),
        *,
        open_files: int = 64,
        open_rows_bytes: int = HUGE,
        memory_bytes: int = 0,
    ) -> ExchangeFanOut:
        partitioner = FolderLakePlugin().partitioner(self._task, self.table)
        limits = FanOutLimits(open_files, open_rows_bytes, memory_bytes)
        return ExchangeFanOut(RowDivider(partitioner, self.table), self._files(partitioner, before), limits)

    def _files(self, partitioner: Partitioner, before: Sequence[LakeFile]) -> PartitionFiles:
        self.attempt += 1
        return PartitionFiles(self.writer, "split", partitioner, before)


def batch(first: int, colors: Sequence[str | None], changes: Sequence[int] | int = Change.APPEND) -> SourceBatch:
    """Records whose ids are their offsets."""
    ids = np.arange(first, first + len(colors))
    rows = pa.RecordBatch.from_arrays([pa.array(ids), pa.array(colors, pa.string())], schema=SCHEMA)
    change = changes if isinstance(changes, int) else np.array(changes, dtype=np.uint8)
    return SourceBatch(log_records(batch_schema(SCHEMA), rows, change, first, 0), first + len(colors))


def rows_of(file: LakeFile) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = pa.ipc.open_file(file.path).read_all().to_pylist()
    return rows


def by_partition(files: Sequence[LakeFile]) -> dict[object, list[object]]:
    """The ids in the files of each partition, in the order of the files."""
    found: dict[object, list[object]] = {}
    for file in files:
        (value,) = json.loads(file.detail)[1]
        found.setdefault(value, []).extend(row["id"] for row in rows_of(file))
    return found


def test_each_row_goes_to_its_partition_in_the_order_in_which_it_came(tmp_path: Path) -> None:
    fan_out = Folder(tmp_path, "color").split()

    fan_out.write(batch(0, ["red", "blue", None, "red", "blue"]))
    fan_out.write(batch(5, ["blue", "red", "green"]))

    assert by_partition(fan_out.close()) == {"red": [0, 3, 6], "blue": [1, 4, 5], None: [2], "green": [7]}


def test_rows_that_follow_one_another_in_a_partition_are_not_copied(tmp_path: Path) -> None:
    fan_out = Folder(tmp_path, "color").exchange()
    records = batch(0, ["red"] * 5000 + ["blue"] * 5000)

    fan_out.write(records)

    (kept,) = fan_out.take_unsaved(b'["blue"]')
    assert kept.column("id").buffers()[1].address == records.records.column("id").buffers()[1].address


@pytest.mark.parametrize("sizes", [[5000, 5000], [5000, 3, 4, 5000], [1, 2, 5000, 3], [3, 4]])
def test_rows_of_large_and_small_batches_that_are_divided_at_once_stay_in_order(
    tmp_path: Path, sizes: list[int]
) -> None:
    fan_out = Folder(tmp_path, "color").exchange(memory_bytes=HUGE)
    wanted: dict[str, list[int]] = {}
    first = 0
    for size in sizes:
        colors = [["red", "blue", "green"][3 * number // size] for number in range(size)]  # each color once
        fan_out.write(batch(first, colors))
        for number, color in enumerate(colors, first):
            wanted.setdefault(color, []).append(number)
        first += size

    assert by_partition(fan_out.close()) == wanted


def test_rows_of_a_partition_keep_no_others_in_memory_however_large_those_are(tmp_path: Path) -> None:
    fan_out = Folder(tmp_path, "color").exchange()
    huge = "b" * 1_000_000

    fan_out.write(batch(0, [*["a"] * 500, huge, *["a"] * 500, *["c"] * 100]))

    opened = fan_out.open_rows()
    assert len(opened) == 3
    for rows in (rows for partition in opened for rows in fan_out.take_unsaved(partition)):
        assert rows.get_total_buffer_size() <= 2 * rows.nbytes


def test_a_batch_without_rows_opens_no_file(tmp_path: Path) -> None:
    fan_out = Folder(tmp_path, "color").split()
    fan_out.write(batch(0, []))
    assert fan_out.close() == ()


def test_rows_get_the_bucket_of_their_split(tmp_path: Path) -> None:
    fan_out = Folder(tmp_path, "bucket(2, id)").split(bucket=3)
    fan_out.write(batch(0, ["red", "blue"]))
    assert {row["__bucket"] for file in fan_out.close() for row in rows_of(file)} == {3}


def test_an_update_deletes_the_old_row_in_the_partition_that_it_was_in(tmp_path: Path) -> None:
    fan_out = Folder(tmp_path, "color").split(deletes_old_row=True)

    fan_out.write(batch(0, ["red", "red", "blue"], [Change.INSERT, Change.UPDATE_BEFORE, Change.UPDATE_AFTER]))

    changes = {json.loads(file.detail)[1][0]: [row["__change"] for row in rows_of(file)] for file in fan_out.close()}
    assert changes == {"red": [Change.INSERT, Change.DELETE], "blue": [Change.UPDATE_AFTER]}


def test_one_more_partition_closes_the_largest_file(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "color")
    fan_out = folder.exchange(open_files=2)
    fan_out.write(batch(0, ["red"] * 9 + ["blue"]))

    fan_out.write(batch(10, ["green"]))

    assert set(fan_out.open_rows()) == {b'["blue"]', b'["green"]'}
    assert by_partition(fan_out.roll())["red"] == list(range(9))


def test_a_later_row_of_a_closed_partition_begins_a_new_file_after_those_before(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "color")
    fan_out = folder.split(open_files=1)

    fan_out.write(batch(0, ["red", "blue", "red"]))
    fan_out.write(batch(3, ["blue"]))

    assert by_partition(fan_out.close()) == {"red": [0, 2], "blue": [1, 3]}
    assert folder.open == 0


@pytest.mark.parametrize("open_files", [0, -1])
def test_a_writer_that_may_have_no_open_file_is_refused(tmp_path: Path, open_files: int) -> None:
    with pytest.raises(ValueError, match=f"open_files: expected at least 1, found {open_files}"):
        Folder(tmp_path, "color").split(open_files=open_files)


def test_a_roll_below_the_bound_leaves_files_open_and_returns_none_of_them(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "color")
    fan_out = folder.split(open_rows_bytes=HUGE)
    fan_out.write(batch(0, ["red", "blue"]))

    assert fan_out.roll() == ()
    assert not fan_out.all_rows_flushed
    assert folder.open == 2


def test_a_roll_beyond_the_bound_closes_all_files(tmp_path: Path) -> None:
    fan_out = Folder(tmp_path, "color").split(open_rows_bytes=10)
    fan_out.write(batch(0, ["red", "blue"]))

    assert by_partition(fan_out.roll()) == {"red": [0], "blue": [1]}
    assert fan_out.all_rows_flushed


def test_a_file_that_was_closed_early_is_returned_only_with_all_rows_before_it(tmp_path: Path) -> None:
    fan_out = Folder(tmp_path, "color").split(open_files=1, open_rows_bytes=HUGE)
    fan_out.write(batch(0, ["red", "blue"]))

    assert fan_out.roll() == ()
    assert by_partition(fan_out.close()) == {"red": [0], "blue": [1]}


def test_an_abort_deletes_what_no_roll_returned(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "color")
    fan_out = folder.split(open_files=1)
    fan_out.write(batch(0, ["red", "blue"]))
    kept = fan_out.roll()
    fan_out.write(batch(2, ["red", "blue", "green"]))

    fan_out.abort()

    assert {str(path) for path in tmp_path.rglob("*.arrow")} == {file.path for file in kept}


def test_another_writer_goes_on_from_the_files_of_each_partition(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "color")
    first = folder.split()
    first.write(batch(0, ["red", "blue"]))
    files = first.roll()

    second = folder.split(files)
    second.write(batch(2, ["blue", "green"]))

    assert by_partition(second.close()) == {"red": [0], "blue": [1, 2], "green": [3]}


@pytest.mark.parametrize("keep", [False, True])
def test_the_files_that_it_went_on_from_come_first_as_they_were_given(tmp_path: Path, *, keep: bool) -> None:
    folder = Folder(tmp_path, "color")
    first = folder.split()
    first.write(batch(0, ["red", "blue", "green"]))
    first.roll()
    first.write(batch(3, ["red"]))
    files = first.close()
    given = (*files[2:], *files[:2])

    second = folder.exchange(given, open_files=1) if keep else folder.split(given, open_files=1)
    second.write(batch(4, ["blue", "red", "white"]))

    assert second.roll()[: len(given)] == given
    assert second.close()[: len(given)] == given
    assert len(second.close()) > len(given)


def test_files_of_another_layout_are_refused(tmp_path: Path) -> None:
    fan_out = Folder(tmp_path, "color").split()
    fan_out.write(batch(0, ["red"]))
    with pytest.raises(LakeError, match="found"):
        Folder(tmp_path, "bucket(2, id)").split(fan_out.close())


def test_open_rows_are_handed_over_once_and_forgotten_with_their_file(tmp_path: Path) -> None:
    fan_out = Folder(tmp_path, "color").exchange()
    fan_out.write(batch(0, ["red"]))
    red = fan_out.open_rows()[b'["red"]']
    assert [rows.num_rows for rows in fan_out.take_unsaved(b'["red"]')] == [1]
    assert (red.rows, fan_out.take_unsaved(b'["red"]')) == (1, [])

    fan_out.write(batch(1, ["red", "red"]))
    assert [rows.column("id").to_pylist() for rows in fan_out.take_unsaved(b'["red"]')] == [[1, 2]]
    fan_out.close_open()
    assert fan_out.open_rows() == {}

    fan_out.write(batch(3, ["red"]))
    assert fan_out.open_rows()[b'["red"]'].generation > red.generation


def test_rows_that_no_checkpoint_has_are_kept_up_to_the_bound_and_their_file_is_closed_at_the_next(
    tmp_path: Path,
) -> None:
    fan_out = Folder(tmp_path, "color").exchange(open_rows_bytes=5000)
    for first in range(0, 1000, 100):
        fan_out.write(batch(first, ["red"] * 90 + ["blue"] * 10))
        kept = sum(rows.nbytes for one in fan_out.open_rows().values() for rows in one.unsaved)
        assert kept <= 5000

    assert set(by_partition(fan_out.roll())) == {"red"}
    assert [rows.num_rows for rows in fan_out.take_unsaved(b'["blue"]')] == [10] * 10


def test_rows_of_more_partitions_than_may_be_open_are_held_while_there_is_memory(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "color")
    fan_out = folder.split(open_files=2, memory_bytes=HUGE)
    for first in range(0, 100, 10):
        fan_out.write(batch(first, [f"color {number}" for number in range(10)]))

    assert len(fan_out.close()) == 10
    assert folder.open == 0


def test_the_partition_with_the_most_rows_is_written_when_memory_is_short(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "color")
    fan_out = folder.split(memory_bytes=20_000)
    fan_out.write(batch(0, ["red"] * 1000 + ["blue"]))

    assert [writer.all_rows_flushed for writer in folder.writers] == [False]


@pytest.mark.parametrize(("memory_bytes", "files"), [(0, 1), (HUGE, 0)])
def test_a_split_is_written_with_the_memory_that_the_coordinator_says(
    tmp_path: Path, memory_bytes: int, files: int
) -> None:
    folder = Folder(tmp_path, "color")
    task = json.dumps([str(tmp_path), 1]).encode()
    deploy = Deploy(
        attempt=1, table=b"", source="", source_task=b"", lake="", lake_task=task, fence_s=1, progress_s=1,
        open_files=64, open_rows_bytes=HUGE, write_memory_bytes=memory_bytes,
    )  # fmt: skip
    progress = SplitProgress.beginning(LogSplit("b3", TableBucket(1, None, 3), (), 0, 10))
    writer = split_writer(FolderLakePlugin(), deploy, folder.table, progress, FakeClock())

    writer.write(batch(0, ["red"] * 10))

    assert [path.is_file() for path in tmp_path.rglob("*")] == [True] * files


STEPS = st.one_of(
    st.lists(st.sampled_from(["red", "blue", "green", "white", None]), max_size=30),
    st.sampled_from(["roll", "close_largest", "take"]),
)


@settings(deadline=None)
@given(
    steps=st.lists(STEPS, max_size=20),
    open_files=st.integers(1, 5),
    target_bytes=st.sampled_from([200, 2000, HUGE]),
    open_rows_bytes=st.sampled_from([0, 1000, HUGE]),
    keep=st.booleans(),
    memory_bytes=st.sampled_from([0, 500, HUGE]),
)
def test_every_row_is_in_a_closed_file_or_open(  # noqa: PLR0917 - what is generated
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[list[str | None] | str],
    open_files: int,
    target_bytes: int,
    open_rows_bytes: int,
    keep: bool,
    memory_bytes: int,
) -> None:
    folder = Folder(tmp_path_factory.mktemp("lake"), "color", target_bytes=target_bytes)
    begin = folder.exchange if keep else folder.split
    fan_out = begin(open_files=open_files, open_rows_bytes=open_rows_bytes, memory_bytes=memory_bytes)
    taken: list[str | None] = []
    at_flush = 0
    saved: dict[tuple[bytes, int], list[object]] = {}
    for step in steps:
        match step:
            case "roll":
                _check_rolled(fan_out, len(taken), len(taken) if fan_out.all_rows_flushed else at_flush)
            case "close_largest" if isinstance(fan_out, ExchangeFanOut):
                fan_out.close_largest()
            case "take" if isinstance(fan_out, ExchangeFanOut):
                _check_taken(fan_out, saved)
            case list():
                fan_out.write(batch(len(taken), step))
                taken += step
        if fan_out.all_rows_flushed:
            at_flush = len(taken)
        assert folder.open <= open_files

    expected: dict[object, list[object]] = {}
    for number, color in enumerate(taken):
        expected.setdefault(color, []).append(number)
    assert by_partition(fan_out.close()) == expected


def _check_rolled(fan_out: SplitFanOut | ExchangeFanOut, taken: int, at_flush: int) -> None:
    rows = sorted(row["id"] for file in fan_out.roll() for row in rows_of(file))  # type: ignore[type-var]
    if isinstance(fan_out, ExchangeFanOut):
        assert len(rows) + sum(one.rows for one in fan_out.open_rows().values()) == taken
        assert not any(one.forgotten for one in fan_out.open_rows().values())
    else:
        assert rows == list(range(taken if fan_out.all_rows_flushed else at_flush))


def _check_taken(fan_out: ExchangeFanOut, saved: dict[tuple[bytes, int], list[object]]) -> None:
    for partition, opened in fan_out.open_rows().items():
        ids = saved.setdefault((partition, opened.generation), [])
        ids += [one for rows in fan_out.take_unsaved(partition) for one in rows.column("id").to_pylist()]
        if not opened.forgotten:
            assert len(ids) == opened.rows
