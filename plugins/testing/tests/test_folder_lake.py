"""The folder lake goes on where a checkpoint left off, as other lakes do."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakeward_service_kit.folder_tables import read_each_snapshot, read_partitioned
from lakeward_testing.folder_lake import FolderLake, FolderLakePlugin, FolderOptions
from lakeward_testing.lake_partitions import LakePartitionConformance
from lakeward_testing.lake_resume import LakeResumeConformance
from lakeward_testing.lake_rewrite import LakeRewriteConformance
from lakeward_testing.lake_tables import COLUMNS
from lakeward_testing.lake_upkeep import LakeUpkeepConformance

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakeward.model.tables import TablePath

pytestmark = pytest.mark.slow


class TestFolderLake(LakeResumeConformance, LakePartitionConformance, LakeRewriteConformance, LakeUpkeepConformance):
    __test__ = True

    @pytest.fixture
    def plugin(self) -> FolderLakePlugin:
        return FolderLakePlugin()

    @pytest.fixture
    def with_target(self, tmp_path: Path) -> Callable[[int], FolderOptions]:
        return lambda target_bytes: FolderOptions(path=str(tmp_path), target_bytes=target_bytes)

    @pytest.fixture
    def options(self, tmp_path: Path) -> FolderOptions:
        return FolderOptions(path=str(tmp_path), merge_from=3)

    @pytest.fixture
    def read_table(self, tmp_path: Path) -> Callable[[TablePath], pa.Table]:
        def read(path: TablePath) -> pa.Table:
            keyed = not path.table.startswith("appends")
            rows = FolderLake(tmp_path).read(path, "id" if keyed else None)
            return pa.Table.from_pylist([{"id": row["id"], "name": row["name"]} for row in rows], COLUMNS)

        return read

    @pytest.fixture
    def read_partitioned(self, tmp_path: Path) -> Callable[[TablePath], pa.Table]:
        return partial(read_partitioned, tmp_path)

    @pytest.fixture
    def read_each_snapshot(self, tmp_path: Path) -> Callable[[TablePath], list[pa.Table]]:
        return partial(read_each_snapshot, tmp_path)
