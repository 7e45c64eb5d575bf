"""The conformance suite, on local files and on a real S3 server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.storage.small_files import SmallFiles
from lakeward_service_kit.checkpoint_conformance import CheckpointStoreConformance

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.slow


class TestLocalFiles(CheckpointStoreConformance):
    __test__ = True

    @pytest.fixture
    def open_files(self, tmp_path: Path) -> Callable[[], SmallFiles]:
        return lambda: SmallFiles(str(tmp_path / "root"))


class TestObjectStore(CheckpointStoreConformance):
    __test__ = True
    races = 5

    @pytest.fixture
    def open_files(self, s3_root: str) -> Callable[[], SmallFiles]:
        return lambda: SmallFiles(s3_root)
