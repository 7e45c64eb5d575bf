"""The Paimon lake keeps the contract of lakes; pypaimon reads back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakeward_lake_paimon.plugin import PaimonLakePlugin
from lakeward_paimon_kit.shapes import ShapedPlugin
from lakeward_testing.lake_conformance import LakeConformance
from lakeward_testing.lake_partitions import LakePartitionConformance

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from lakeward.model.tables import TablePath
    from lakeward_lake_paimon.options import PaimonOptions
    from lakeward_paimon_kit.reader import PythonReader

pytestmark = pytest.mark.slow


class TestPaimonLake(LakeConformance):
    """Key tables without changelog files: tests count the files of a writer."""

    __test__ = True
    published = PaimonLakePlugin

    @pytest.fixture
    def plugin(self) -> ShapedPlugin:
        return ShapedPlugin(properties={"paimon.changelog-producer": "none"})


class TestPaimonLakeWithChangelog(LakeConformance):
    """Key tables as Fluss makes them: for each file of rows there is one of changes."""

    __test__ = True

    test_a_file_below_half_its_target_size_stays_open_at_a_checkpoint = None  # type: ignore[assignment]
    test_a_checkpoint_closes_a_file_from_half_its_target_size_on = None  # type: ignore[assignment]
    test_an_aborted_writer_leaves_what_a_checkpoint_may_name = None  # type: ignore[assignment]


class TestPartitionedPaimonTables(LakePartitionConformance):
    """Tables with a partitioning of their own."""

    __test__ = True

    # A Paimon table keeps its partition keys: another partitioning is refused (test_paimon_layout.py).
    test_a_table_with_data_gets_another_layout_and_keeps_its_rows = None  # type: ignore[assignment]
    test_a_key_whose_row_lies_in_another_layout_is_updated = None  # type: ignore[assignment]
    test_a_file_of_another_layout_is_refused = None  # type: ignore[assignment]

    @pytest.fixture
    def read_partitioned(self, read_table: Callable[[TablePath], pa.Table]) -> Callable[[TablePath], pa.Table]:
        return read_table

    @pytest.fixture
    def read_each_snapshot(
        self, python_reader: PythonReader, options: PaimonOptions
    ) -> Callable[[TablePath], list[pa.Table]]:
        def read(path: TablePath) -> list[pa.Table]:
            folder = Path(options.warehouse) / f"{path.database}.db" / path.table / "snapshot"
            ids = sorted(int(one.name.partition("-")[2]) for one in folder.glob("snapshot-*"))
            told: list[dict[str, Any]] = [{"scan.snapshot-id": number} for number in ids]
            return [python_reader.rows(options.warehouse, str(path), **one) for one in told]

        return read


class TestCleanPaimonLake(LakeConformance):
    """The same where no table has system columns, as Fluss makes them since 1.0."""

    __test__ = True

    @pytest.fixture
    def plugin(self) -> ShapedPlugin:
        return ShapedPlugin(properties={"paimon.changelog-producer": "none"}, system_columns=False)
