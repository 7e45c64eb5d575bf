"""The Iceberg lake keeps the contract of upkeep; DuckDB reads back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward_iceberg_kit.clean import CleanPlugin
from lakeward_iceberg_kit.newest import NewestPlugin
from lakeward_lake_iceberg.options import IcebergOptions
from lakeward_lake_iceberg.plugin import IcebergLakePlugin
from lakeward_testing.lake_rewrite import LakeRewriteConformance
from lakeward_testing.lake_tables import key_table
from lakeward_testing.lake_upkeep import LakeUpkeepConformance

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward.model.tables import TableSpec

pytestmark = pytest.mark.slow


class _Upkeep(LakeUpkeepConformance):
    """Partitions are never written to: each commit of the suite comes at once after the one before."""

    @pytest.fixture
    def options(self, tmp_path: Path) -> IcebergOptions:
        return IcebergOptions(warehouse=str(tmp_path / "warehouse"), compaction_quiet_s=0, compaction_files=3)


class TestIcebergUpkeep(_Upkeep, LakeRewriteConformance):
    """Key tables as Fluss makes them, a partition for each bucket."""

    __test__ = True
    published = IcebergLakePlugin


class TestCleanIcebergUpkeep(_Upkeep):
    """Key tables without system columns, whose buckets lie in one partition."""

    __test__ = True

    @pytest.fixture
    def plugin(self) -> IcebergLakePlugin:
        return CleanPlugin()

    @pytest.fixture
    def upkept(self) -> TableSpec:
        return key_table(system_columns=False, bucket_key=())


class TestNewestIcebergUpkeep(_Upkeep, LakeRewriteConformance):
    """Tables of format version 3."""

    __test__ = True

    @pytest.fixture
    def plugin(self) -> IcebergLakePlugin:
        return NewestPlugin()
