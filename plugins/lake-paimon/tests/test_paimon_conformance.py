"""The Paimon lake keeps the contract of lakes; pypaimon reads back."""

from __future__ import annotations

import pytest

from lakeward_lake_paimon.plugin import PaimonLakePlugin
from lakeward_paimon_kit.shapes import ShapedPlugin
from lakeward_testing.lake_conformance import LakeConformance

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


class TestCleanPaimonLake(LakeConformance):
    """The same where no table has system columns, as Fluss makes them since 1.0."""

    __test__ = True

    @pytest.fixture
    def plugin(self) -> ShapedPlugin:
        return ShapedPlugin(properties={"paimon.changelog-producer": "none"}, system_columns=False)
