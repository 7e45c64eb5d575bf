"""Interruptions with row groups and windows so small that files close by themselves and windows are searched midway."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.model.checkpoints import SplitProgress
from lakeward.model.tables import Change
from lakeward_lake_iceberg.options import IcebergOptions
from lakeward_lake_iceberg.partitioner import Place
from lakeward_lake_iceberg.plugin import IcebergLakePlugin
from lakeward_lake_iceberg.task import unpack_task
from lakeward_lake_iceberg.upserts import Limits, UpsertWriter
from lakeward_lake_iceberg.writer import AppendWriter, GroupLimits
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_resume import LakeResumeConformance
from lakeward_testing.lake_tables import COLUMNS, TieringRound, incarnation, key_table, log_split, source_batch

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward.model.results import LakeFile
    from lakeward.model.splits import Split
    from lakeward.model.tables import TableSpec
    from lakeward.ports import LakeWriter, SourceBatch

pytestmark = pytest.mark.slow


class TinyPlugin(IcebergLakePlugin):
    """Writers that gather little."""

    def writer(
        self, task: bytes, table: TableSpec, split: Split, attempt: int, progress: SplitProgress | None = None
    ) -> LakeWriter:
        known, before = unpack_task(task), () if progress is None else progress.files
        if not table.has_primary_key:
            return AppendWriter(known, table, Place.of_split(known, split), attempt, before, GroupLimits(rows=5))
        limits = Limits(chunk_rows=4, chunk_bytes=1 << 30, window_keys=17, window_bytes=1 << 30)
        return UpsertWriter(known, table, Place.of_split(known, split), attempt, before, limits)


def _hot(number: int) -> SourceBatch:
    return source_batch(COLUMNS, [{"id": 1, "name": f"n{number}"}], changes=[Change.UPDATE_AFTER], start=number)


def test_a_row_that_was_deleted_before_an_interruption_is_not_deleted_again(tmp_path: Path) -> None:
    plugin = TinyPlugin()
    lake = plugin.open(IcebergOptions(warehouse=str(tmp_path), target_file_size_bytes=1), FakeClock())
    first = TieringRound(plugin, lake, key_table(), incarnation())
    first.write(log_split(first.table), [_hot(0)])
    lake.commit(first.request())
    tiering = TieringRound(plugin, lake, key_table(), incarnation(), 2)
    split = log_split(tiering.table)
    files: tuple[LakeFile, ...] = ()
    for number in range(1, 9):
        progress = SplitProgress(split, number, files, number, -1)
        writer = plugin.writer(tiering.task, tiering.table, split, number, progress)
        writer.write(_hot(number))
        files = writer.roll()
    assert sum(file.rows for file in files if file.kind == "data") == 8
    assert sum(file.rows for file in files if file.kind == "deletes") == 8
    lake.close()


def test_deletes_cover_the_rows_of_full_files_and_no_others(tmp_path: Path) -> None:
    """Two row groups fill a file; what came after it is in no file, and deletes nothing yet."""
    plugin = TinyPlugin()
    lake = plugin.open(IcebergOptions(warehouse=str(tmp_path), target_file_size_bytes=600), FakeClock())
    tiering = TieringRound(plugin, lake, key_table(), incarnation())
    writer = plugin.writer(tiering.task, tiering.table, log_split(tiering.table), 1)
    rows = [{"id": key, "name": f"n{key}"} for key in range(4)]
    whole = []
    for _ in range(2):
        writer.write(source_batch(COLUMNS, rows, changes=[Change.UPDATE_AFTER] * 4))
        whole.append(writer.all_rows_flushed)
    writer.write(_hot(8))
    whole.append(writer.all_rows_flushed)
    files = writer.roll()
    assert whole == [False, True, False]
    assert [(file.kind, file.rows) for file in files] == [("data", 8), ("deletes", 4)]
    after = [(file.kind, file.rows) for file in writer.close()]
    assert after == [("data", 8), ("data", 1), ("deletes", 4), ("deletes", 1)]
    lake.close()


class TestTinyWriters(LakeResumeConformance):
    __test__ = True

    @pytest.fixture
    def plugin(self) -> TinyPlugin:
        return TinyPlugin()
