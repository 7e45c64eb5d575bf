"""The Iceberg lake keeps the contract of lakes; DuckDB reads back."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from pyiceberg.exceptions import CommitFailedException

from lakeward_iceberg_kit.clean import CleanPlugin
from lakeward_iceberg_kit.fanned_out import PartitionedPlugin
from lakeward_iceberg_kit.newest import NewestPlugin
from lakeward_lake_iceberg.lake import IcebergLake
from lakeward_lake_iceberg.plugin import IcebergLakePlugin
from lakeward_testing.lake_conformance import LakeConformance
from lakeward_testing.lake_partitions import LakePartitionConformance

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog

    from lakeward.model.tables import TablePath
    from lakeward.ports import Lake

pytestmark = pytest.mark.slow


class _RepeatedCommits:
    """Sends each commit twice, as a gateway may."""

    @pytest.fixture
    def repeat_commits(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[Lake], None]:
        def repeat(lake: Lake) -> None:
            assert isinstance(lake, IcebergLake)
            send: Callable[..., object] = lake._client.catalog.commit_table

            def twice(*arguments: object) -> object:
                with suppress(CommitFailedException):
                    send(*arguments)
                return send(*arguments)

            monkeypatch.setattr(lake._client.catalog, "commit_table", twice)

        return repeat


class TestIcebergLake(_RepeatedCommits, LakeConformance, LakePartitionConformance):
    __test__ = True
    published = IcebergLakePlugin

    @pytest.fixture
    def read_partitioned(self, read_table: Callable[[TablePath], pa.Table]) -> Callable[[TablePath], pa.Table]:
        return read_table

    @pytest.fixture
    def read_each_snapshot(self, catalog: SqlCatalog) -> Callable[[TablePath], list[pa.Table]]:
        def read(path: TablePath) -> list[pa.Table]:
            table = catalog.load_table((path.database, path.table))
            ids = [entry.snapshot_id for entry in table.history()]
            return [table.scan(snapshot_id=snapshot_id).to_arrow() for snapshot_id in ids]

        return read


class TestCleanIcebergLake(_RepeatedCommits, LakeConformance):
    """The same where no table has system columns."""

    __test__ = True

    @pytest.fixture
    def plugin(self) -> CleanPlugin:
        return CleanPlugin()


class TestPartitionedIcebergLake(_RepeatedCommits, LakeConformance):
    """The same where each table has a partitioning of its own, behind the fan-out."""

    __test__ = True

    # These count the files of one partition; when the fan-out closes files at a checkpoint is its own matter.
    test_a_file_below_half_its_target_size_stays_open_at_a_checkpoint = None  # type: ignore[assignment]
    test_a_checkpoint_closes_a_file_from_half_its_target_size_on = None  # type: ignore[assignment]
    test_an_aborted_writer_leaves_what_a_checkpoint_may_name = None  # type: ignore[assignment]

    @pytest.fixture
    def plugin(self) -> PartitionedPlugin:
        return PartitionedPlugin()


class TestNewestIcebergLake(_RepeatedCommits, LakeConformance):
    """The same where tables have format version 3."""

    __test__ = True

    # A stamp has neither rows nor deletes, and this starts many processes.
    test_of_processes_that_stamp_at_once_the_latest_start_holds_it = None  # type: ignore[assignment]

    @pytest.fixture
    def plugin(self) -> NewestPlugin:
        return NewestPlugin()
