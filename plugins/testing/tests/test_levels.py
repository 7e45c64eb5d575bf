"""Levels of the conformance suites: what is not claimed is skipped, and the skip says so."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lakeward_testing.lake_conformance import LakeConformance
from lakeward_testing.lake_partitions import LakePartitionConformance
from lakeward_testing.lake_upkeep import LakeUpkeepConformance
from lakeward_testing.lease_conformance import LeaseBackendConformance
from lakeward_testing.levels import LEVELS, Conformance, level_of
from lakeward_testing.source_conformance import SourceConformance
from lakeward_testing.wrapper_conformance import LeaseWrapperConformance

if TYPE_CHECKING:
    from pathlib import Path

SUITE = """
import pytest
from lakeward_testing.levels import Conformance, chaos, upsert

class Published:
    conformance_level = {published!r}

class TestSuite(Conformance):
    __test__ = True
    level = {level!r}
    published = Published
    can_swim = False

    def test_plain(self) -> None:
        pass

    @upsert
    def test_again(self) -> None:
        pass

    @chaos
    def test_storm(self) -> None:
        pass

    def test_swimming(self) -> None:
        self.needs("can_swim")
"""


def run(place: Path, *, level: str, published: str) -> str:
    (place / "test_suite.py").write_text(SUITE.format(level=level, published=published), encoding="utf-8")
    words = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "--rootdir", str(place), str(place)]
    return subprocess.run(words, capture_output=True, encoding="utf-8", check=False).stdout


def test_what_is_not_claimed_is_skipped_and_named(tmp_path: Path) -> None:
    said = run(tmp_path, level="upsert", published="upsert")

    assert "declared: level = 'upsert'; this test is of level 'chaos'" in said
    assert "declared: can_swim = False" in said
    assert "3 passed, 2 skipped" in said


def test_a_published_level_that_is_not_the_tested_one_is_an_error(tmp_path: Path) -> None:
    said = run(tmp_path, level="basic", published="chaos")

    assert "expected conformance_level = 'basic'" in said
    assert "found 'chaos'" in said


def test_a_level_that_there_is_not_names_those_that_are_known(tmp_path: Path) -> None:
    assert "level: expected one of basic, upsert, chaos, found 'heroic'" in run(tmp_path, level="heroic", published="")


@pytest.mark.parametrize(
    "suite",
    [
        LeaseBackendConformance,
        LeaseWrapperConformance,
        LakeConformance,
        LakePartitionConformance,
        LakeUpkeepConformance,
        SourceConformance,
    ],
)
def test_each_suite_has_tests_of_each_level(suite: type[Conformance]) -> None:
    tests = [test for name, test in inspect.getmembers(suite, inspect.isfunction) if name.startswith("test_")]

    assert {level_of(test) for test in tests} == set(LEVELS)
