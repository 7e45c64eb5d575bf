"""Interruptions with row groups and windows so small that files close by themselves and windows are searched midway."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.testing.lake_resume import LakeResumeConformance
from lakeward_lake_iceberg.plugin import IcebergLakePlugin
from lakeward_lake_iceberg.task import unpack_task
from lakeward_lake_iceberg.upserts import UpsertWriter, _Limits
from lakeward_lake_iceberg.writer import AppendWriter

if TYPE_CHECKING:
    from lakeward.model.checkpoints import SplitProgress
    from lakeward.model.splits import Split
    from lakeward.model.tables import TableSpec
    from lakeward.ports import LakeWriter


class TinyPlugin(IcebergLakePlugin):
    """Writers that gather little."""

    def writer(
        self, task: bytes, table: TableSpec, split: Split, attempt: int, progress: SplitProgress | None = None
    ) -> LakeWriter:
        before = () if progress is None else progress.files
        if not table.has_primary_key:
            return AppendWriter(unpack_task(task), table, split, attempt, before, group_rows=5)
        limits = _Limits(chunk_rows=4, chunk_bytes=1 << 30, window_keys=17, window_bytes=1 << 30)
        return UpsertWriter(unpack_task(task), table, split, attempt, before, limits)


class TestTinyWriters(LakeResumeConformance):
    __test__ = True

    @pytest.fixture
    def plugin(self) -> TinyPlugin:
        return TinyPlugin()
